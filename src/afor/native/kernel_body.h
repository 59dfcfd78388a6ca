/* The two loops over the elements, for one of float and double and one instruction set; included by
 * kernel_set.h with REAL, BITS, MAGNITUDE, LANES, NAME, LARGEST and SQRT defined. */

#define VECTOR NAME(vector)
#define VECTOR_U NAME(unaligned)
#define VECTOR_BITS NAME(bits)
typedef REAL VECTOR __attribute__((vector_size(WIDTH)));
typedef REAL VECTOR_U __attribute__((vector_size(WIDTH), aligned(sizeof(REAL)), may_alias));
typedef BITS VECTOR_BITS __attribute__((vector_size(WIDTH)));

#define EACH (WIDTH / (int)sizeof(REAL)) /* elements in a vector */
#define ABS(x) ((VECTOR)((VECTOR_BITS)(x) & MAGNITUDE))

/* Add one vector of gradient and first moment to its lanes of the sums. */
INLINE void NAME(sum_vector)(const REAL *g_, const REAL *m_, REAL factor, REAL weight,
                             int from_value, VECTOR *lanes) {
  const VECTOR g = *(const VECTOR_U *)g_ * factor, m = *(const VECTOR_U *)m_;
  const VECTOR difference = g - m;
  const VECTOR moved = (from_value ? g : m) + weight * difference;
  lanes[RESIDUAL] += ABS(difference);
  lanes[MOMENTUM] += ABS(moved);
  lanes[GRAD_SQ] += g * g;
  lanes[MOMENTUM_SQ] += m * m;
  lanes[PRODUCT] += g * m;
}

/* Add the vectors of one sweep over a row of lanes. */
INLINE void NAME(sum_row)(const REAL *g, const REAL *m, REAL factor, REAL weight, int from_value,
                          VECTOR (*lanes)[SUMS]) {
  NAME(sum_vector)(g, m, factor, weight, from_value, lanes[0]);
#if SWEEP > 1
  NAME(sum_vector)(g + EACH, m + EACH, factor, weight, from_value, lanes[1]);
#endif
#if SWEEP > 2
  NAME(sum_vector)(g + 2 * EACH, m + 2 * EACH, factor, weight, from_value, lanes[2]);
  NAME(sum_vector)(g + 3 * EACH, m + 3 * EACH, factor, weight, from_value, lanes[3]);
#endif
}

/* Add the lanes of a sweep to the sums, in a fixed order. */
INLINE void NAME(add_lanes)(VECTOR (*lanes)[SUMS], double *sums) {
  for (int v = 0; v < SWEEP; v++)
    for (int l = 0; l < EACH; l++)
      for (int k = 0; k < SUMS; k++) sums[k] += lanes[v][k][l];
}

/* Fetch the line at element `at` of what comes next. */
INLINE void NAME(fetch)(const struct next *next, int64_t at) {
  if (at < next->length) {
    __builtin_prefetch((const REAL *)next->first + at, 0, LOCALITY);
    __builtin_prefetch((const REAL *)next->second + at, 0, LOCALITY);
  }
}

/* Fetch the line of the arrays that the first pass has read, if they have left the cache since. */
INLINE void NAME(fetch_again)(const struct next *next, int64_t at) {
  if (next->grad && at < next->length) {
    __builtin_prefetch((const REAL *)next->grad + at, 0, LOCALITY);
    __builtin_prefetch((const REAL *)next->exp_avg + at, 0, LOCALITY);
  }
}

/* Sums of a full chunk, read in four places at once: a single stream waits for memory. */
INLINE void NAME(sum_full)(const REAL *g, const REAL *m, REAL factor, REAL weight, int from_value,
                           const struct next *next, double *sums) {
  enum { STREAMS = 4, LENGTH = CHUNK / STREAMS, FLUSH = BLOCK / STREAMS };
  /* with no full chunk to come, fetch what is there: cheaper than asking at each line */
  const REAL *next_g = next->length == CHUNK ? next->first : g;
  const REAL *next_m = next->length == CHUNK ? next->second : m;
  for (int64_t begin = 0; begin < LENGTH; begin += FLUSH)
    for (int first = 0; first < LANES; first += SWEEP * EACH) {
      VECTOR lanes[SWEEP][SUMS] = {{{0}}};
      for (int64_t i = begin; i < begin + FLUSH; i += LANES)
        for (int stream = 0; stream < STREAMS; stream++) {
          const int64_t at = i + stream * LENGTH, row = i / LANES * STREAMS + stream;
          const int64_t fetched = row % PLACES * (CHUNK / PLACES) + row / PLACES * LANES;
          if (first == 0) __builtin_prefetch(next_g + fetched, 0, LOCALITY);
          if (first + SWEEP * EACH == LANES)
            __builtin_prefetch(next_m + fetched, 0, LOCALITY);
          NAME(sum_row)(g + at + first, m + at + first, factor, weight, from_value, lanes);
        }
      NAME(add_lanes)(lanes, sums);
    }
}

/* Sums of `n` elements, a multiple of the lanes and at most a block. */
INLINE void NAME(sum_block)(const REAL *g, const REAL *m, int64_t n, REAL factor, REAL weight,
                            int from_value, double *sums) {
  for (int first = 0; first < LANES; first += SWEEP * EACH) {
    VECTOR lanes[SWEEP][SUMS] = {{{0}}};
    for (int64_t i = first; i < n; i += LANES)
      NAME(sum_row)(g + i, m + i, factor, weight, from_value, lanes);
    NAME(add_lanes)(lanes, sums);
  }
}

/* Sums of any number of elements. */
INLINE void NAME(sum_any)(const REAL *g, const REAL *m, int64_t n, REAL factor, REAL weight,
                          int from_value, const struct next *next, double *sums) {
  const int64_t whole = n - n % LANES;
  for (int64_t i = 0; i < whole; i += BLOCK) {
    const int64_t length = whole - i < BLOCK ? whole - i : BLOCK;
    for (int64_t at = i; at < i + length; at += LANES) NAME(fetch)(next, at);
    NAME(sum_block)(g + i, m + i, length, factor, weight, from_value, sums);
  }
  if (whole < n) { /* zeros add nothing to any of the sums */
    REAL rest[2][LANES] = {{0}};
    memcpy(rest[0], g + whole, (size_t)(n - whole) * sizeof(REAL));
    memcpy(rest[1], m + whole, (size_t)(n - whole) * sizeof(REAL));
    NAME(sum_block)(rest[0], rest[1], LANES, factor, weight, from_value, sums);
  }
}

/* The same in double throughout, for values whose squares leave the range of float. */
LOCAL void NAME(sum_wide)(const REAL *g_, const REAL *m_, int64_t n, REAL factor, REAL weight,
                          int from_value, double *sums) {
  double lanes[SUMS][LANES] = {{0}};
  for (int64_t i = 0; i < n; i += LANES) {
    REAL part[2][LANES] = {{0}};
    const size_t bytes = (size_t)(n - i < LANES ? n - i : LANES) * sizeof(REAL);
    memcpy(part[0], g_ + i, bytes);
    memcpy(part[1], m_ + i, bytes);
    for (int l = 0; l < LANES; l++) {
      const REAL g = part[0][l] * factor, m = part[1][l];
      const REAL moved = (from_value ? g : m) + weight * (g - m);
      lanes[RESIDUAL][l] += fabs((double)g - (double)m);
      lanes[MOMENTUM][l] += fabs((double)moved);
      lanes[GRAD_SQ][l] += (double)g * (double)g;
      lanes[MOMENTUM_SQ][l] += (double)m * (double)m;
      lanes[PRODUCT][l] += (double)g * (double)m;
    }
  }
  for (int k = 0; k < SUMS; k++) {
    sums[k] = 0.0;
    for (int l = 0; l < LANES; l++) sums[k] += lanes[k][l];
  }
}

LOCAL void NAME(sum_chunk)(const REAL *g, const REAL *m, int64_t n, const struct settings *s,
                           const struct next *next, double *out) {
  const struct average a = moving(1.0 - s->beta1);
  const REAL factor = (REAL)s->grad_factor, weight = (REAL)a.weight;
  double sums[SUMS] = {0};
  if (n == CHUNK && !a.from_value && factor == 1) /* mostly: one product less */
    NAME(sum_full)(g, m, 1, weight, 0, next, sums);
  else if (n == CHUNK && !a.from_value)
    NAME(sum_full)(g, m, factor, weight, 0, next, sums);
  else if (n == CHUNK)
    NAME(sum_full)(g, m, factor, weight, 1, next, sums);
  else if (!a.from_value)
    NAME(sum_any)(g, m, n, factor, weight, 0, next, sums);
  else
    NAME(sum_any)(g, m, n, factor, weight, 1, next, sums);
  if (sizeof(REAL) == sizeof(float)) {
    const double low = 1e-28, high = 1e32; /* well inside the range of float */
    const int in_range = sums[GRAD_SQ] > low && sums[GRAD_SQ] < high &&
                         sums[MOMENTUM_SQ] > low && sums[MOMENTUM_SQ] < high;
    const int all_zero = sums[RESIDUAL] == 0.0 && sums[MOMENTUM] == 0.0;
    if (!in_range && !all_zero) NAME(sum_wide)(g, m, n, factor, weight, a.from_value, sums);
  }
  memcpy(out, sums, sizeof sums);
}

/* Update moments and parameter of a range of elements. */
INLINE void NAME(update_range)(REAL *restrict p, const REAL *restrict g_, REAL *restrict m_,
                               REAL *restrict v_, int64_t n, REAL factor, struct average first,
                               const struct coefficients *c) {
  const struct average second = moving(c->forgetting);
  const REAL decay = (REAL)c->decay, lr = (REAL)c->lr;
  const REAL scale = (REAL)c->scale, shift = (REAL)c->shift;
  const REAL first_weight = (REAL)first.weight, second_weight = (REAL)second.weight;
  const int first_from = first.from_value, second_from = second.from_value;
  for (int64_t i = 0; i < n; i++) {
    const REAL g = g_[i] * factor, square = g * g, m = m_[i];
    const REAL v = v_[i] > LARGEST ? LARGEST : v_[i]; /* see _largest_finite in update.py */
    const REAL moved = (first_from ? g : m) + first_weight * (g - m);
    const REAL moved_sq = (second_from ? square : v) + second_weight * (square - v);
    m_[i] = moved;
    v_[i] = moved_sq;
    p[i] = p[i] * decay - lr * (moved / (SQRT(moved_sq) * scale + shift));
  }
}

/* Update the elements from `at` on, while as many of the chunk that comes next are fetched. */
INLINE void NAME(update_strip)(REAL *p, const REAL *g, REAL *m, REAL *v, int64_t at, int64_t n,
                               REAL factor, struct average first, const struct coefficients *c,
                               const struct next *next) {
  enum { LINE = 64 / sizeof(REAL) };
  for (int64_t i = at; i < at + n; i += LINE) {
    NAME(fetch)(next, i);
    NAME(fetch_again)(next, i);
  }
  NAME(update_range)(p + at, g + at, m + at, v + at, n, factor, first, c);
}

LOCAL void NAME(update_chunk)(REAL *p, const REAL *g, REAL *m, REAL *v, int64_t n,
                              const struct settings *s, const struct coefficients *c,
                              const struct next *next) {
  const struct average first = moving(1.0 - s->beta1);
  const REAL factor = (REAL)s->grad_factor;
  enum { HALF_CHUNK = CHUNK / 2, STRIP = 64 };
  int64_t at = 0;
  if (n == CHUNK && !FETCH) {
    NAME(update_range)(p, g, m, v, CHUNK, factor, first, c);
    return;
  }
  if (n == CHUNK) { /* both halves in turn, again for the latency */
    for (; at < HALF_CHUNK; at += STRIP)
      for (int half = 0; half < 2; half++)
        NAME(update_strip)(p, g, m, v, at + half * HALF_CHUNK, STRIP, factor, first, c, next);
    return;
  }
  for (; at < n; at += STRIP)
    NAME(update_strip)(p, g, m, v, at, n - at < STRIP ? n - at : STRIP, factor, first, c, next);
}

#undef REAL
#undef BITS
#undef MAGNITUDE
#undef LANES
#undef NAME
#undef LARGEST
#undef SQRT
#undef VECTOR
#undef VECTOR_U
#undef VECTOR_BITS
#undef EACH
#undef ABS

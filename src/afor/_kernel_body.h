/* The two loops over the elements, once for each of float and double; included by _kernel.c with
 * REAL, VECTOR, VECTOR_U, ABS, LANES, NAME,
 * LARGEST, SQRT, WIDE and WIDE_ABS defined. */

/* Add one vector of gradient and first moment to the lanes of the sums. */
INLINE void NAME(sum_vector)(VECTOR g, VECTOR m, REAL factor, REAL weight, int from_value,
                             VECTOR *lanes) {
  g = g * factor;
  const VECTOR difference = g - m;
  const VECTOR moved = (from_value ? g : m) + weight * difference;
  lanes[RESIDUAL] += ABS(difference);
  lanes[MOMENTUM] += ABS(moved);
  lanes[GRAD_SQ] += g * g;
  lanes[MOMENTUM_SQ] += m * m;
  lanes[PRODUCT] += g * m;
}

/* Empty the lanes into the sums, in a fixed order. */
INLINE void NAME(empty_lanes)(VECTOR *lanes, double *sums) {
  for (int k = 0; k < SUMS; k++) {
    for (int l = 0; l < LANES; l++) sums[k] += lanes[k][l];
    lanes[k] = (VECTOR){0};
  }
}

/* Fetch the line at element `at` of what comes next. */
INLINE void NAME(fetch)(const struct next *next, int64_t at) {
  if (at < next->length) {
    __builtin_prefetch((const REAL *)next->first + at);
    __builtin_prefetch((const REAL *)next->second + at);
  }
}

/* Sums of a full chunk, read in four places at once: a single stream waits for memory. */
INLINE void NAME(sum_full)(const REAL *g, const REAL *m, REAL factor, REAL weight, int from_value,
                           const struct next *next, double *sums) {
  enum { STREAMS = 4, LENGTH = CHUNK / STREAMS, FLUSH = BLOCK / STREAMS };
  VECTOR lanes[SUMS] = {{0}};
  for (int begin = 0; begin < LENGTH; begin += FLUSH) {
    for (int i = begin; i < begin + FLUSH; i += LANES)
      for (int at = i; at < CHUNK; at += LENGTH) {
        NAME(fetch)(next, at);
        NAME(sum_vector)(*(const VECTOR_U *)(g + at), *(const VECTOR_U *)(m + at), factor, weight,
                         from_value, lanes);
      }
    NAME(empty_lanes)(lanes, sums);
  }
}

/* Sums of any number of elements. */
INLINE void NAME(sum_any)(const REAL *g, const REAL *m, int64_t n, REAL factor, REAL weight,
                          int from_value, const struct next *next, double *sums) {
  VECTOR lanes[SUMS] = {{0}};
  int64_t i = 0;
  while (i + LANES <= n) {
    const int64_t end = i + BLOCK < n ? i + BLOCK : n;
    for (; i + LANES <= end; i += LANES) {
      NAME(fetch)(next, i);
      NAME(sum_vector)(*(const VECTOR_U *)(g + i), *(const VECTOR_U *)(m + i), factor, weight,
                       from_value, lanes);
    }
    NAME(empty_lanes)(lanes, sums);
  }
  if (i < n) { /* zeros add nothing to any of the sums */
    VECTOR rest[2] = {{0}};
    memcpy(&rest[0], g + i, (size_t)(n - i) * sizeof(REAL));
    memcpy(&rest[1], m + i, (size_t)(n - i) * sizeof(REAL));
    NAME(sum_vector)(rest[0], rest[1], factor, weight, from_value, lanes);
    NAME(empty_lanes)(lanes, sums);
  }
}

/* The same in double throughout, for values whose squares leave the range of float. */
CLONES static void NAME(sum_wide)(const REAL *g_, const REAL *m_, int64_t n,
                                  const struct settings *s, double *sums) {
  const struct average a = moving(1.0 - s->beta1);
  const REAL factor = (REAL)s->grad_factor, weight = (REAL)a.weight;
  WIDE residual = {0}, momentum = {0}, grad_sq = {0}, momentum_sq = {0}, product = {0};
  for (int64_t i = 0; i < n; i += LANES) {
    REAL narrow[2][LANES] = {{0}};
    const size_t bytes = (size_t)(n - i < LANES ? n - i : LANES) * sizeof(REAL);
    memcpy(narrow[0], g_ + i, bytes);
    memcpy(narrow[1], m_ + i, bytes);
    VECTOR g, m;
    memcpy(&g, narrow[0], sizeof g);
    memcpy(&m, narrow[1], sizeof m);
    g = g * factor;
    const VECTOR moved = (a.from_value ? g : m) + weight * (g - m);
    const WIDE gw = __builtin_convertvector(g, WIDE), mw = __builtin_convertvector(m, WIDE);
    residual += WIDE_ABS(gw - mw);
    momentum += WIDE_ABS(__builtin_convertvector(moved, WIDE));
    grad_sq += gw * gw;
    momentum_sq += mw * mw;
    product += gw * mw;
  }
  memset(sums, 0, SUMS * sizeof *sums);
  for (int l = 0; l < LANES; l++) {
    sums[RESIDUAL] += residual[l];
    sums[MOMENTUM] += momentum[l];
    sums[GRAD_SQ] += grad_sq[l];
    sums[MOMENTUM_SQ] += momentum_sq[l];
    sums[PRODUCT] += product[l];
  }
}

CLONES static void NAME(sum_chunk)(const REAL *g, const REAL *m, int64_t n,
                                   const struct settings *s, const struct next *next,
                                   double *out) {
  const struct average a = moving(1.0 - s->beta1);
  double sums[SUMS] = {0};
  const REAL factor = (REAL)s->grad_factor, weight = (REAL)a.weight;
  if (n == CHUNK)
    NAME(sum_full)(g, m, factor, weight, a.from_value, next, sums);
  else
    NAME(sum_any)(g, m, n, factor, weight, a.from_value, next, sums);
  if (sizeof(REAL) == sizeof(float)) {
    const double low = 1e-28, high = 1e32; /* well inside the range of float */
    const int in_range = sums[GRAD_SQ] > low && sums[GRAD_SQ] < high &&
                         sums[MOMENTUM_SQ] > low && sums[MOMENTUM_SQ] < high;
    const int all_zero = sums[RESIDUAL] == 0.0 && sums[MOMENTUM] == 0.0;
    if (!in_range && !all_zero) NAME(sum_wide)(g, m, n, s, sums);
  }
  memcpy(out, sums, sizeof sums);
}

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
    const REAL v = v_[i] > LARGEST ? LARGEST : v_[i]; /* see _largest in functional.py */
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
  for (int64_t i = at; i < at + n; i += LINE) NAME(fetch)(next, i);
  NAME(update_range)(p + at, g + at, m + at, v + at, n, factor, first, c);
}

CLONES static void NAME(update_chunk)(REAL *p, const REAL *g, REAL *m, REAL *v, int64_t n,
                                      const struct settings *s, const struct coefficients *c,
                                      const struct next *next) {
  const struct average first = moving(1.0 - s->beta1);
  const REAL factor = (REAL)s->grad_factor;
  enum { HALF_CHUNK = CHUNK / 2, STRIP = 64 };
  int64_t at = 0;
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
#undef VECTOR
#undef VECTOR_U
#undef ABS
#undef LANES
#undef NAME
#undef LARGEST
#undef SQRT
#undef WIDE
#undef WIDE_ABS

/* The network for one instruction set and one type of numbers; see eegnet_set.h for the macros. */

#define VEC NAME(vec)
#define BITVEC NAME(bitvec)
typedef REAL VEC __attribute__((vector_size(WIDTH)));
typedef BITS BITVEC __attribute__((vector_size(WIDTH)));

#define TAPS(n) (((n) + TILE - 1) / TILE * TILE)
#define SMALLER(a, b) ((a) < (b) ? (a) : (b))
#define LARGER(a, b) ((a) > (b) ? (a) : (b))
#define UNROLL _Pragma("GCC unroll 16")

/* ------------------------------------------------------------------------------------- blocks */

/* One block of windows: where its arrays begin, and how many of its lanes are windows. */
struct NAME(block) {
  int64_t first; /* window of lane 0 */
  int valid;
  VEC *x; /* (channels, samples) the signal */
  VEC *z; /* (maps, row) mixed channels, with margins */
  VEC *y; /* (maps, samples) after the temporal filter */
  VEC *p; /* (maps, pooled_row) after the first pool and dropout, with margins */
  VEC *d; /* (maps, pooled) after the depthwise filter */
  VEC *q; /* (outputs, pooled) after the pointwise filter */
};

static int64_t NAME(blocks)(const struct sizes *z) { return (z->batch + LANES - 1) / LANES; }

static int64_t NAME(slots)(const struct sizes *z) { return SMALLER(NAME(blocks)(z), SLOTS); }

static int64_t NAME(block_vectors)(const struct sizes *z) {
  return z->channels * z->samples + z->maps * (z->row + z->samples + z->pooled_row + z->pooled) +
         z->outputs * z->pooled;
}

static int64_t NAME(saved_count)(const struct sizes *z) {
  return NAME(blocks)(z) * NAME(block_vectors)(z) * LANES;
}

static struct NAME(block) NAME(block_at)(const struct sizes *z, VEC *memory, int64_t block) {
  struct NAME(block) b;
  b.first = block * LANES;
  b.valid = (int)SMALLER(z->batch - b.first, LANES);
  b.x = memory;
  b.z = b.x + z->channels * z->samples;
  b.y = b.z + z->maps * z->row;
  b.p = b.y + z->maps * z->samples;
  b.d = b.p + z->maps * z->pooled_row;
  b.q = b.d + z->maps * z->pooled;
  return b;
}

static struct NAME(block) NAME(saved_block)(const struct call *call, const struct sizes *z,
                                            int64_t block) {
  VEC *saved = call->array[SAVED].address;
  return NAME(block_at)(z, saved + block * NAME(block_vectors)(z), block);
}

/* Loop over the blocks of a slot. */
#define EACH_BLOCK(block, slot, z)                                                               \
  for (int64_t block = (slot) * NAME(blocks)(z) / NAME(slots)(z),                                \
               end_ = ((slot) + 1) * NAME(blocks)(z) / NAME(slots)(z);                           \
       block < end_; block++)

/* ------------------------------------------------------------------------- loops over vectors */

/* The sum of the lanes that are windows. */
INLINE double NAME(lane_sum)(VEC v, int valid) {
  double sum = 0.0;
  for (int l = 0; l < valid; l++) sum += (double)v[l];
  return sum;
}

INLINE VEC NAME(select)(BITVEC mask, VEC yes, VEC no) {
  return (VEC)(((BITVEC)yes & mask) | ((BITVEC)no & ~mask));
}

/* ELU of v, and its derivative. */
struct NAME(elu) {
  VEC value, slope;
};

INLINE struct NAME(elu) NAME(elu)(VEC v) {
  static const REAL polynomial[] = POLYNOMIAL;
  const VEC zero = {0};
  const BITVEC negative = (BITVEC)(v < zero); /* not of NaN, which goes through `positive` */
  const VEC positive = NAME(select)(negative, zero, v);
  VEC x = (VEC)((BITVEC)v & negative);
  x = NAME(select)((BITVEC)(x < LOWEST), zero + LOWEST, x);
  const VEC rounded = x * LOG2_E + ROUNDER;
  const VEC n = rounded - ROUNDER;
  const VEC r = (x - n * LN2_HIGH) - n * LN2_LOW;
  VEC p = zero + polynomial[0];
  UNROLL
  for (size_t i = 1; i < sizeof polynomial / sizeof *polynomial; i++) p = p * r + polynomial[i];
  p = p * (r * r) + r; /* exp(r) - 1 */
  const VEC power = (VEC)(((BITVEC)rounded << FRACTION_BITS) + EXPONENT_OF_ONE); /* 2^n */
  const struct NAME(elu) result = {positive + (power * p + (power - 1)),
                                   NAME(select)(negative, power * p + power, zero + 1)};
  return result;
}

/* Rows of numbers, one per lane, to vectors: out[t][l] = in[l·stride + t]. */
INLINE void NAME(transpose_tile)(VEC *out, const REAL *in, int64_t stride) {
#if defined(__clang__)
  for (int t = 0; t < LANES; t++)
    for (int l = 0; l < LANES; l++) out[t][l] = in[l * stride + t];
#else
  static const BITVEC low = ZIP_LOW, high = ZIP_HIGH;
  VEC a[LANES], b[LANES];
  UNROLL
  for (int l = 0; l < LANES; l++) memcpy(&a[l], in + l * stride, sizeof a[l]);
  UNROLL
  for (int stage = 1; stage < LANES; stage *= 2) {
    UNROLL
    for (int i = 0; i < LANES / 2; i++) {
      b[2 * i] = __builtin_shuffle(a[i], a[i + LANES / 2], low);
      b[2 * i + 1] = __builtin_shuffle(a[i], a[i + LANES / 2], high);
    }
    UNROLL
    for (int i = 0; i < LANES; i++) a[i] = b[i];
  }
  UNROLL
  for (int l = 0; l < LANES; l++) out[l] = a[l];
#endif
}

LOCAL void NAME(transpose)(VEC *out, const REAL *in, int64_t stride, int64_t n, int valid) {
  int64_t t = 0;
  if (valid == LANES)
    for (; t + LANES <= n; t += LANES) NAME(transpose_tile)(out + t, in + t, stride);
  for (; t < n; t++) {
    VEC v = {0};
    for (int l = 0; l < valid; l++) v[l] = in[l * stride + t];
    out[t] = v;
  }
}

LOCAL void NAME(read_signal)(const struct call *call, const struct sizes *z,
                             const struct NAME(block) *b) {
  const int64_t window = z->channels * z->samples;
  const REAL *signal = (const REAL *)call->array[SIGNAL].address + b->first * window;
  NAME(transpose)(b->x, signal, window, window, b->valid);
}

/* out[o] = Σ_c weight[o, c]·in[c] for a tile of outputs and times. */
INLINE void NAME(mix_tile)(VEC *out, int64_t out_row, const REAL *weight, const VEC *in,
                           int64_t in_row, int64_t inputs, const int outputs, const int times) {
  VEC sum[4][3];
  UNROLL
  for (int i = 0; i < outputs; i++)
    UNROLL
    for (int j = 0; j < times; j++) sum[i][j] = (VEC){0};
  for (int64_t c = 0; c < inputs; c++) {
    VEC from[3];
    UNROLL
    for (int j = 0; j < times; j++) from[j] = in[c * in_row + j];
    UNROLL
    for (int i = 0; i < outputs; i++) {
      const REAL w = weight[i * inputs + c];
      UNROLL
      for (int j = 0; j < times; j++) sum[i][j] += w * from[j];
    }
  }
  UNROLL
  for (int i = 0; i < outputs; i++)
    UNROLL
    for (int j = 0; j < times; j++) out[i * out_row + j] = sum[i][j];
}

/* out (outputs, n) = weight (outputs, inputs) · in (inputs, n) */
LOCAL void NAME(mix)(VEC *out, int64_t out_row, const REAL *weight, const VEC *in, int64_t in_row,
                     int64_t outputs, int64_t inputs, int64_t n) {
  for (int64_t t = 0; t < n;) {
    const int times = n - t >= 3 ? 3 : 1;
    for (int64_t o = 0; o < outputs;) {
      const int count = outputs - o >= 4 ? 4 : 1;
      VEC *to = out + o * out_row + t;
      const REAL *w = weight + o * inputs;
      if (count == 4 && times == 3) NAME(mix_tile)(to, out_row, w, in + t, in_row, inputs, 4, 3);
      else if (count == 4) NAME(mix_tile)(to, out_row, w, in + t, in_row, inputs, 4, 1);
      else if (times == 3) NAME(mix_tile)(to, out_row, w, in + t, in_row, inputs, 1, 3);
      else NAME(mix_tile)(to, out_row, w, in + t, in_row, inputs, 1, 1);
      o += count;
    }
    t += times;
  }
}

INLINE void NAME(outer_tile)(double *sums, int64_t columns, const VEC *a, int64_t a_row,
                             const VEC *b, int64_t b_row, int64_t n, int valid, const int rows,
                             const int width) {
  VEC sum[4][3];
  UNROLL
  for (int i = 0; i < rows; i++)
    UNROLL
    for (int j = 0; j < width; j++) sum[i][j] = (VEC){0};
  for (int64_t t = 0; t < n; t++) {
    VEC from[3];
    UNROLL
    for (int j = 0; j < width; j++) from[j] = b[j * b_row + t];
    UNROLL
    for (int i = 0; i < rows; i++)
      UNROLL
      for (int j = 0; j < width; j++) sum[i][j] += a[i * a_row + t] * from[j];
  }
  for (int i = 0; i < rows; i++)
    for (int j = 0; j < width; j++) sums[i * columns + j] += NAME(lane_sum)(sum[i][j], valid);
}

/* sums (rows, columns) += a (rows, n) · b (columns, n)ᵀ, over the lanes that are windows */
LOCAL void NAME(outer)(double *sums, const VEC *a, int64_t a_row, const VEC *b, int64_t b_row,
                       int64_t rows, int64_t columns, int64_t n, int valid) {
  for (int64_t i = 0; i < rows;) {
    const int height = rows - i >= 4 ? 4 : 1;
    for (int64_t j = 0; j < columns;) {
      const int width = columns - j >= 3 ? 3 : 1;
      double *to = sums + i * columns + j;
      const VEC *x = a + i * a_row, *y = b + j * b_row;
      if (height == 4 && width == 3)
        NAME(outer_tile)(to, columns, x, a_row, y, b_row, n, valid, 4, 3);
      else if (height == 4) NAME(outer_tile)(to, columns, x, a_row, y, b_row, n, valid, 4, 1);
      else if (width == 3) NAME(outer_tile)(to, columns, x, a_row, y, b_row, n, valid, 1, 3);
      else NAME(outer_tile)(to, columns, x, a_row, y, b_row, n, valid, 1, 1);
      j += width;
    }
    i += height;
  }
}

/* Filter `count` outputs from `t` on. Taps that meet only zeros beyond the margins are left out. */
INLINE void NAME(filter_tile)(VEC *out, const VEC *in, const REAL *filter, int64_t taps,
                              int64_t left, int64_t n, int64_t t, REAL shift, const int count) {
  const int64_t first = LARGER(0, left - t - (count - 1)), last = SMALLER(taps, n + left - t);
  VEC sum[TILE];
  UNROLL
  for (int i = 0; i < count; i++) sum[i] = (VEC){0} + shift;
  for (int64_t k = first; k < last; k++) {
    const REAL w = filter[k];
    const VEC *from = in + (t + k - left);
    UNROLL
    for (int i = 0; i < count; i++) sum[i] += w * from[i];
  }
  UNROLL
  for (int i = 0; i < count; i++) out[t + i] = sum[i];
}

/* out[t] = shift + Σ_k filter[k]·in[t + k - left]; `in` has margins. */
LOCAL void NAME(filter_row)(VEC *out, const VEC *in, const REAL *filter, int64_t taps, int64_t left,
                            int64_t n, REAL shift) {
  int64_t t = 0;
  for (; t + TILE <= n; t += TILE)
    NAME(filter_tile)(out, in, filter, taps, left, n, t, shift, TILE);
  if (t < n && n >= TILE) /* the last tile overlaps the one before it */
    NAME(filter_tile)(out, in, filter, taps, left, n, n - TILE, shift, TILE);
  else
    for (; t < n; t++) NAME(filter_tile)(out, in, filter, taps, left, n, t, shift, 1);
}

/* sums[k] += Σ_t a[t]·b[t + k - left] for `taps` k, rounded up to whole tiles; `b` has margins. */
LOCAL void NAME(correlate)(VEC *sums, const VEC *a, const VEC *b, int64_t taps, int64_t left,
                           int64_t n) {
  for (int64_t k = 0; k < taps; k += TILE) {
    const int64_t first = LARGER(0, left - k - (TILE - 1)), last = SMALLER(n, n + left - k);
    VEC sum[TILE];
    UNROLL
    for (int i = 0; i < TILE; i++) sum[i] = sums[k + i];
    for (int64_t t = first; t < last; t++) {
      const VEC at = a[t];
      const VEC *from = b + (t + k - left);
      UNROLL
      for (int i = 0; i < TILE; i++) sum[i] += at * from[i];
    }
    UNROLL
    for (int i = 0; i < TILE; i++) sums[k + i] = sum[i];
  }
}

LOCAL void NAME(clear)(VEC *v, int64_t n) { memset(v, 0, (size_t)n * sizeof *v); }

/* Set the margins of rows to zero; `rows` is where the first row's numbers begin. */
LOCAL void NAME(clear_margins)(VEC *rows, int64_t count, int64_t n) {
  const int64_t row = n + 2 * MARGIN;
  for (int64_t i = 0; i < count; i++) {
    NAME(clear)(rows + i * row - MARGIN, MARGIN);
    NAME(clear)(rows + i * row + n, MARGIN);
  }
}

/* --------------------------------------------------------------------- norm, ELU, pool, dropout */

/* Sum and sum of squared deviations from the mean of a row. */
LOCAL void NAME(row_statistics)(const VEC *row, int64_t n, int valid, double *result) {
  VEC sum = {0}, square = {0};
  for (int64_t t = 0; t < n; t++) sum += row[t];
  const VEC mean = sum / (REAL)n;
  for (int64_t t = 0; t < n; t++) {
    const VEC centred = row[t] - mean;
    square += centred * centred;
  }
  const double total = NAME(lane_sum)(sum, valid), centre = total / ((double)n * valid);
  double squares = NAME(lane_sum)(square, valid);
  for (int l = 0; l < valid; l++) {
    const double offset = (double)mean[l] - centre;
    squares += (double)n * offset * offset;
  }
  result[0] = total;
  result[1] = squares;
}

/* Mean and variance of every map from the rows' (blocks, maps, 2). */
static void NAME(merge_statistics)(const struct sizes *z, const double *rows, int64_t maps,
                                   int64_t n, double *mean, double *variance) {
  const int64_t blocks = NAME(blocks)(z);
  const double count = (double)(z->batch * n);
  for (int64_t m = 0; m < maps; m++) {
    double total = 0.0, squares = 0.0;
    for (int64_t b = 0; b < blocks; b++) total += rows[2 * (b * maps + m)];
    const double centre = total / count;
    for (int64_t b = 0; b < blocks; b++) {
      const double elements = (double)(SMALLER(z->batch - b * LANES, LANES) * n);
      const double offset = rows[2 * (b * maps + m)] / elements - centre;
      squares += rows[2 * (b * maps + m) + 1] + elements * offset * offset;
    }
    mean[m] = centre;
    variance[m] = squares / count;
  }
}

/* Batch norm as factor·v + offset. */
struct NAME(affine) {
  REAL *factor, *offset;
};

static struct NAME(affine) NAME(take_affine)(struct arena *arena, int64_t count) {
  struct NAME(affine) a;
  a.factor = take(arena, count * (int64_t)sizeof(REAL));
  a.offset = take(arena, count * (int64_t)sizeof(REAL));
  return a;
}

static double NAME(number)(const struct call *call, int array, int64_t i) {
  return (double)((const REAL *)call->array[array].address)[i];
}

static void NAME(set_affine)(const struct call *call, struct statistics s, int norm, int64_t count,
                             struct NAME(affine) to) {
  const int scale = norm == 1 ? SCALE_2 : SCALE_3;
  for (int64_t i = 0; i < count; i++) {
    const double factor =
        NAME(number)(call, scale, i) / sqrt(s.variance[norm][i] + call->eps[norm]);
    to.factor[i] = (REAL)factor;
    to.offset[i] = (REAL)(NAME(number)(call, scale + 1, i) - factor * s.mean[norm][i]);
  }
}

/* What dropout multiplies the lanes with; `keep` is the mask of lane 0, NULL without dropout. */
INLINE VEC NAME(kept)(const uint8_t *keep, int64_t window, int valid, REAL factor) {
  REAL lanes[LANES] = {0};
  for (int l = 0; l < valid; l++) lanes[l] = keep[l * window] ? factor : (REAL)0;
  VEC v;
  memcpy(&v, lanes, sizeof v);
  return v;
}

/* Norm, ELU, mean pool and dropout of one map. */
LOCAL void NAME(activate)(VEC *out, const VEC *in, int64_t pooled, int64_t pool, REAL factor,
                          REAL offset, const uint8_t *keep, int64_t window, int valid,
                          REAL keep_factor) {
  const REAL share = (REAL)1 / (REAL)pool;
  for (int64_t t = 0; t < pooled; t++) {
    VEC sum = {0};
    for (int64_t j = 0; j < pool; j++) sum += NAME(elu)(in[t * pool + j] * factor + offset).value;
    sum *= share;
    if (keep) sum *= NAME(kept)(keep + t, window, valid, keep_factor);
    out[t] = sum;
  }
}

/* The gradient of `activate` before the norm, from `grad` (pooled); Σ g and Σ g·(in - mean). */
LOCAL void NAME(activate_backward)(VEC *out, const VEC *in, const VEC *grad, int64_t n,
                                   int64_t pooled, int64_t pool, REAL factor, REAL offset,
                                   REAL mean, const uint8_t *keep, int64_t window, int valid,
                                   REAL keep_factor, double *sums) {
  const REAL share = (REAL)1 / (REAL)pool;
  VEC sum = {0}, product = {0};
  for (int64_t t = 0; t < pooled; t++) {
    VEC from = grad[t] * share;
    if (keep) from *= NAME(kept)(keep + t, window, valid, keep_factor);
    for (int64_t j = t * pool; j < (t + 1) * pool; j++) {
      const VEC g = from * NAME(elu)(in[j] * factor + offset).slope;
      out[j] = g;
      sum += g;
      product += g * (in[j] - mean);
    }
  }
  NAME(clear)(out + pooled * pool, n - pooled * pool);
  sums[0] += NAME(lane_sum)(sum, valid);
  sums[1] += NAME(lane_sum)(product, valid);
}

/* The gradient of batch norm: factor·(g - shift - slope·(in - mean)). */
struct NAME(norm_gradient) {
  REAL *factor, *shift, *slope, *mean;
};

static struct NAME(norm_gradient) NAME(take_gradient)(struct arena *arena, int64_t count) {
  struct NAME(norm_gradient) g;
  REAL **parts[] = {&g.factor, &g.shift, &g.slope, &g.mean};
  for (int i = 0; i < 4; i++) *parts[i] = take(arena, count * (int64_t)sizeof(REAL));
  return g;
}

/* Write the gradients of a norm's parameters, and the coefficients of that of its input. */
static void NAME(set_gradient)(const struct call *call, const struct sizes *z, struct statistics s,
                               int norm, int64_t count, int64_t n, const double *sums,
                               struct NAME(norm_gradient) to) {
  const int scale = norm == 1 ? SCALE_2 : SCALE_3;
  const double elements = (double)(z->batch * n);
  REAL *grad_scale = call->array[GRADS + scale - TEMPORAL].address;
  REAL *grad_shift = call->array[GRADS + scale + 1 - TEMPORAL].address;
  for (int64_t i = 0; i < count; i++) {
    const double inverse = 1.0 / sqrt(s.variance[norm][i] + call->eps[norm]);
    grad_shift[i] = (REAL)sums[2 * i];
    grad_scale[i] = (REAL)(sums[2 * i + 1] * inverse);
    to.factor[i] = (REAL)(NAME(number)(call, scale, i) * inverse);
    to.shift[i] = (REAL)(sums[2 * i] / elements);
    to.slope[i] = (REAL)(sums[2 * i + 1] * inverse * inverse / elements);
    to.mean[i] = (REAL)s.mean[norm][i];
  }
}

LOCAL void NAME(norm_backward)(VEC *out, const VEC *grad, const VEC *in, int64_t n, REAL factor,
                               REAL shift, REAL slope, REAL mean) {
  for (int64_t t = 0; t < n; t++) out[t] = (grad[t] - shift - (in[t] - mean) * slope) * factor;
}

/* ---------------------------------------------------------------------------- signal moments */

struct NAME(moments_job) {
  const struct call *call;
  const struct sizes *z;
  double pivot;
  VEC *rows[SLOTS], *lags[SLOTS], *start[SLOTS], *end[SLOTS], *profile[SLOTS], *levelled[SLOTS];
  double *sums[SLOTS], *total, *work;
};

static int64_t NAME(plan_moments)(const struct sizes *z, struct NAME(moments_job) *job,
                                  char *scratch) {
  struct arena arena = {scratch, 0};
  const int64_t vector = sizeof(VEC), ends = z->right * (z->right + 1) / 2;
  for (int64_t s = 0; s < NAME(slots)(z); s++) {
    job->rows[s] = take(&arena, GROUP * z->row * vector);
    job->lags[s] = take(&arena, TAPS(z->kernel) * vector);
    job->start[s] = take(&arena, ends * vector);
    job->end[s] = take(&arena, ends * vector);
    job->profile[s] = take(&arena, z->samples * vector);
    job->levelled[s] = take(&arena, z->samples * vector);
    job->sums[s] = take(&arena, row_sums_count(z) * (int64_t)sizeof(double));
  }
  job->total = take(&arena, row_sums_count(z) * (int64_t)sizeof(double));
  job->work = take(&arena, (3 * (z->samples + 1) + 4 * z->kernel) * (int64_t)sizeof(double));
  return arena.taken;
}

/* The products x[i]·x[j] for i <= j < n of `GROUP` rows; a step of -1 reads rows from their end. */
INLINE void NAME(add_products)(VEC *sums, const VEC *rows, int64_t row, int64_t n,
                               const int64_t step) {
  for (int64_t i = 0; i < n; i++) {
    VEC at[GROUP];
    UNROLL
    for (int g = 0; g < GROUP; g++) at[g] = rows[g * row + step * i];
    for (int64_t j = i; j < n; j++) {
      VEC sum = *sums;
      UNROLL
      for (int g = 0; g < GROUP; g++) sum += at[g] * rows[g * row + step * j];
      *sums++ = sum;
    }
  }
}

/* Add the products of a block, packed row by row, to a full matrix. */
LOCAL void NAME(unpack)(double *to, const VEC *from, int64_t n, int valid) {
  for (int64_t i = 0; i < n; i++)
    for (int64_t j = i; j < n; j++) to[i * n + j] += NAME(lane_sum)(*from++, valid);
}

LOCAL void NAME(moments_slot)(const void *data, int64_t slot) {
  const struct NAME(moments_job) *job = data;
  const struct sizes *z = job->z;
  const int64_t ends = z->right * (z->right + 1) / 2, n = z->samples;
  VEC *rows = job->rows[slot] + MARGIN, *profile = job->profile[slot];
  VEC *levelled = job->levelled[slot];
  struct row_sums sums = row_sums_at(z, job->sums[slot]);
  memset(job->sums[slot], 0, (size_t)row_sums_count(z) * sizeof(double));
  NAME(clear_margins)(rows, GROUP, n);
  EACH_BLOCK(index, slot, z) {
    const struct NAME(block) b = NAME(saved_block)(job->call, z, index);
    NAME(read_signal)(job->call, z, &b);
    NAME(clear)(job->lags[slot], TAPS(z->kernel));
    NAME(clear)(job->start[slot], ends);
    NAME(clear)(job->end[slot], ends);
    NAME(clear)(profile, n);
    NAME(clear)(levelled, n);
    for (int64_t first = 0; first < z->channels; first += GROUP) {
      for (int g = 0; g < GROUP; g++) {
        VEC *row = rows + g * z->row;
        if (first + g >= z->channels) {
          NAME(clear)(row, n);
          continue;
        }
        const VEC *x = b.x + (first + g) * n;
        VEC total = {0};
        for (int64_t t = 0; t < n; t++) total += x[t] - (REAL)job->pivot;
        const VEC above = total / (REAL)n; /* the level less the pivot */
        for (int l = 0; l < b.valid; l++) {
          sums.level[0] += (double)above[l];
          sums.level[1] += (double)above[l] * (double)above[l];
        }
        for (int64_t t = 0; t < n; t++) {
          const VEC centred = (x[t] - (REAL)job->pivot) - above;
          row[t] = centred;
          profile[t] += centred;
          levelled[t] += centred * above;
        }
        NAME(correlate)(job->lags[slot], row, row, z->kernel, 0, n);
      }
      NAME(add_products)(job->start[slot], rows, z->row, z->right, 1);
      NAME(add_products)(job->end[slot], rows + n - 1, z->row, z->right, -1);
    }
    for (int64_t k = 0; k < z->kernel; k++)
      sums.lags[k] += NAME(lane_sum)(job->lags[slot][k], b.valid);
    NAME(unpack)(sums.start, job->start[slot], z->right, b.valid);
    NAME(unpack)(sums.end, job->end[slot], z->right, b.valid);
    for (int64_t t = 0; t < n; t++) {
      sums.profile[t] += NAME(lane_sum)(profile[t], b.valid);
      sums.levelled[t] += NAME(lane_sum)(levelled[t], b.valid);
    }
  }
}

/* The lanes beyond the batch are zeros, whose centred rows are -pivot - above: `valid` leaves them
 * out of every sum. */
LOCAL void NAME(reduce_signal)(const struct call *call, const struct sizes *z) {
  struct NAME(moments_job) job = {.call = call, .z = z};
  NAME(plan_moments)(z, &job, call->array[SCRATCH].address);
  const REAL *signal = call->array[SIGNAL].address;
  double first = 0.0;
  for (int64_t t = 0; t < z->samples; t++) first += (double)signal[t];
  job.pivot = (double)(REAL)(first / (double)z->samples);
  run_pass(call, NAME(moments_slot), &job, NAME(slots)(z));
  const int64_t count = row_sums_count(z);
  memset(job.total, 0, (size_t)count * sizeof(double));
  for (int64_t s = 0; s < NAME(slots)(z); s++)
    for (int64_t i = 0; i < count; i++) job.total[i] += job.sums[s][i];
  moments_of(z, row_sums_at(z, job.total), job.pivot, call->array[MOMENTS].address, job.work);
}

/* -------------------------------------------------------------------------------- the forward */

struct NAME(forward_job) {
  const struct call *call;
  const struct sizes *z;
  REAL *filter, *shift; /* the temporal filters with their norm's factor; what it adds to a map */
  struct NAME(affine) norm, second_norm;
  double *rows, *second_rows, *wide; /* (blocks, maps, 2), (blocks, outputs, 2), (kernel) */
  VEC *block[SLOTS];                 /* in evaluation, one block per slot */
};

static int64_t NAME(plan_forward)(const struct sizes *z, struct NAME(forward_job) *job,
                                  char *scratch, int evaluates) {
  struct arena arena = {scratch, 0};
  const int64_t real = sizeof(REAL), pair = 2 * sizeof(double), blocks = NAME(blocks)(z);
  job->filter = take(&arena, z->filters * z->kernel * real);
  job->shift = take(&arena, z->maps * real);
  job->norm = NAME(take_affine)(&arena, z->maps);
  job->second_norm = NAME(take_affine)(&arena, z->outputs);
  job->wide = take(&arena, z->kernel * (int64_t)sizeof(double));
  if (evaluates) {
    for (int64_t s = 0; s < NAME(slots)(z); s++)
      job->block[s] = take(&arena, NAME(block_vectors)(z) * (int64_t)sizeof(VEC));
  } else {
    job->rows = take(&arena, blocks * z->maps * pair);
    job->second_rows = take(&arena, blocks * z->outputs * pair);
  }
  return arena.taken;
}

/* Fold the first norm into the temporal filters and a constant per map. */
static void NAME(fold_norm)(const struct call *call, const struct sizes *z, struct statistics s,
                            REAL *filter, REAL *shift) {
  for (int64_t f = 0; f < z->filters; f++) {
    const double factor = NAME(number)(call, SCALE_1, f) / sqrt(s.variance[0][f] + call->eps[0]);
    const double constant = NAME(number)(call, SHIFT_1, f) - factor * s.mean[0][f];
    for (int64_t k = f * z->kernel; k < (f + 1) * z->kernel; k++)
      filter[k] = (REAL)(factor * NAME(number)(call, TEMPORAL, k));
    for (int64_t m = f * z->depth; m < (f + 1) * z->depth; m++) {
      double sum = 0.0;
      for (int64_t c = 0; c < z->channels; c++)
        sum += NAME(number)(call, SPATIAL, m * z->channels + c);
      shift[m] = (REAL)(constant * sum);
    }
  }
}

/* The signal to y: spatial mixing and temporal filters. */
LOCAL void NAME(filter_block)(const struct NAME(forward_job) *job, const struct NAME(block) *b) {
  const struct sizes *z = job->z;
  const REAL *spatial = job->call->array[SPATIAL].address;
  VEC *mixed = b->z + MARGIN;
  NAME(clear_margins)(mixed, z->maps, z->samples);
  NAME(mix)(mixed, z->row, spatial, b->x, z->samples, z->maps, z->channels, z->samples);
  for (int64_t m = 0; m < z->maps; m++)
    NAME(filter_row)(b->y + m * z->samples, mixed + m * z->row,
                     job->filter + m / z->depth * z->kernel, z->kernel, z->left, z->samples,
                     job->shift[m]);
}

/* y to q: norm, ELU, pool, dropout and the separable filter. */
LOCAL void NAME(separate_block)(const struct NAME(forward_job) *job,
                                const struct NAME(block) *b) {
  const struct call *call = job->call;
  const struct sizes *z = job->z;
  const int64_t window = z->group_maps * z->pooled;
  const uint8_t *keep = call->array[KEEP_1].address;
  const REAL *pointwise = call->array[POINTWISE].address;
  const REAL *depthwise = call->array[DEPTHWISE].address;
  NAME(clear_margins)(b->p + MARGIN, z->maps, z->pooled);
  for (int64_t m = 0; m < z->maps; m++) {
    VEC *pooled = b->p + MARGIN + m * z->pooled_row;
    NAME(activate)(pooled, b->y + m * z->samples, z->pooled, z->pool, job->norm.factor[m],
                   job->norm.offset[m],
                   keep ? keep + b->first * window + m % z->group_maps * z->pooled : NULL, window,
                   b->valid, (REAL)call->keep_factor);
    NAME(filter_row)(b->d + m * z->pooled, pooled, depthwise + m * z->second_kernel,
                     z->second_kernel, z->second_left, z->pooled, 0);
  }
  for (int64_t g = 0; g < z->groups; g++)
    NAME(mix)(b->q + g * z->group_outputs * z->pooled, z->pooled,
              pointwise + g * z->group_outputs * z->group_maps,
              b->d + g * z->group_maps * z->pooled, z->pooled, z->group_outputs, z->group_maps,
              z->pooled);
}

/* q to features: norm, ELU, pool and dropout. */
LOCAL void NAME(write_features)(const struct NAME(forward_job) *job, const struct NAME(block) *b) {
  const struct call *call = job->call;
  const struct sizes *z = job->z;
  const int64_t n = z->second_pooled, window = z->outputs * n;
  const int64_t group = z->group_outputs * n;
  const uint8_t *keep = call->array[KEEP_2].address;
  REAL *features = (REAL *)call->array[FEATURES].address + b->first * window;
  for (int64_t o = 0; o < z->outputs; o++)
    for (int64_t t = 0; t < n; t++) {
      const int64_t at = o * n + t;
      VEC pooled;
      NAME(activate)(&pooled, b->q + o * z->pooled + t * z->second_pool, 1, z->second_pool,
                     job->second_norm.factor[o], job->second_norm.offset[o],
                     keep ? keep + b->first * group + at % group : NULL, group, b->valid,
                     (REAL)call->keep_factor);
      for (int l = 0; l < b->valid; l++) features[l * window + at] = pooled[l];
    }
}

LOCAL void NAME(filter_slot)(const void *data, int64_t slot) {
  const struct NAME(forward_job) *job = data;
  const struct sizes *z = job->z;
  EACH_BLOCK(index, slot, z) {
    const struct NAME(block) b = NAME(saved_block)(job->call, z, index);
    NAME(filter_block)(job, &b);
    for (int64_t m = 0; m < z->maps; m++)
      NAME(row_statistics)(b.y + m * z->samples, z->samples, b.valid,
                           job->rows + 2 * (index * z->maps + m));
  }
}

LOCAL void NAME(separate_slot)(const void *data, int64_t slot) {
  const struct NAME(forward_job) *job = data;
  const struct sizes *z = job->z;
  EACH_BLOCK(index, slot, z) {
    const struct NAME(block) b = NAME(saved_block)(job->call, z, index);
    NAME(separate_block)(job, &b);
    for (int64_t o = 0; o < z->outputs; o++)
      NAME(row_statistics)(b.q + o * z->pooled, z->pooled, b.valid,
                           job->second_rows + 2 * (index * z->outputs + o));
  }
}

LOCAL void NAME(features_slot)(const void *data, int64_t slot) {
  const struct NAME(forward_job) *job = data;
  EACH_BLOCK(index, slot, job->z) {
    const struct NAME(block) b = NAME(saved_block)(job->call, job->z, index);
    NAME(write_features)(job, &b);
  }
}

LOCAL void NAME(forward)(const struct call *call, const struct sizes *z) {
  struct NAME(forward_job) job = {.call = call, .z = z};
  const struct statistics s = statistics_at(z, call->array[STATISTICS].address, 0);
  const int64_t slots = NAME(slots)(z);
  NAME(reduce_signal)(call, z);
  NAME(plan_forward)(z, &job, call->array[SCRATCH].address, 0);
  for (int64_t f = 0; f < z->filters; f++) {
    for (int64_t k = 0; k < z->kernel; k++)
      job.wide[k] = NAME(number)(call, TEMPORAL, f * z->kernel + k);
    filtered_statistics(z, call->array[MOMENTS].address, job.wide, f, s);
  }
  NAME(fold_norm)(call, z, s, job.filter, job.shift);
  run_pass(call, NAME(filter_slot), &job, slots);
  NAME(merge_statistics)(z, job.rows, z->maps, z->samples, s.mean[1], s.variance[1]);
  NAME(set_affine)(call, s, 1, z->maps, job.norm);
  run_pass(call, NAME(separate_slot), &job, slots);
  NAME(merge_statistics)(z, job.second_rows, z->outputs, z->pooled, s.mean[2], s.variance[2]);
  NAME(set_affine)(call, s, 2, z->outputs, job.second_norm);
  run_pass(call, NAME(features_slot), &job, slots);
  set_unbiased(s, 0, z->filters, z->batch * z->channels * z->samples);
  set_unbiased(s, 1, z->maps, z->batch * z->samples);
  set_unbiased(s, 2, z->outputs, z->batch * z->pooled);
}

LOCAL void NAME(evaluate_slot)(const void *data, int64_t slot) {
  const struct NAME(forward_job) *job = data;
  EACH_BLOCK(index, slot, job->z) {
    const struct NAME(block) b = NAME(block_at)(job->z, job->block[slot], index);
    NAME(read_signal)(job->call, job->z, &b);
    NAME(filter_block)(job, &b);
    NAME(separate_block)(job, &b);
    NAME(write_features)(job, &b);
  }
}

LOCAL void NAME(evaluate)(const struct call *given, const struct sizes *z) {
  struct call call = *given;
  call.array[KEEP_1].address = call.array[KEEP_2].address = NULL;
  struct NAME(forward_job) job = {.call = &call, .z = z};
  const struct statistics s = statistics_at(z, call.array[STATISTICS].address, 1);
  NAME(plan_forward)(z, &job, call.array[SCRATCH].address, 1);
  NAME(fold_norm)(&call, z, s, job.filter, job.shift);
  NAME(set_affine)(&call, s, 1, z->maps, job.norm);
  NAME(set_affine)(&call, s, 2, z->outputs, job.second_norm);
  run_pass(&call, NAME(evaluate_slot), &job, NAME(slots)(z));
}

/* ------------------------------------------------------------------------------- the backward */

/* Sums over the batch of one slot. */
struct NAME(sums) {
  double *norm, *second_norm;     /* (maps, 2), (outputs, 2): Σ g, Σ g·(input - mean) */
  double *temporal, *spatial;     /* (filters, kernel) with the norm's factor, (maps, channels) */
  double *depthwise, *pointwise;  /* (maps, second kernel), (outputs, maps / groups) */
};

struct NAME(backward_job) {
  const struct call *call;
  const struct sizes *z;
  REAL *filter, *reversed, *shift;     /* (filters, kernel) twice; (maps) */
  REAL *depthwise, *pointwise;         /* reversed; transposed (group: maps, outputs) */
  struct NAME(affine) norm, second_norm;
  struct NAME(norm_gradient) norm_grad, second_norm_grad;
  VEC *grad_y, *grad_q;                /* (blocks, maps, samples), (blocks, outputs, pooled) */
  VEC *row[SLOTS], *short_rows[SLOTS]; /* (row), (maps, pooled_row), with margins */
  VEC *mixed[SLOTS], *taps[SLOTS];     /* (maps, samples), (longer kernel) */
  double *memory[SLOTS];
  struct NAME(sums) sums[SLOTS];
};

static int64_t NAME(sums_count)(const struct sizes *z) {
  return 2 * (z->maps + z->outputs) + z->filters * z->kernel + z->maps * z->channels +
         z->maps * z->second_kernel + z->outputs * z->group_maps;
}

static struct NAME(sums) NAME(sums_at)(const struct sizes *z, double *at) {
  struct NAME(sums) s;
  s.norm = at;
  s.second_norm = s.norm + 2 * z->maps;
  s.temporal = s.second_norm + 2 * z->outputs;
  s.spatial = s.temporal + z->filters * z->kernel;
  s.depthwise = s.spatial + z->maps * z->channels;
  s.pointwise = s.depthwise + z->maps * z->second_kernel;
  return s;
}

static int64_t NAME(plan_backward)(const struct sizes *z, struct NAME(backward_job) *job,
                                   char *scratch) {
  struct arena arena = {scratch, 0};
  const int64_t real = sizeof(REAL), vector = sizeof(VEC), blocks = NAME(blocks)(z);
  const int64_t longer = LARGER(z->kernel, z->second_kernel);
  job->filter = take(&arena, z->filters * z->kernel * real);
  job->reversed = take(&arena, z->filters * z->kernel * real);
  job->shift = take(&arena, z->maps * real);
  job->depthwise = take(&arena, z->maps * z->second_kernel * real);
  job->pointwise = take(&arena, z->group_maps * z->outputs * real);
  job->norm = NAME(take_affine)(&arena, z->maps);
  job->second_norm = NAME(take_affine)(&arena, z->outputs);
  job->norm_grad = NAME(take_gradient)(&arena, z->maps);
  job->second_norm_grad = NAME(take_gradient)(&arena, z->outputs);
  job->grad_y = take(&arena, blocks * z->maps * z->samples * vector);
  job->grad_q = take(&arena, blocks * z->outputs * z->pooled * vector);
  for (int64_t s = 0; s < NAME(slots)(z); s++) {
    job->row[s] = take(&arena, z->row * vector);
    job->short_rows[s] = take(&arena, z->maps * z->pooled_row * vector);
    job->mixed[s] = take(&arena, z->maps * z->samples * vector);
    job->taps[s] = take(&arena, TAPS(longer) * vector);
    job->memory[s] = take(&arena, NAME(sums_count)(z) * (int64_t)sizeof(double));
    if (scratch) job->sums[s] = NAME(sums_at)(z, job->memory[s]);
  }
  return arena.taken;
}

/* Features to the input of the second norm. */
LOCAL void NAME(features_backward_slot)(const void *data, int64_t slot) {
  const struct NAME(backward_job) *job = data;
  const struct call *call = job->call;
  const struct sizes *z = job->z;
  const struct statistics s = statistics_at(z, call->array[STATISTICS].address, 0);
  const int64_t n = z->second_pooled, window = z->outputs * n, group = z->group_outputs * n;
  const uint8_t *keep = call->array[KEEP_2].address;
  memset(job->memory[slot], 0, (size_t)NAME(sums_count)(z) * sizeof(double));
  EACH_BLOCK(index, slot, z) {
    const struct NAME(block) b = NAME(saved_block)(call, z, index);
    const REAL *grad = (const REAL *)call->array[GRAD_FEATURES].address + b.first * window;
    for (int64_t o = 0; o < z->outputs; o++) {
      VEC *row = job->row[slot];
      NAME(transpose)(row, grad + o * n, window, n, b.valid);
      NAME(activate_backward)(job->grad_q + (index * z->outputs + o) * z->pooled,
                              b.q + o * z->pooled, row, z->pooled, n, z->second_pool,
                              job->second_norm.factor[o], job->second_norm.offset[o],
                              (REAL)s.mean[2][o],
                              keep ? keep + b.first * group + o * n % group : NULL, group, b.valid,
                              (REAL)call->keep_factor, job->sums[slot].second_norm + 2 * o);
    }
  }
}

/* From the input of the second norm to that of the first ELU. */
LOCAL void NAME(separate_backward_slot)(const void *data, int64_t slot) {
  const struct NAME(backward_job) *job = data;
  const struct call *call = job->call;
  const struct sizes *z = job->z;
  const struct statistics s = statistics_at(z, call->array[STATISTICS].address, 0);
  const struct NAME(norm_gradient) norm = job->second_norm_grad;
  const struct NAME(sums) sums = job->sums[slot];
  const int64_t window = z->group_maps * z->pooled;
  const int64_t inputs = z->group_maps, outputs = z->group_outputs;
  const uint8_t *keep = call->array[KEEP_1].address;
  VEC *rows = job->short_rows[slot] + MARGIN, *taps = job->taps[slot];
  NAME(clear_margins)(rows, z->maps, z->pooled);
  EACH_BLOCK(index, slot, z) {
    const struct NAME(block) b = NAME(saved_block)(call, z, index);
    VEC *grad = job->grad_q + index * z->outputs * z->pooled;
    for (int64_t o = 0; o < z->outputs; o++) {
      VEC *row = grad + o * z->pooled;
      NAME(norm_backward)(row, row, b.q + o * z->pooled, z->pooled, norm.factor[o], norm.shift[o],
                          norm.slope[o], norm.mean[o]);
    }
    for (int64_t g = 0; g < z->groups; g++) {
      const VEC *from = grad + g * outputs * z->pooled;
      NAME(outer)(sums.pointwise + g * outputs * inputs, from, z->pooled,
                  b.d + g * inputs * z->pooled, z->pooled, outputs, inputs, z->pooled, b.valid);
      NAME(mix)(rows + g * inputs * z->pooled_row, z->pooled_row,
                job->pointwise + g * inputs * outputs, from, z->pooled, inputs, outputs, z->pooled);
    }
    for (int64_t m = 0; m < z->maps; m++) {
      const VEC *row = rows + m * z->pooled_row;
      VEC *pooled = job->row[slot];
      NAME(clear)(taps, TAPS(z->second_kernel));
      NAME(correlate)(taps, row, b.p + MARGIN + m * z->pooled_row, z->second_kernel,
                      z->second_left, z->pooled);
      for (int64_t k = 0; k < z->second_kernel; k++)
        sums.depthwise[m * z->second_kernel + k] += NAME(lane_sum)(taps[k], b.valid);
      NAME(filter_row)(pooled, row, job->depthwise + m * z->second_kernel, z->second_kernel,
                       z->second_kernel - 1 - z->second_left, z->pooled, 0);
      NAME(activate_backward)(job->grad_y + (index * z->maps + m) * z->samples,
                              b.y + m * z->samples, pooled, z->samples, z->pooled, z->pool,
                              job->norm.factor[m], job->norm.offset[m], (REAL)s.mean[1][m],
                              keep ? keep + b.first * window + m % inputs * z->pooled : NULL,
                              window, b.valid, (REAL)call->keep_factor, sums.norm + 2 * m);
    }
  }
}

/* From the input of the first ELU to the temporal and spatial filters. */
LOCAL void NAME(filter_backward_slot)(const void *data, int64_t slot) {
  const struct NAME(backward_job) *job = data;
  const struct sizes *z = job->z;
  const struct NAME(norm_gradient) norm = job->norm_grad;
  const struct NAME(sums) sums = job->sums[slot];
  VEC *row = job->row[slot] + MARGIN, *mixed = job->mixed[slot], *taps = job->taps[slot];
  NAME(clear_margins)(row, 1, z->samples);
  EACH_BLOCK(index, slot, z) {
    const struct NAME(block) b = NAME(saved_block)(job->call, z, index);
    for (int64_t m = 0; m < z->maps; m++) {
      const int64_t f = m / z->depth;
      if (m % z->depth == 0) NAME(clear)(taps, TAPS(z->kernel));
      NAME(norm_backward)(row, job->grad_y + (index * z->maps + m) * z->samples,
                          b.y + m * z->samples, z->samples, norm.factor[m], norm.shift[m],
                          norm.slope[m], norm.mean[m]);
      NAME(correlate)(taps, row, b.z + MARGIN + m * z->row, z->kernel, z->left, z->samples);
      if (m % z->depth == z->depth - 1)
        for (int64_t k = 0; k < z->kernel; k++)
          sums.temporal[f * z->kernel + k] += NAME(lane_sum)(taps[k], b.valid);
      NAME(filter_row)(mixed + m * z->samples, row, job->reversed + f * z->kernel, z->kernel,
                       z->kernel - 1 - z->left, z->samples, 0);
    }
    NAME(outer)(sums.spatial, mixed, z->samples, b.x, z->samples, z->maps, z->channels, z->samples,
                b.valid);
  }
}

/* Add `count` numbers at `first` of all slots into those of the first slot. */
static void NAME(add_slots)(const struct NAME(backward_job) *job, const double *first,
                            int64_t count) {
  const int64_t at = first - job->memory[0];
  for (int64_t s = 1; s < NAME(slots)(job->z); s++)
    for (int64_t i = at; i < at + count; i++) job->memory[0][i] += job->memory[s][i];
}

/* Through the first norm, whose statistics are functions of the temporal filters.
 *
 * The second norm removes its shift, and its scale up to epsilon (layers/cancelled_norm.py): the
 * gradient of whatever is constant over a map is 0, and that of the scale follows from the second
 * norm's sums. Computed through the maps it would be a difference of large numbers. */
static void NAME(write_gradients)(const struct NAME(backward_job) *job) {
  const struct call *call = job->call;
  const struct sizes *z = job->z;
  const struct NAME(sums) sums = job->sums[0];
  const struct statistics s = statistics_at(z, call->array[STATISTICS].address, 0);
  REAL *grads[10];
  for (int i = 0; i < 10; i++) grads[i] = call->array[GRADS + i].address;
  for (int64_t f = 0; f < z->filters; f++) {
    const double inverse = 1.0 / sqrt(s.variance[0][f] + call->eps[0]);
    const double scale = NAME(number)(call, SCALE_1, f), factor = scale * inverse;
    const double *taps = sums.temporal + f * z->kernel;
    double grad_scale = 0.0;
    for (int64_t m = f * z->depth; m < (f + 1) * z->depth; m++) {
      const double whole = s.variance[1][m] + call->eps[1];
      grad_scale += NAME(number)(call, SCALE_2, m) * sums.norm[2 * m + 1] / sqrt(whole) *
                    (call->eps[1] / whole);
    }
    grads[SHIFT_1 - TEMPORAL][f] = (REAL)(0.0 * grad_scale); /* keeps NaN */
    if (scale != 0.0) {
      grad_scale /= scale;
    } else { /* the maps are constant: no sum of theirs knows the gradient, nor does it cancel */
      grad_scale = 0.0;
      for (int64_t k = 0; k < z->kernel; k++)
        grad_scale += taps[k] * NAME(number)(call, TEMPORAL, f * z->kernel + k);
      grad_scale *= inverse;
    }
    const double grad_variance = -0.5 * grad_scale * scale * inverse * inverse;
    for (int64_t k = 0; k < z->kernel; k++)
      grads[0][f * z->kernel + k] =
          (REAL)(taps[k] * factor + 2.0 * grad_variance * s.product[f * z->kernel + k]);
    grads[SCALE_1 - TEMPORAL][f] = (REAL)grad_scale;
  }
  for (int64_t i = 0; i < z->maps * z->channels; i++)
    grads[SPATIAL - TEMPORAL][i] = (REAL)sums.spatial[i];
  for (int64_t i = 0; i < z->maps * z->second_kernel; i++)
    grads[DEPTHWISE - TEMPORAL][i] = (REAL)sums.depthwise[i];
  for (int64_t i = 0; i < z->outputs * z->group_maps; i++)
    grads[POINTWISE - TEMPORAL][i] = (REAL)sums.pointwise[i];
}

static void NAME(reverse)(REAL *to, const REAL *from, int64_t rows, int64_t n) {
  for (int64_t i = 0; i < rows; i++)
    for (int64_t k = 0; k < n; k++) to[i * n + k] = from[i * n + n - 1 - k];
}

LOCAL void NAME(backward)(const struct call *call, const struct sizes *z) {
  struct NAME(backward_job) job = {.call = call, .z = z};
  const struct statistics s = statistics_at(z, call->array[STATISTICS].address, 0);
  const int64_t slots = NAME(slots)(z);
  NAME(plan_backward)(z, &job, call->array[SCRATCH].address);
  NAME(fold_norm)(call, z, s, job.filter, job.shift);
  NAME(reverse)(job.reversed, job.filter, z->filters, z->kernel);
  NAME(reverse)(job.depthwise, call->array[DEPTHWISE].address, z->maps, z->second_kernel);
  const REAL *pointwise = call->array[POINTWISE].address;
  for (int64_t o = 0; o < z->outputs; o++)
    for (int64_t m = 0; m < z->group_maps; m++) {
      const int64_t group = o / z->group_outputs * z->group_outputs;
      job.pointwise[group * z->group_maps + m * z->group_outputs + o - group] =
          pointwise[o * z->group_maps + m];
    }
  NAME(set_affine)(call, s, 1, z->maps, job.norm);
  NAME(set_affine)(call, s, 2, z->outputs, job.second_norm);
  const struct NAME(sums) sums = job.sums[0];
  run_pass(call, NAME(features_backward_slot), &job, slots);
  NAME(add_slots)(&job, sums.second_norm, 2 * z->outputs);
  NAME(set_gradient)(call, z, s, 2, z->outputs, z->pooled, sums.second_norm, job.second_norm_grad);
  run_pass(call, NAME(separate_backward_slot), &job, slots);
  NAME(add_slots)(&job, sums.norm, 2 * z->maps);
  NAME(set_gradient)(call, z, s, 1, z->maps, z->samples, sums.norm, job.norm_grad);
  run_pass(call, NAME(filter_backward_slot), &job, slots);
  NAME(add_slots)(&job, sums.temporal, job.memory[0] + NAME(sums_count)(z) - sums.temporal);
  NAME(write_gradients)(&job);
}

static int64_t NAME(scratch_bytes)(const struct sizes *z, int which) {
  struct NAME(moments_job) moments = {0};
  struct NAME(forward_job) forward = {0};
  struct NAME(backward_job) backward = {0};
  if (which == OF_BACKWARD) return NAME(plan_backward)(z, &backward, NULL);
  const int64_t bytes = NAME(plan_forward)(z, &forward, NULL, which == OF_EVALUATION);
  if (which == OF_EVALUATION) return bytes;
  return LARGER(bytes, NAME(plan_moments)(z, &moments, NULL)); /* one after the other */
}

#undef VEC
#undef BITVEC
#undef TAPS
#undef SMALLER
#undef LARGER
#undef UNROLL
#undef EACH_BLOCK
#undef REAL
#undef BITS
#undef FRACTION_BITS
#undef EXPONENT_OF_ONE
#undef ROUNDER
#undef LOG2_E
#undef LN2_HIGH
#undef LN2_LOW
#undef LOWEST
#undef POLYNOMIAL
#undef LANES
#undef NAME
#undef ZIP_LOW
#undef ZIP_HIGH

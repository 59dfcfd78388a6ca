/* EEGNet with the spatial mixing first: the whole network up to its classifier, forward, backward
 * and in evaluation. Plain C11, no headers of Python or torch; bound by binding.py through ctypes.
 *
 * Windows are worked on in blocks of LANES: element l of a vector belongs to window l of the block,
 * so every loop runs over maps and time and no two elements of a vector ever meet, except in sums
 * over the batch. Those are added block by block into a few slots, each a fixed range of blocks,
 * and the slots in order: the result does not depend on the number of threads.
 */
#include <math.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(_WIN32)
#define EXPORT __declspec(dllexport)
#else
#define EXPORT __attribute__((visibility("default")))
#include <pthread.h>
#endif

#define ABI 1       /* raised whenever struct call or an export changes */
#define SLOTS 8     /* shares of the work, each with partial sums of its own */
#define TILE 8      /* vectors that a loop keeps in registers */
#define MARGIN 8    /* vectors of zeros on both sides of a row that is filtered; at least TILE */
#define GROUP 4     /* channels whose products at the ends of a window are added in one sweep */
#define LARGEST (1 << 24) /* of any size: products of three fit into 64 bits with room to spare */
#define ALIGNMENT 64

_Static_assert(sizeof(void *) == 8, "binding.py writes addresses of 64 bits");

enum dtype { FLOAT32 = 0, FLOAT64 = 1 };

/* The order in which binding.py writes the sizes. */
struct shape {
  int64_t batch, channels, samples, filters, depth, outputs;
  int64_t kernel, second_kernel, pool, second_pool;
  int64_t groups; /* networks side by side: each has an equal share of filters and outputs */
};

/* The arrays of a call, in the order in which binding.py writes them. */
enum {
  SIGNAL,                                 /* (batch, channels, samples) */
  TEMPORAL, SCALE_1, SHIFT_1,             /* (filters, kernel); batch norm: (filters) twice */
  SPATIAL, SCALE_2, SHIFT_2,              /* (maps, channels); (maps) twice */
  DEPTHWISE, POINTWISE, SCALE_3, SHIFT_3, /* (maps, second kernel); (outputs, maps / groups) */
  KEEP_1, KEEP_2,                         /* bytes: dropout masks of one group, or none */
  MOMENTS,                                /* double: see `moments_of` */
  STATISTICS,                             /* double: see `struct statistics` */
  SAVED,                                  /* what the backward pass reads again */
  FEATURES, GRAD_FEATURES,                /* (batch, outputs, pooled twice) */
  SCRATCH,                                /* bytes */
  GRADS,                                  /* gradients of TEMPORAL … SHIFT_3: ten arrays */
  ARRAYS = GRADS + 10
};

struct array {
  void *address;
  int64_t elements;
};

typedef void (*task)(void *);
typedef void (*launcher)(task, void *, unsigned, unsigned); /* GOMP_parallel */

struct call {
  struct shape shape;
  int64_t dtype, threads;
  launcher parallel;
  double eps[3], keep_factor; /* keep_factor: what dropout multiplies kept elements with */
  struct array array[ARRAYS];
};

/* Mean and variance of the three batch norms. In training also the unbiased variance, and M·f for
 * every temporal filter f. */
struct statistics {
  double *mean[3], *variance[3], *unbiased[3], *product;
};

/* Sizes that follow from the shape. */
struct sizes {
  int64_t batch, channels, samples, filters, depth, maps, outputs;
  int64_t kernel, left, right;
  int64_t second_kernel, second_left;
  int64_t pool, pooled, second_pool, second_pooled;
  int64_t row, pooled_row; /* vectors of a row with its margins */
  int64_t groups, group_maps, group_outputs;
};

/* ---------------------------------------------------------------------- sizes and their checks */

static int is_size(int64_t size) { return size >= 1 && size <= LARGEST; }

static int derive(const struct shape *s, struct sizes *z) {
  const int64_t given[] = {s->batch,   s->channels, s->samples,       s->filters, s->depth,
                           s->outputs, s->kernel,   s->second_kernel, s->pool,    s->second_pool,
                           s->groups};
  for (size_t i = 0; i < sizeof given / sizeof *given; i++)
    if (!is_size(given[i])) return 0;
  z->batch = s->batch;
  z->channels = s->channels;
  z->samples = s->samples;
  z->filters = s->filters;
  z->depth = s->depth;
  z->maps = s->filters * s->depth;
  z->outputs = s->outputs;
  z->kernel = s->kernel;
  z->left = (s->kernel - 1) / 2;
  z->right = s->kernel / 2;
  z->second_kernel = s->second_kernel;
  z->second_left = (s->second_kernel - 1) / 2;
  z->pool = s->pool;
  z->pooled = s->samples / s->pool;
  z->second_pool = s->second_pool;
  z->second_pooled = z->pooled / s->second_pool;
  z->row = s->samples + 2 * MARGIN;
  z->pooled_row = z->pooled + 2 * MARGIN;
  z->groups = s->groups;
  z->group_maps = z->maps / s->groups;
  z->group_outputs = z->outputs / s->groups;
  if (z->filters % z->groups || z->outputs % z->groups) return 0;
  /* Every array is a product of at most three of these, times a small number. */
  const int64_t widest = z->channels > z->maps ? z->channels : z->maps;
  const int64_t most = widest > z->outputs ? widest : z->outputs;
  int64_t elements;
  if (!is_size(z->maps) || z->kernel > z->samples || z->second_pooled < 1) return 0;
  if (__builtin_mul_overflow(z->batch + 64, (z->row + z->kernel) * 64, &elements)) return 0;
  if (__builtin_mul_overflow(elements, most * 64, &elements)) return 0;
  return 1;
}

static int64_t moments_count(const struct sizes *z) { return z->kernel + z->kernel * z->kernel; }

static int64_t statistics_count(const struct sizes *z, int evaluates) {
  const int64_t norms = z->filters + z->maps + z->outputs;
  return evaluates ? 2 * norms : 3 * norms + z->filters * z->kernel;
}

/* In evaluation (mean, variance) of each norm; in training (mean, unbiased) of each norm, then all
 * variances and the products. */
static struct statistics statistics_at(const struct sizes *z, double *at, int evaluates) {
  const int64_t counts[3] = {z->filters, z->maps, z->outputs};
  struct statistics s;
  for (int i = 0; i < 3; i++) {
    s.mean[i] = at;
    s.variance[i] = s.unbiased[i] = at + counts[i];
    at += 2 * counts[i];
  }
  for (int i = 0; i < 3 && !evaluates; i++) {
    s.variance[i] = at;
    at += counts[i];
  }
  s.product = at;
  return s;
}

static void set_unbiased(struct statistics s, int norm, int64_t maps, int64_t elements) {
  const double factor = (double)elements / (double)(elements > 1 ? elements - 1 : 1);
  for (int64_t i = 0; i < maps; i++) s.unbiased[norm][i] = factor * s.variance[norm][i];
}

static int64_t gradient_count(const struct sizes *z, int parameter) {
  switch (parameter) {
    case TEMPORAL: return z->filters * z->kernel;
    case SCALE_1: case SHIFT_1: return z->filters;
    case SPATIAL: return z->maps * z->channels;
    case SCALE_2: case SHIFT_2: return z->maps;
    case DEPTHWISE: return z->maps * z->second_kernel;
    case POINTWISE: return z->outputs * z->group_maps;
    default: return z->outputs; /* SCALE_3, SHIFT_3 */
  }
}

/* ------------------------------------------------------------------------------------- memory */

/* Hands out pieces of a memory block. Without a block it only counts. */
struct arena {
  char *start;
  int64_t taken;
};

static void *take(struct arena *arena, int64_t bytes) {
  void *piece = arena->start ? arena->start + arena->taken : NULL;
  arena->taken += (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  return piece;
}

/* ------------------------------------------------------------------------------------ threads */

struct pass {
  void (*work)(const void *job, int64_t slot);
  const void *job;
  int64_t slots;
  atomic_llong next;
};

static void take_part(void *data) {
  struct pass *pass = data;
  int64_t slot;
  while ((slot = atomic_fetch_add(&pass->next, 1)) < pass->slots) pass->work(pass->job, slot);
}

/* The threads of an OpenMP runtime do not survive a fork, and a child that waits for them hangs. */
static int is_forked_child;

#if !defined(_WIN32)
static void note_fork(void) { is_forked_child = 1; }

__attribute__((constructor)) static void watch_forks(void) { pthread_atfork(NULL, NULL, note_fork); }
#endif

static void run_pass(const struct call *call, void (*work)(const void *, int64_t), const void *job,
                     int64_t slots) {
  struct pass pass = {work, job, slots, 0};
  const int64_t threads = call->threads < slots ? call->threads : slots;
  if (call->parallel && threads > 1 && !is_forked_child)
    call->parallel(take_part, &pass, (unsigned)threads, 0);
  else
    take_part(&pass);
}

/* -------------------------------------------------------------------------- signal moments */

/* Sums over all windows and channels of a batch. A row is one channel of one window; its level is
 * about its mean, and what is left of it is centred. */
struct row_sums {
  double *lags;           /* (kernel) Σ x[t]·x[t+d] of centred rows */
  double *start, *end;    /* (right, right) Σ x[i]·x[j] and Σ x[T-1-i]·x[T-1-j], for i <= j */
  double *profile;        /* (samples) Σ of centred rows */
  double *levelled;       /* (samples) Σ of centred rows times (level - pivot) */
  double *level;          /* (2) Σ (level - pivot), Σ (level - pivot)² */
};

static int64_t row_sums_count(const struct sizes *z) {
  return z->kernel + 2 * z->right * z->right + 2 * z->samples + 2;
}

static struct row_sums row_sums_at(const struct sizes *z, double *at) {
  struct row_sums s;
  s.lags = at;
  s.start = s.lags + z->kernel;
  s.end = s.start + z->right * z->right;
  s.profile = s.end + z->right * z->right;
  s.levelled = s.profile + z->samples;
  s.level = s.levelled + z->samples;
  return s;
}

/* Σ over t of profile[t + i - left] for t in the window, for all shifts i; `prefix` holds the sums
 * of the first 0, 1, … samples. */
static double shifted_sum(const struct sizes *z, const double *prefix, int64_t i) {
  const int64_t shift = i - z->left;
  return shift >= 0 ? prefix[z->samples] - prefix[shift] : prefix[z->samples + shift];
}

/* Samples first … last - 1. */
struct range {
  int64_t first, last;
};

/* The samples s = t + i - left for which t, s and t + j - left lie in the window. */
static struct range shared_range(const struct sizes *z, int64_t i, int64_t j) {
  const int64_t a = i - z->left, ahead = j - i, n = z->samples;
  struct range r = {a > 0 ? a : 0, a < 0 ? n + a : n};
  if (-ahead > r.first) r.first = -ahead;
  if (n - ahead < r.last) r.last = n - ahead;
  if (r.last < r.first) r.last = r.first;
  return r;
}

/* Write m and the symmetric M such that the output of every filter f has the mean f·m and the
 * variance f·M·f over batch, channels and time: (kernel) and (kernel, kernel).
 *
 * With u = Σ_k f[k]·x[t + k - left] and x = centred row + level·box, the terms that have the
 * level in them need only the covariance of a profile with the response of the box, which is
 * small: no large numbers are subtracted, see docs/explanation/backbones/eegnet.md. `work` holds
 * 3·(samples + 1) + 4·kernel numbers. */
static void moments_of(const struct sizes *z, struct row_sums s, double pivot, double *moments,
                       double *work) {
  const int64_t T = z->samples, K = z->kernel;
  const double rows = (double)(z->batch * z->channels), count = rows * (double)T;
  const double above = s.level[0] / rows; /* mean level - pivot */
  const double overall = pivot + above;
  double level_square = s.level[1] / rows - above * above;
  if (level_square < 0.0) level_square = 0.0;
  double *prefix[3], *mean[3];
  for (int p = 0; p < 3; p++) prefix[p] = work + p * (T + 1), prefix[p][0] = 0.0;
  for (int p = 0; p < 3; p++) mean[p] = work + 3 * (T + 1) + p * K;
  for (int64_t t = 0; t < T; t++) {
    const double profile = s.profile[t] / rows;
    prefix[0][t + 1] = prefix[0][t] + profile;
    prefix[1][t + 1] = prefix[1][t] + (s.levelled[t] / rows - above * profile);
    prefix[2][t + 1] = prefix[2][t] + 1.0;
  }
  for (int p = 0; p < 3; p++)
    for (int64_t i = 0; i < K; i++) mean[p][i] = shifted_sum(z, prefix[p], i) / (double)T;
  /* The products that a shift pushes out of the window: sums along diagonals. */
  for (int64_t i = 1; i < z->right; i++)
    for (int64_t j = i; j < z->right; j++) {
      s.start[i * z->right + j] += s.start[(i - 1) * z->right + j - 1];
      s.end[i * z->right + j] += s.end[(i - 1) * z->right + j - 1];
    }
  const double share[3] = {2.0 * overall, 2.0, level_square + overall * overall};
  double *matrix = moments + K;
  for (int64_t i = 0; i < K; i++) {
    moments[i] = mean[0][i] + overall * mean[2][i];
    for (int64_t j = i; j < K; j++) {
      double sum = s.lags[j - i];
      if (i > z->left) sum -= s.start[(i - z->left - 1) * z->right + j - z->left - 1];
      if (j < z->left) sum -= s.end[(z->left - 1 - j) * z->right + z->left - 1 - i];
      double entry = sum / count - mean[0][i] * mean[0][j];
      const struct range there = shared_range(z, i, j), back = shared_range(z, j, i);
      for (int p = 0; p < 3; p++) {
        const double both = prefix[p][there.last] - prefix[p][there.first] +
                            prefix[p][back.last] - prefix[p][back.first];
        const double products = mean[p][i] * mean[2][j] + mean[p][j] * mean[2][i];
        entry += share[p] * 0.5 * (both / (double)T - products);
      }
      entry += mean[2][i] * mean[1][j] + mean[2][j] * mean[1][i];
      entry += level_square * mean[2][i] * mean[2][j];
      matrix[i * K + j] = matrix[j * K + i] = entry;
    }
  }
}

/* Mean and variance of every temporal filter's output. */
static void filtered_statistics(const struct sizes *z, const double *moments, const double *filter,
                                int64_t f, struct statistics s) {
  const int64_t K = z->kernel;
  double mean = 0.0, variance = 0.0;
  for (int64_t i = 0; i < K; i++) {
    const double *row = moments + K + i * K;
    double product = 0.0;
    for (int64_t j = 0; j < K; j++) product += row[j] * filter[j];
    s.product[f * K + i] = product;
    mean += filter[i] * moments[i];
    variance += filter[i] * product;
  }
  s.mean[0][f] = mean;
  s.variance[0][f] = variance < 0.0 ? 0.0 : variance; /* keeps NaN */
}

/* ------------------------------------------------------------------- the loops of all sets */

struct steps {
  int64_t lanes[2];
  int64_t (*saved)(const struct sizes *, int dtype);
  int64_t (*scratch)(const struct sizes *, int dtype, int which);
  void (*forward[2])(const struct call *, const struct sizes *);
  void (*backward[2])(const struct call *, const struct sizes *);
  void (*evaluate[2])(const struct call *, const struct sizes *);
};

enum which { OF_FORWARD, OF_BACKWARD, OF_EVALUATION };

#define CONCAT_(a, b, c) a##_##b##_##c
#define CONCAT(a, b, c) CONCAT_(a, b, c)

/* MinGW does not align the stack for vectors wider than 16 bytes. */
#if defined(__x86_64__) && !defined(_WIN32) && !defined(AFOR_SCALAR)
#define SET avx2
#define TARGET __attribute__((target("avx2,fma")))
#define WIDTH 32
#include "eegnet_set.h"
#define CHOICE 1
#endif

#define SET default
#define TARGET
#define WIDTH 16
#include "eegnet_set.h"

/* Best first; the last works everywhere. */
static const struct set {
  const char *name;
  const struct steps *steps;
} sets[] = {
#ifdef CHOICE
    {"avx2", &steps_avx2},
#endif
    {"default", &steps_default},
};
enum { SETS = sizeof sets / sizeof *sets };

static int is_supported(const struct set *set) {
#ifdef CHOICE
  __builtin_cpu_init();
  if (set->steps == &steps_avx2) return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#endif
  (void)set;
  return 1;
}

static const struct set *chosen = &sets[SETS - 1];

/* -------------------------------------------------------------------------------- the exports */

EXPORT int64_t afor_eegnet_abi(void) { return ABI; }

/* Take the instruction set with this name, or the best one if the name is empty. Return its name,
 * or NULL if there is none that this processor has. */
EXPORT const char *afor_eegnet_select(const char *name) {
  for (const struct set *set = sets; set < sets + SETS; set++) {
    if (*name && strcmp(name, set->name) != 0) continue;
    if (!is_supported(set)) continue;
    chosen = set;
    return set->name;
  }
  return NULL;
}

EXPORT const char *afor_eegnet_selected(void) { return chosen->name; }

static int64_t expected(const struct call *call, const struct sizes *z, int array, int which) {
  const int dtype = (int)call->dtype;
  switch (array) {
    case SIGNAL: return z->batch * z->channels * z->samples;
    case KEEP_1: return z->batch * z->group_maps * z->pooled;
    case KEEP_2: return z->batch * z->group_outputs * z->second_pooled;
    case MOMENTS: return moments_count(z);
    case STATISTICS: return statistics_count(z, which == OF_EVALUATION);
    case SAVED: return chosen->steps->saved(z, dtype);
    case FEATURES: case GRAD_FEATURES: return z->batch * z->outputs * z->second_pooled;
    case SCRATCH: return chosen->steps->scratch(z, dtype, which);
    default: return gradient_count(z, array < GRADS ? array : array - GRADS + TEMPORAL);
  }
}

/* Write the number of elements of every array of a call. Return 0, or -1 for impossible sizes. */
EXPORT int64_t afor_eegnet_elements(const struct call *call, int64_t which, int64_t *elements) {
  struct sizes z;
  if (!derive(&call->shape, &z) || call->dtype < FLOAT32 || call->dtype > FLOAT64) return -1;
  if (which < OF_FORWARD || which > OF_EVALUATION) return -1;
  for (int i = 0; i < ARRAYS; i++) elements[i] = expected(call, &z, i, (int)which);
  return 0;
}

/* Return 0; -1 for sizes or a dtype that cannot be; or 1 + an array that is not what its name says.
 * Arrays of floating-point numbers must be aligned to their own size, what the loops read and write
 * as vectors to ALIGNMENT. */
static int64_t check(const struct call *call, struct sizes *z, int which) {
  static const char needed[][ARRAYS] = {
      [OF_FORWARD] = {[SIGNAL] = 1, [TEMPORAL] = 1, [SCALE_1] = 1, [SHIFT_1] = 1, [SPATIAL] = 1, [SCALE_2] = 1,
                      [SHIFT_2] = 1, [DEPTHWISE] = 1, [POINTWISE] = 1, [SCALE_3] = 1,
                      [SHIFT_3] = 1, [KEEP_1] = 2, [KEEP_2] = 2, [MOMENTS] = 1, [STATISTICS] = 1,
                      [SAVED] = 1, [FEATURES] = 1, [SCRATCH] = 1},
      [OF_BACKWARD] = {[TEMPORAL] = 1, [SCALE_1] = 1, [SHIFT_1] = 1, [SPATIAL] = 1, [SCALE_2] = 1,
                       [SHIFT_2] = 1, [DEPTHWISE] = 1, [POINTWISE] = 1, [SCALE_3] = 1,
                       [SHIFT_3] = 1, [KEEP_1] = 2, [KEEP_2] = 2, [MOMENTS] = 1, [STATISTICS] = 1,
                       [SAVED] = 1, [GRAD_FEATURES] = 1, [SCRATCH] = 1, [GRADS] = 1,
                       [GRADS + 1] = 1, [GRADS + 2] = 1, [GRADS + 3] = 1, [GRADS + 4] = 1,
                       [GRADS + 5] = 1, [GRADS + 6] = 1, [GRADS + 7] = 1, [GRADS + 8] = 1,
                       [GRADS + 9] = 1},
      [OF_EVALUATION] = {[SIGNAL] = 1, [TEMPORAL] = 1, [SCALE_1] = 1, [SHIFT_1] = 1, [SPATIAL] = 1,
                         [SCALE_2] = 1, [SHIFT_2] = 1, [DEPTHWISE] = 1, [POINTWISE] = 1,
                         [SCALE_3] = 1, [SHIFT_3] = 1, [STATISTICS] = 1, [FEATURES] = 1,
                         [SCRATCH] = 1},
  };
  if (!derive(&call->shape, z) || call->dtype < FLOAT32 || call->dtype > FLOAT64) return -1;
  for (int i = 0; i < ARRAYS; i++) {
    if (!needed[which][i]) continue;
    const struct array *array = &call->array[i];
    if (needed[which][i] == 2 && !array->address) continue; /* no dropout */
    const uintptr_t wide = call->dtype == FLOAT64 ? 8 : 4;
    const uintptr_t alignment = i == SAVED || i == SCRATCH             ? ALIGNMENT
                                : i == KEEP_1 || i == KEEP_2           ? 1
                                : i == MOMENTS || i == STATISTICS      ? 8
                                                                       : wide;
    if (!array->address || (uintptr_t)array->address % alignment ||
        array->elements != expected(call, z, i, which))
      return 1 + i;
  }
  return 0;
}

/* From SIGNAL to FEATURES, STATISTICS, MOMENTS and SAVED, with the batch's own statistics. */
EXPORT int64_t afor_eegnet_forward(const struct call *call) {
  struct sizes z;
  const int64_t misfit = check(call, &z, OF_FORWARD);
  if (!misfit) chosen->steps->forward[call->dtype](call, &z);
  return misfit;
}

/* From GRAD_FEATURES to GRADS. SAVED is only read. */
EXPORT int64_t afor_eegnet_backward(const struct call *call) {
  struct sizes z;
  const int64_t misfit = check(call, &z, OF_BACKWARD);
  if (!misfit) chosen->steps->backward[call->dtype](call, &z);
  return misfit;
}

/* From SIGNAL to FEATURES with given STATISTICS and without dropout. */
EXPORT int64_t afor_eegnet_evaluate(const struct call *call) {
  struct sizes z;
  const int64_t misfit = check(call, &z, OF_EVALUATION);
  if (!misfit) chosen->steps->evaluate[call->dtype](call, &z);
  return misfit;
}

/* AFOR on CPU: two passes over each tensor. The first reduces gradient and first moment to five
 * sums, the controller turns them into the decay coefficient, the second updates moments and
 * parameter. With a constant decay (beta2_min = beta2) there is only the second. Plain C11, no
 * headers of Python or torch; bound by native/binding.py through ctypes.
 *
 * The result does not depend on the number of threads, nor on the instruction set: sums run over
 * fixed chunks in sixteen fixed lanes, and chunk sums are added in order.
 */
#include <float.h>
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

/* Raised whenever struct plan, settings or an export changes; not if one is added. */
#define ABI 5
#define CHUNK 8192            /* elements reduced to one row of partial sums */
#define BLOCK 1024            /* elements added in float before the lanes are emptied into double */
#define UNIT (1 << 15)        /* elements whose second pass finds them in a core's own cache */
#define THREADED (1 << 16)    /* up to this many elements one thread is faster */
#define MAX_THREADS 64
#define NO_GRAD UINT64_MAX    /* in place of the address of a gradient: leave this tensor alone */

#define ALWAYS_INLINE static inline __attribute__((always_inline))

enum dtype { FLOAT32 = 0, FLOAT64 = 1, BFLOAT16 = 2, FLOAT16 = 3 };

/* Sums of a chunk or a tensor. */
enum { RESIDUAL, MOMENTUM, GRAD_SQ, MOMENTUM_SQ, PRODUCT, SUMS };

/* The control state of a tensor; the order is that of FIELDS in control.py. */
enum { NOISE_FAST, NOISE_SLOW, AGREEMENT, SCORE_MEAN, SCORE_VAR, SCORE, ZSCORE, FORGETTING,
       CORRECTION, FIELDS };

/* The settings of a step, in the order in which native/binding.py writes them: as one array, so that
 * switches and the number of threads are doubles, too. */
struct settings {
  double lr, weight_decay, grad_factor; /* grad_factor: -1 to maximize, 1/scale to unscale */
  double beta1, beta2, eps, beta2_min, direction_weight, direction_decay, warmup_steps;
  double fast_channel, self_normalized, fixed_mean, fixed_scale, zscore_clip;
  double cumulative, calibrated;
  double threads;
};

struct coefficients {
  double forgetting, scale, shift, decay, lr; /* see `Coefficients` in control.py */
};

struct chunk {
  int64_t tensor, start, length;
};

typedef void (*task)(void *);
typedef void (*launcher)(task, void *, unsigned, unsigned); /* GOMP_parallel */

struct plan {
  int64_t tensors, chunks;
  int64_t *numel, *dtype;
  uint64_t *param, *grad, *exp_avg, *exp_avg_sq, *control, *step; /* addresses, one per tensor */
  /* Start and size in bytes of the storage that each address must lie in: all tensors for the
   * first array, then all for the second, in the order of the six arrays above. */
  uint64_t *storage, *storage_bytes;
  struct settings *settings;
  launcher parallel;
  int64_t *order;              /* tensors in order of work: those up to THREADED elements first */
  struct chunk *chunk;         /* all chunks, in that order */
  int64_t *first;              /* first chunk of each place in the order, and one past the last */
  int64_t *unit;               /* first place of each unit of small tensors, one past the last */
  int64_t units, small;        /* number of units, and of elements in them */
  double (*partial)[SUMS];     /* sums of each chunk */
  struct coefficients *coefficients;
};

/* ------------------------------------------------------------------------ elementwise kernels */

/* A running average moves by `weight` towards a value. Written from the nearer end, as torch does,
 * so that a weight of one gives the value itself. */
struct average {
  double weight; /* multiplies value - average */
  int from_value;
};

ALWAYS_INLINE struct average moving(double weight) {
  struct average a = {weight, 0};
  if (weight >= 0.5) {
    a.weight = weight - 1.0;
    a.from_value = 1;
  }
  return a;
}

/* The chunk that comes next: it is fetched from memory while another is worked on. */
struct next {
  const void *first, *second;  /* the two arrays that are not in cache yet */
  const void *grad, *exp_avg;  /* in the second pass over a large tensor, else NULL */
  int64_t length;              /* 0: there is none */
};

/* Half precision goes through float32, a block at a time. */

ALWAYS_INLINE float from_bits(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

ALWAYS_INLINE uint32_t to_bits(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

ALWAYS_INLINE float from_bfloat16(uint16_t h) { return from_bits((uint32_t)h << 16); }

ALWAYS_INLINE uint16_t to_bfloat16(float x) {
  uint32_t bits = to_bits(x);
  uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  return (bits & 0x7fffffff) > 0x7f800000 ? (uint16_t)((bits >> 16) | 0x40) : (uint16_t)rounded;
}

ALWAYS_INLINE float from_float16(uint16_t h) {
  uint32_t magnitude = (uint32_t)(h & 0x7fff) << 13;
  /* multiply by 2^112 moves the exponent from float16's bias to float32's, subnormals included */
  float x = from_bits(magnitude) * from_bits(0x77800000);
  uint32_t bits = (h & 0x7c00) == 0x7c00 ? magnitude | 0x7f800000 : to_bits(x);
  return from_bits(bits | (uint32_t)(h & 0x8000) << 16);
}

ALWAYS_INLINE uint16_t to_float16(float x) {
  uint32_t bits = to_bits(x), sign = (bits >> 16) & 0x8000, magnitude = bits & 0x7fffffff;
  uint32_t normal = (magnitude - 0x38000000 + 0xfff + ((magnitude >> 13) & 1)) >> 13;
  /* adding 0.5 leaves a subnormal float16 in the low bits, rounded to even by the addition */
  uint32_t subnormal = to_bits(from_bits(magnitude) + 0.5f) - 0x3f000000;
  uint32_t h = magnitude < 0x38800000 ? subnormal : normal;
  h = magnitude >= 0x477ff000 ? 0x7c00 : h;
  h = magnitude > 0x7f800000 ? 0x7e00 : h;
  return (uint16_t)(h | sign);
}

/* The loops of one instruction set. */
struct loops {
  void (*sum_f32)(const float *, const float *, int64_t, const struct settings *,
                  const struct next *, double *);
  void (*sum_f64)(const double *, const double *, int64_t, const struct settings *,
                  const struct next *, double *);
  void (*update_f32)(float *, const float *, float *, float *, int64_t, const struct settings *,
                     const struct coefficients *, const struct next *);
  void (*update_f64)(double *, const double *, double *, double *, int64_t,
                     const struct settings *, const struct coefficients *, const struct next *);
  void (*widen_bfloat16)(const uint16_t *, float *, int64_t);
  void (*widen_float16)(const uint16_t *, float *, int64_t);
  void (*narrow_bfloat16)(const float *, uint16_t *, int64_t);
  void (*narrow_float16)(const float *, uint16_t *, int64_t);
  int fetch; /* see kernel_set.h */
};

/* MinGW does not align the stack for vectors wider than 16 bytes. */
#if defined(__x86_64__) && !defined(_WIN32) && !defined(AFOR_SCALAR)
#define SET avx512
#define TARGET __attribute__((target("avx512f,avx512bw,avx512cd,avx512dq,avx512vl")))
#define WIDTH 64
#define SWEEP 1
#define LOCALITY 3
#define PLACES 4
#define FETCH 1
#include "kernel_set.h"

#define SET avx2
#define TARGET __attribute__((target("avx2")))
#define WIDTH 32
#define SWEEP 1
#define LOCALITY 3
#define PLACES 4
#define FETCH 1
#include "kernel_set.h"

/* AMD's processors with AVX-512 (measured on family 26) take the sums fastest when the next chunk is
 * fetched in the order of memory, a quarter faster than from several places, and the update without
 * fetching. */
#define SET avx512_amd
#define TARGET __attribute__((target("avx512f,avx512bw,avx512cd,avx512dq,avx512vl")))
#define WIDTH 64
#define SWEEP 1
#define LOCALITY 3
#define PLACES 1
#define FETCH 0
#include "kernel_set.h"

/* On those without it (Zen 3) the sums are fastest when the next chunk is fetched from two places in
 * turn; from four they are slower than without. The update is as fast as torch's AdamW without
 * fetching and up to a third slower with it. Intel's (Ice Lake) read a third slower when the next
 * chunk is fetched into the second cache instead of the first. */
#define SET avx2_amd
#define TARGET __attribute__((target("avx2")))
#define WIDTH 32
#define SWEEP 2
#define LOCALITY 3
#define PLACES 2
#define FETCH 0
#include "kernel_set.h"
#define CHOICE 1
#endif

#define SET default
#define TARGET
#if defined(AFOR_WIDTH) /* for tests: the vectors of another instruction set */
#define WIDTH AFOR_WIDTH
#else
#define WIDTH 16
#endif
#if WIDTH >= 32
#define SWEEP 1
#elif !defined(__aarch64__)
#define SWEEP 2
#else
#define SWEEP 4
#endif
#define LOCALITY 2
#define PLACES 4
#define FETCH 1
#include "kernel_set.h"

/* Best first; the last works everywhere. */
static const struct set {
  const char *name;
  const struct loops *loops, *on_amd;
} sets[] = {
#ifdef CHOICE
    {"avx512", &loops_avx512, &loops_avx512_amd},
    {"avx2", &loops_avx2, &loops_avx2_amd},
#endif
    {"default", &loops_default, &loops_default},
};
enum { SETS = sizeof sets / sizeof *sets };

/* Whether this processor, and the system on it, can run a set. */
static int is_supported(const struct set *set) {
#ifdef CHOICE
  __builtin_cpu_init();
  if (set->loops == &loops_avx512)
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl");
  if (set->loops == &loops_avx2) return __builtin_cpu_supports("avx2");
#endif
  (void)set;
  return 1;
}

static int is_amd(void) {
#if defined(CHOICE) && defined(AFOR_OTHER_VENDOR) /* for tests */
  return __builtin_cpu_is("amd") == 0;
#elif defined(CHOICE)
  return __builtin_cpu_is("amd") != 0;
#else
  return 0;
#endif
}

/* What works everywhere, until `afor_select` is called. */
static const struct set *chosen = &sets[SETS - 1];
static const struct loops *loops_in_use = &loops_default;

typedef void (*widener)(const uint16_t *, float *, int64_t);
typedef void (*narrower)(const float *, uint16_t *, int64_t);

static void sum_half(widener widen, const uint16_t *grad, const float *exp_avg, int64_t n,
                     const struct settings *s, double *sums) {
  float buffer[BLOCK];
  const struct next nothing = {0};
  memset(sums, 0, SUMS * sizeof *sums);
  for (int64_t i = 0; i < n; i += BLOCK) {
    int64_t length = n - i < BLOCK ? n - i : BLOCK;
    double part[SUMS];
    widen(grad + i, buffer, length);
    loops_in_use->sum_f32(buffer, exp_avg + i, length, s, &nothing, part);
    for (int k = 0; k < SUMS; k++) sums[k] += part[k];
  }
}

static void update_half(widener widen, narrower narrow, uint16_t *param, const uint16_t *grad,
                        float *exp_avg, float *exp_avg_sq, int64_t n, const struct settings *s,
                        const struct coefficients *c) {
  float wide_grad[BLOCK], wide_param[BLOCK];
  const struct next nothing = {0};
  for (int64_t i = 0; i < n; i += BLOCK) {
    int64_t length = n - i < BLOCK ? n - i : BLOCK;
    widen(grad + i, wide_grad, length);
    widen(param + i, wide_param, length);
    loops_in_use->update_f32(wide_param, wide_grad, exp_avg + i, exp_avg_sq + i, length, s, c,
                              &nothing);
    narrow(wide_param, param + i, length);
  }
}

/* ----------------------------------------------------------------------------- the controller */

static double one_minus_power(double decay, double step) {
  return decay > 0.0 ? -expm1(step * log(decay)) : 1.0;
}

static double lerp(double average, double value, double weight) {
  return weight < 0.5 ? average + weight * (value - average)
                      : value - (value - average) * (1.0 - weight);
}

static double at_least(double x, double low) { return x < low ? low : x; } /* keeps NaN */

/* The correction of the first moment at the step of the tensor before: mostly the same for all. */
struct bias {
  double step, first;
};

/* Whether the decay has no range to adapt in; then nobody needs the sums. */
static int is_constant(const struct settings *s) { return s->beta2_min == s->beta2; }

/* RASS and the standardised score, see `_advance` in control.py. */
static void score_tensor(double *c, double step, const double *sums, int64_t numel,
                         const struct settings *s) {
  const double tiny = 1e-300, slow = 1.0 - s->beta2, n = numel > 0 ? (double)numel : 1.0;
  const double residual = sums[RESIDUAL] / n;
  const double noise_fast = lerp(c[NOISE_FAST], residual, 1.0 - s->beta1);
  const double noise_slow = lerp(c[NOISE_SLOW], residual, slow);
  const double norms = sqrt(at_least(sums[GRAD_SQ] * sums[MOMENTUM_SQ], tiny));
  const double cosine = at_least(sums[PRODUCT] / (norms + s->eps), 0.0);
  if (isfinite(residual + cosine)) {
    const double agreement = lerp(c[AGREEMENT], cosine, 1.0 - s->direction_decay);
    double noise = s->fast_channel != 0.0 && noise_fast > noise_slow ? noise_fast : noise_slow;
    if (s->eps == 0.0) noise = at_least(noise, tiny);
    const double ratio = sums[MOMENTUM] / n / (noise + s->eps);
    const double discount = agreement * s->direction_weight + (1.0 - s->direction_weight);
    const double score = at_least(ratio * discount, 0.0);
    const double weight = s->calibrated != 0.0 ? one_minus_power(s->beta2, step) : 1.0;
    const double score_mean = lerp(c[SCORE_MEAN], score, slow);
    const double delta = score - score_mean / weight;
    const double score_var = lerp(c[SCORE_VAR], delta * delta, slow);
    double zscore = (score - s->fixed_mean) / s->fixed_scale;
    if (s->self_normalized != 0.0) {
      zscore = delta / sqrt(at_least(score_var / weight + s->eps, tiny));
      zscore = fmin(fmax(zscore, -s->zscore_clip), s->zscore_clip);
    }
    c[NOISE_FAST] = noise_fast;
    c[NOISE_SLOW] = noise_slow;
    c[AGREEMENT] = agreement;
    c[SCORE_MEAN] = score_mean;
    c[SCORE_VAR] = score_var;
    c[SCORE] = score;
    c[ZSCORE] = zscore;
  }
}

/* One step of AFC, see `_advance` in control.py, for one tensor. */
static struct coefficients advance(double *c, double step, const double *sums, int64_t numel,
                                   const struct settings *s, struct bias *bias) {
  double forgetting = 1.0 - s->beta2;
  if (!is_constant(s)) {
    score_tensor(c, step, sums, numel, s);
    double adapted = (s->beta2 - s->beta2_min) / (1.0 + exp(c[ZSCORE]));
    if (s->warmup_steps > 0.0) adapted *= fmin(step / s->warmup_steps, 1.0);
    forgetting += adapted;
  }
  c[FORGETTING] = forgetting;
  c[CORRECTION] += forgetting * (1.0 - c[CORRECTION]);
  const double used = s->cumulative != 0.0 ? c[CORRECTION] : one_minus_power(s->beta2, step);
  if (step != bias->step) *bias = (struct bias){step, one_minus_power(s->beta1, step)};
  struct coefficients out = {forgetting, bias->first / sqrt(used), bias->first * s->eps,
                             1.0 - s->lr * s->weight_decay, s->lr};
  return out;
}

/* Add the sums of the chunks of the tensor at a place in the order. */
static void add_chunks(const struct plan *p, int64_t place, double *sums) {
  memset(sums, 0, SUMS * sizeof *sums);
  for (int64_t i = p->first[place]; i < p->first[place + 1]; i++)
    for (int k = 0; k < SUMS; k++) sums[k] += p->partial[i][k];
}

static int has_grad(const struct plan *p, int64_t t) { return p->grad[t] != NO_GRAD; }

/* Count the step of a tensor and advance its control state; `numel` divides its first two sums. */
static void control_tensor(struct plan *p, int64_t t, const double *sums, int64_t numel,
                           struct bias *bias) {
  if (!has_grad(p, t)) return;
  double c[FIELDS];
  float *step = (float *)(uintptr_t)p->step[t];
  *step += 1.0f;
  if (p->dtype[t] == FLOAT64) {
    double *control = (double *)(uintptr_t)p->control[t];
    memcpy(c, control, sizeof c);
    p->coefficients[t] = advance(c, *step, sums, numel, p->settings, bias);
    memcpy(control, c, sizeof c);
  } else {
    float *control = (float *)(uintptr_t)p->control[t];
    for (int k = 0; k < FIELDS; k++) c[k] = control[k];
    p->coefficients[t] = advance(c, *step, sums, numel, p->settings, bias);
    for (int k = 0; k < FIELDS; k++) control[k] = (float)c[k];
  }
}

/* The same for the whole tensor at a place in the order, whose chunks have been summed. */
static void control_place(struct plan *p, int64_t place, struct bias *bias) {
  const int64_t t = p->order[place];
  double sums[SUMS];
  add_chunks(p, place, sums);
  control_tensor(p, t, sums, p->numel[t], bias);
}

/* --------------------------------------------------------------------------------- the bounds */

enum { ARRAYS = 6 }; /* param, grad, exp_avg, exp_avg_sq, control, step */

/* Check that every access of a step stays inside the storages that were declared. Return 0, or
 * 1 + array + ARRAYS * tensor for the first tensor that does not fit. */
static int64_t check_bounds(const struct plan *p) {
  static const uint64_t widths[] = {sizeof(float), sizeof(double), sizeof(uint16_t),
                                    sizeof(uint16_t)};
  const uint64_t *const address[ARRAYS] = {p->param,      p->grad,    p->exp_avg,
                                           p->exp_avg_sq, p->control, p->step};
  for (int64_t a = 0; a < ARRAYS; a++)
    for (int64_t t = 0; t < p->tensors; t++) {
      const uint64_t width = widths[p->dtype[t]];
      const uint64_t wide = p->dtype[t] == FLOAT64 ? sizeof(double) : sizeof(float);
      const uint64_t item = a == 5 ? sizeof(float) : a < 2 ? width : wide;
      const uint64_t count = a == 5 ? 1 : a == 4 ? FIELDS : (uint64_t)p->numel[t];
      const uint64_t begin = address[a][t], storage = p->storage[a * p->tensors + t];
      const uint64_t bytes = p->storage_bytes[a * p->tensors + t], offset = begin - storage;
      if (count == 0 || !has_grad(p, t)) continue;
      if (begin == 0 || begin % item != 0 || begin < storage || offset > bytes ||
          (bytes - offset) / item < count)
        return 1 + a + ARRAYS * t;
    }
  return 0;
}

/* --------------------------------------------------------------------------------- the passes */

#define AT(type, base) ((type *)(uintptr_t)p->base[ch->tensor] + ch->start)

/* Where chunk `i` lies, -1: nowhere. Half precision is not fetched ahead. */
static struct next find_next(const struct plan *p, int64_t i, const uint64_t *first,
                             const uint64_t *second) {
  const struct chunk *ch = p->chunk + (i < 0 ? 0 : i);
  const int64_t dtype = p->dtype[ch->tensor];
  if (i < 0 || dtype > FLOAT64 || !has_grad(p, ch->tensor)) return (struct next){0};
  const uint64_t at = (uint64_t)ch->start * (dtype == FLOAT64 ? sizeof(double) : sizeof(float));
  struct next next = {.first = (const void *)(uintptr_t)(first[ch->tensor] + at),
                      .second = (const void *)(uintptr_t)(second[ch->tensor] + at),
                      .length = ch->length};
  if (first != p->grad && p->numel[ch->tensor] > THREADED) {
    next.grad = (const void *)(uintptr_t)(p->grad[ch->tensor] + at);
    next.exp_avg = (const void *)(uintptr_t)(p->exp_avg[ch->tensor] + at);
  }
  return next;
}

/* Sums of chunk `i`; chunk `then` will be next. */
static void sum_chunk(struct plan *p, int64_t i, int64_t then) {
  const struct chunk *ch = p->chunk + i;
  const struct settings *s = p->settings;
  const struct next next = find_next(p, then, p->grad, p->exp_avg);
  const struct loops *loops = loops_in_use;
  double *out = p->partial[i];
  const int64_t n = ch->length, dtype = p->dtype[ch->tensor];
  if (!has_grad(p, ch->tensor)) return;
  switch (dtype) {
  case FLOAT32: loops->sum_f32(AT(float, grad), AT(float, exp_avg), n, s, &next, out); break;
  case FLOAT64: loops->sum_f64(AT(double, grad), AT(double, exp_avg), n, s, &next, out); break;
  default:
    sum_half(dtype == BFLOAT16 ? loops->widen_bfloat16 : loops->widen_float16,
             AT(uint16_t, grad), AT(float, exp_avg), n, s, out);
  }
}

static void update_chunk(struct plan *p, int64_t i, int64_t then) {
  const struct chunk *ch = p->chunk + i;
  const struct settings *s = p->settings;
  const struct coefficients *c = p->coefficients + ch->tensor;
  const int64_t n = ch->length, dtype = p->dtype[ch->tensor];
  const struct next next = find_next(p, then, p->exp_avg_sq, p->param);
  const struct loops *loops = loops_in_use;
  if (!has_grad(p, ch->tensor)) return;
  switch (dtype) {
  case FLOAT32:
    loops->update_f32(AT(float, param), AT(float, grad), AT(float, exp_avg),
                      AT(float, exp_avg_sq), n, s, c, &next);
    break;
  case FLOAT64:
    loops->update_f64(AT(double, param), AT(double, grad), AT(double, exp_avg),
                      AT(double, exp_avg_sq), n, s, c, &next);
    break;
  default:
    update_half(dtype == BFLOAT16 ? loops->widen_bfloat16 : loops->widen_float16,
                dtype == BFLOAT16 ? loops->narrow_bfloat16 : loops->narrow_float16,
                AT(uint16_t, param), AT(uint16_t, grad), AT(float, exp_avg),
                AT(float, exp_avg_sq), n, s, c);
  }
}

/* Both passes over the small tensors of a unit, while they are in cache. */
static void step_unit(struct plan *p, int64_t unit, int64_t then) {
  (void)then; /* a unit fetches its own tensors one after the other */
  const int64_t begin = p->unit[unit], end = p->unit[unit + 1];
  const int64_t first = p->first[begin], last = p->first[end] - 1;
  struct bias bias = {0.0, 0.0};
  for (int64_t k = begin; k < end; k++) {
    if (k + 2 < end) {
      __builtin_prefetch((const void *)(uintptr_t)p->control[p->order[k + 2]], 1);
      __builtin_prefetch((const void *)(uintptr_t)p->step[p->order[k + 2]], 1);
    }
    for (int64_t i = p->first[k]; i < p->first[k + 1]; i++) sum_chunk(p, i, i < last ? i + 1 : -1);
    control_place(p, k, &bias);
  }
  for (int64_t i = last; i >= first; i--) update_chunk(p, i, i > first ? i - 1 : -1);
}

/* Units or chunks, divided among the threads in equal shares; a thread that has finished its share helps with
 * the others. */
struct pass {
  struct plan *plan;
  void (*work)(struct plan *, int64_t, int64_t);
  int64_t begin, end;
  int backwards; /* a second pass: what a thread read last in the first is still in its cache */
  int shares;
  atomic_llong taken[MAX_THREADS]; /* of each share */
};

/* Numbers the threads, so that each meets in the second pass what it has read in the first. */
static atomic_uint threads_seen;
static _Thread_local unsigned thread_number; /* 0: not yet */

static void take_share(struct pass *pass, int share) {
  const int64_t size = pass->end - pass->begin;
  const int64_t begin = pass->begin + size * share / pass->shares;
  const int64_t end = pass->begin + size * (share + 1) / pass->shares;
  int64_t done; /* by this thread and those that help it */
  while ((done = atomic_fetch_add_explicit(&pass->taken[share], 1, memory_order_relaxed)) <
         end - begin) {
    const int64_t i = pass->backwards ? end - 1 - done : begin + done;
    const int is_last = done + 1 == end - begin;
    pass->work(pass->plan, i, is_last ? -1 : pass->backwards ? i - 1 : i + 1);
  }
}

static void take_part(void *data) {
  struct pass *pass = data;
  if (thread_number == 0) thread_number = atomic_fetch_add(&threads_seen, 1) % MAX_THREADS + 1;
  for (int k = 0; k < pass->shares; k++)
    take_share(pass, ((int)thread_number + k) % pass->shares);
}

#if !defined(_WIN32)
static void *take_part_in_thread(void *data) {
  take_part(data);
  return NULL;
}
#endif

/* The threads of an OpenMP runtime do not survive a fork, and a child that waits for them hangs. */
static int is_forked_child;

#if !defined(_WIN32)
static void note_fork(void) { is_forked_child = 1; }

__attribute__((constructor)) static void watch_forks(void) { pthread_atfork(NULL, NULL, note_fork); }
#endif

static void run_pass(struct plan *p, void (*work)(struct plan *, int64_t, int64_t), int64_t begin,
                     int64_t end, int backwards, int threads) {
  struct pass pass = {p, work, begin, end, backwards, threads, {0}};
  if (end - begin < threads) pass.shares = end > begin ? (int)(end - begin) : 1;
  if (pass.shares == 1) {
    take_share(&pass, 0);
    return;
  }
  if (p->parallel && !is_forked_child) {
    p->parallel(take_part, &pass, (unsigned)pass.shares, 0);
    return;
  }
#if !defined(_WIN32)
  pthread_t pool[MAX_THREADS];
  int started = 0;
  while (started < pass.shares - 1 &&
         pthread_create(&pool[started], NULL, take_part_in_thread, &pass) == 0)
    started++;
  take_part(&pass);
  for (int i = 0; i < started; i++) pthread_join(pool[i], NULL);
#else
  take_part(&pass);
#endif
}

/* All threads on one tensor, pass by pass. */
static void step_large(struct plan *p, int64_t place, int threads) {
  const int64_t begin = p->first[place], end = p->first[place + 1];
  struct bias bias = {0.0, 0.0};
  if (!has_grad(p, p->order[place])) return;
  run_pass(p, sum_chunk, begin, end, 0, threads);
  control_place(p, place, &bias);
  run_pass(p, update_chunk, begin, end, loops_in_use->fetch, threads);
}

/* ------------------------------------------------------------------------------------ exports */

EXPORT int afor_abi(void) { return ABI; }

/* Use the instruction set of this name, or with "" the best of this processor, from now on. Return
 * 0, or with nothing changed 1 when there is no such set and 2 when the processor lacks it. */
EXPORT int afor_select(const char *name) {
  int known = 0;
  for (const struct set *set = sets; set < sets + SETS; set++) {
    if (*name && strcmp(name, set->name) != 0) continue;
    known = 1;
    if (!is_supported(set)) continue;
    chosen = set;
    loops_in_use = is_amd() ? set->on_amd : set->loops;
    return 0;
  }
  return known ? 2 : 1;
}

/* Name the instruction set in use. */
EXPORT const char *afor_selected(void) { return chosen->name; }

/* Name the instruction set at an index, best first; NULL past the last. */
EXPORT const char *afor_set(int index) {
  return index >= 0 && index < SETS ? sets[index].name : NULL;
}

EXPORT void afor_plan_free(struct plan *p) {
  if (!p) return;
  void *owned[] = {p->numel, p->dtype, p->param,   p->grad,  p->exp_avg, p->exp_avg_sq, p->control,
                   p->step,  p->settings, p->chunk, p->first,   p->partial,    p->coefficients,
                   p->order, p->unit,     p->storage, p->storage_bytes};
  for (size_t i = 0; i < sizeof owned / sizeof *owned; i++) free(owned[i]);
  free(p);
}

/* Put the small tensors first, gathered into units. */
static void put_in_order(struct plan *p) {
  int64_t place = 0, filled = 0;
  for (int64_t t = 0; t < p->tensors; t++) {
    if (p->numel[t] > THREADED) continue;
    if (p->units == 0 || filled + p->numel[t] > UNIT) {
      p->unit[p->units++] = place;
      filled = 0;
    }
    p->order[place++] = t;
    filled += p->numel[t];
    p->small += p->numel[t];
  }
  p->unit[p->units] = place;
  for (int64_t t = 0; t < p->tensors; t++)
    if (p->numel[t] > THREADED) p->order[place++] = t;
}

/* Make a plan for tensors of these sizes and dtypes; the caller fills in addresses, storages and
 * settings. Return NULL when there is no memory, or for a size or a dtype that no tensor has. */
EXPORT struct plan *afor_plan_new(int64_t tensors, const int64_t *numel, const int64_t *dtype,
                                  launcher parallel) {
  if (tensors < 0 || tensors > INT32_MAX) return NULL;
  for (int64_t t = 0; t < tensors; t++)
    if (numel[t] < 0 || numel[t] > INT64_MAX / (int64_t)sizeof(double) || dtype[t] < FLOAT32 ||
        dtype[t] > FLOAT16)
      return NULL;
  struct plan *p = calloc(1, sizeof *p);
  if (!p) return NULL;
  p->tensors = tensors;
  p->parallel = parallel;
  for (int64_t t = 0; t < tensors; t++) p->chunks += (numel[t] + CHUNK - 1) / CHUNK;
  const size_t n = (size_t)tensors + 1, chunks = (size_t)p->chunks + 1;
  p->numel = calloc(n, sizeof *p->numel);
  p->dtype = calloc(n, sizeof *p->dtype);
  p->param = calloc(n, sizeof *p->param);
  p->grad = calloc(n, sizeof *p->grad);
  p->exp_avg = calloc(n, sizeof *p->exp_avg);
  p->exp_avg_sq = calloc(n, sizeof *p->exp_avg_sq);
  p->control = calloc(n, sizeof *p->control);
  p->step = calloc(n, sizeof *p->step);
  p->storage = calloc(ARRAYS * n, sizeof *p->storage);
  p->storage_bytes = calloc(ARRAYS * n, sizeof *p->storage_bytes);
  p->settings = calloc(1, sizeof *p->settings);
  p->chunk = calloc(chunks, sizeof *p->chunk);
  p->first = calloc(n, sizeof *p->first);
  p->partial = calloc(chunks, sizeof *p->partial);
  p->coefficients = calloc(n, sizeof *p->coefficients);
  p->order = calloc(n, sizeof *p->order);
  p->unit = calloc(n, sizeof *p->unit);
  if (!p->numel || !p->dtype || !p->param || !p->grad || !p->exp_avg || !p->exp_avg_sq || !p->control ||
      !p->step || !p->settings || !p->chunk || !p->first || !p->partial || !p->coefficients ||
      !p->order || !p->unit || !p->storage || !p->storage_bytes) {
    afor_plan_free(p);
    return NULL;
  }
  memcpy(p->numel, numel, (size_t)tensors * sizeof *numel);
  memcpy(p->dtype, dtype, (size_t)tensors * sizeof *dtype);
  put_in_order(p);
  int64_t next = 0;
  for (int64_t k = 0; k < tensors; k++) {
    const int64_t t = p->order[k];
    p->first[k] = next;
    for (int64_t at = 0; at < numel[t]; at += CHUNK) {
      struct chunk c = {t, at, numel[t] - at < CHUNK ? numel[t] - at : CHUNK};
      p->chunk[next++] = c;
    }
  }
  p->first[tensors] = next;
  return p;
}

static int threads_of(const struct plan *p) {
  const int threads = (int)p->settings->threads;
  return threads < 1 ? 1 : threads > MAX_THREADS ? MAX_THREADS : threads;
}

static int threads_for_chunks(const struct plan *p) {
  return p->chunks * CHUNK > THREADED ? threads_of(p) : 1;
}

/* Advance all control states with the sums of the tensors, the first two as means, and update. */
static void finish(struct plan *p, const double (*sums)[SUMS], int backwards) {
  struct bias bias = {0.0, 0.0};
  for (int64_t t = 0; t < p->tensors; t++) control_tensor(p, t, sums ? sums[t] : NULL, 1, &bias);
  run_pass(p, update_chunk, 0, p->chunks, backwards, threads_for_chunks(p));
}

/* Take one step on all tensors of a plan. Return 0; or, having done nothing, which tensor leaves
 * its storage (see check_bounds). */
EXPORT int64_t afor_step(struct plan *p) {
  const int64_t misfit = check_bounds(p);
  if (misfit) return misfit;
  if (is_constant(p->settings)) {
    finish(p, NULL, 0);
    return 0;
  }
  const int threads = threads_of(p);
  run_pass(p, step_unit, 0, p->units, 0, p->small > THREADED ? threads : 1);
  for (int64_t k = p->unit[p->units]; k < p->tensors; k++) step_large(p, k, threads);
  return 0;
}

/* A step in two halves, for tensors of which this process holds a part. */

/* The first half: write the five sums of each tensor, one tensor after the other; zeros with a
 * constant decay and without a gradient. Change nothing. Return what afor_step returns. */
EXPORT int64_t afor_sums(struct plan *p, double (*sums)[SUMS]) {
  const int64_t misfit = check_bounds(p);
  if (misfit) return misfit;
  memset(sums, 0, (size_t)p->tensors * sizeof *sums);
  if (is_constant(p->settings)) return 0;
  run_pass(p, sum_chunk, 0, p->chunks, 0, threads_for_chunks(p));
  for (int64_t k = 0; k < p->tensors; k++)
    if (has_grad(p, p->order[k])) add_chunks(p, k, sums[p->order[k]]);
  return 0;
}

/* The second half: take the step with the sums of the whole tensors, the first two as means. Return
 * what afor_step returns. */
EXPORT int64_t afor_finish(struct plan *p, const double (*sums)[SUMS]) {
  const int64_t misfit = check_bounds(p);
  if (misfit) return misfit;
  finish(p, sums, !is_constant(p->settings) && loops_in_use->fetch);
  return 0;
}

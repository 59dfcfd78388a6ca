/* Runs the kernel on odd sizes, dtypes and alignments, in arrays that end exactly where the tensors
 * do, so that a sanitizer or valgrind sees any access outside them. Usage: driver LARGEST_SIZE */
#include "kernel.c"

#include <stdio.h>

static void *filled(int64_t n, size_t size, int dtype, double value) {
  /* one element in front, so that the tensor itself is not aligned */
  char *memory = malloc((size_t)(n + 1) * size);
  for (int64_t i = 0; i <= n; i++) {
    const double x = value * (double)((i * 7919) % 31 - 15);
    if (dtype == FLOAT64) ((double *)memory)[i] = x;
    else if (dtype == FLOAT32) ((float *)memory)[i] = (float)x;
    else if (dtype == BFLOAT16) ((uint16_t *)memory)[i] = to_bfloat16((float)x);
    else ((uint16_t *)memory)[i] = to_float16((float)x);
  }
  return memory;
}

static int run(const int64_t *sizes, int64_t tensors, int dtype, int threads, double scale) {
  static const size_t width[] = {4, 8, 2, 2};
  const size_t size = width[dtype], wide = dtype == FLOAT64 ? 8 : 4;
  const int moments = dtype == FLOAT64 ? FLOAT64 : FLOAT32;
  int64_t dtypes[8] = {0};
  for (int64_t t = 0; t < tensors; t++) dtypes[t] = dtype;
  struct plan *p = afor_plan_new(tensors, sizes, dtypes, NULL);
  void *owned[6][8];
  for (int64_t t = 0; t < tensors; t++) {
    const int64_t n = sizes[t];
    char *memory[6] = {filled(n, size, dtype, 0.1), filled(n, size, dtype, scale),
                       filled(n, wide, moments, 0.0), filled(n, wide, moments, 0.0),
                       calloc(FIELDS, wide), calloc(1, sizeof(float))};
    for (int k = 0; k < 6; k++) owned[k][t] = memory[k];
    p->param[t] = (uint64_t)(uintptr_t)(memory[0] + size);
    p->grad[t] = (uint64_t)(uintptr_t)(memory[1] + size);
    p->exp_avg[t] = (uint64_t)(uintptr_t)(memory[2] + wide);
    p->exp_avg_sq[t] = (uint64_t)(uintptr_t)(memory[3] + wide);
    p->control[t] = (uint64_t)(uintptr_t)memory[4];
    p->step[t] = (uint64_t)(uintptr_t)memory[5];
    const size_t bytes[ARRAYS] = {(size_t)(n + 1) * size, (size_t)(n + 1) * size,
                                  (size_t)(n + 1) * wide, (size_t)(n + 1) * wide,
                                  FIELDS * wide,          sizeof(float)};
    for (int k = 0; k < ARRAYS; k++) {
      p->storage[k * tensors + t] = (uint64_t)(uintptr_t)memory[k];
      p->storage_bytes[k * tensors + t] = bytes[k];
    }
  }
  const struct settings s = {.lr = 1e-3, .weight_decay = 1e-2, .grad_factor = 1, .beta1 = 0.9,
                             .beta2 = 0.999, .eps = 1e-8, .beta2_min = 0.99,
                             .direction_weight = 1, .direction_decay = 0.9, .warmup_steps = 2,
                             .fast_channel = 1, .self_normalized = 1, .fixed_mean = 1,
                             .fixed_scale = 2, .zscore_clip = 5, .cumulative = 1,
                             .threads = threads};
  *p->settings = s;
  int bad = 0;
  for (int step = 0; step < 3; step++) bad |= afor_step(p) != 0;
  double sums[8][SUMS]; /* and a step in two halves */
  bad |= afor_sums(p, sums) != 0;
  for (int64_t t = 0; t < tensors; t++)
    for (int k = RESIDUAL; k <= MOMENTUM; k++) sums[t][k] /= sizes[t] > 0 ? (double)sizes[t] : 1.0;
  bad |= afor_finish(p, sums) != 0;
  /* one byte less in any storage of a tensor that is not empty: refused, and named */
  for (int64_t k = 0; k < ARRAYS * tensors; k++) {
    const int64_t array = k / tensors, t = k % tensors;
    if (array < 4 && sizes[t] == 0) continue;
    p->storage_bytes[k]--;
    const int64_t misfit = 1 + array + ARRAYS * t;
    bad |= afor_step(p) != misfit || afor_sums(p, sums) != misfit || afor_finish(p, sums) != misfit;
    p->storage_bytes[k]++;
  }
  for (int64_t t = 0; t < tensors; t++) {
    const double q = moments == FLOAT64 ? ((double *)owned[4][t])[FORGETTING]
                                        : ((float *)owned[4][t])[FORGETTING];
    if (!(q >= 0.0009999 && q <= 0.0100001)) bad = 1;
    for (int k = 0; k < 6; k++) free(owned[k][t]);
  }
  afor_plan_free(p);
  return bad;
}

int main(int argc, char **argv) {
  const int64_t largest = argc > 1 ? atoll(argv[1]) : 100000;
  const double scales[] = {1.0, 1e-25, 1e25, 0.0};
  int cases = 0;
  afor_select("");
  for (int dtype = FLOAT32; dtype <= FLOAT16; dtype++)
    for (int threads = 1; threads <= 3; threads += 2)
      for (int k = 0; k < 4; k++) {
        if (dtype == FLOAT16 && scales[k] == 1e25) continue;
        for (int64_t n = 0; n <= 40; n++, cases++)
          if (run(&n, 1, dtype, threads, scales[k])) return 1;
        const int once = threads == 3 && k == 0; /* the largest takes long under valgrind */
        const int64_t odd[] = {once ? largest : 9999, 1023, 1025, 8191, 0, 8193, 65537, 1};
        if (run(odd, 8, dtype, threads, scales[k])) return 1;
        cases++;
      }
  printf("%d cases\n", cases);
  return 0;
}

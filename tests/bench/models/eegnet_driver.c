/* Runs the native EEGNet at random sizes, in arrays that end exactly where their numbers do, so that
 * a sanitizer sees any access outside them. Usage: driver NETWORKS */
#include "eegnet.c"

#include <stdio.h>

static uint64_t state = 1;

static int64_t draw(int64_t below) {
  state = state * 6364136223846793005u + 1442695040888963407u;
  return (int64_t)((state >> 33) % (uint64_t)below);
}

/* Aligned as torch does it, and ending with the block. */
static void *filled(int array, int64_t elements, int dtype) {
  const int is_bytes = array == KEEP_1 || array == KEEP_2 || array == SCRATCH;
  const int is_double = array == MOMENTS || array == STATISTICS || dtype == FLOAT64;
  const size_t size = is_bytes ? 1 : is_double ? 8 : 4;
  void *memory = NULL;
  if (posix_memalign(&memory, ALIGNMENT, (size_t)elements * size)) abort();
  for (int64_t i = 0; i < elements; i++) {
    const double value = (double)(draw(2001) - 1000) / 500.0;
    if (is_bytes) ((uint8_t *)memory)[i] = (uint8_t)draw(2);
    else if (array == STATISTICS) ((double *)memory)[i] = 1.0 + value * value;
    else if (is_double) ((double *)memory)[i] = value;
    else ((float *)memory)[i] = (float)value;
  }
  return memory;
}

static int run(struct call *call, int which, int64_t (*function)(const struct call *)) {
  int64_t elements[ARRAYS];
  int bad = afor_eegnet_elements(call, which, elements) != 0;
  void *owned[3] = {NULL, NULL, NULL};
  const int own[3] = {SCRATCH, FEATURES, STATISTICS};
  for (int i = 0; i < 3; i++) {
    if (own[i] == STATISTICS && which != OF_EVALUATION) continue;
    owned[i] = filled(own[i], elements[own[i]], (int)call->dtype);
    call->array[own[i]] = (struct array){owned[i], elements[own[i]]};
  }
  bad |= function(call) != 0;
  for (int i = 0; i < 3; i++) free(owned[i]);
  return bad;
}

int main(int argc, char **argv) {
  const int64_t networks = argc > 1 ? atoll(argv[1]) : 100;
  int64_t failures = 0;
  if (!afor_eegnet_select("")) return 2;
  for (int64_t n = 0; n < networks; n++) {
    struct call call = {.dtype = n % 2, .threads = 1 + n % 3, .eps = {1e-3, 1e-3, 1e-3},
                        .keep_factor = 2.0};
    struct shape *s = &call.shape;
    s->groups = 1 + draw(2);
    s->batch = 1 + draw(21);
    s->channels = 1 + draw(9);
    s->pool = 1 + draw(5);
    s->second_pool = 1 + draw(9);
    s->samples = s->pool * s->second_pool + draw(70);
    s->filters = s->groups * (1 + draw(5));
    s->depth = 1 + draw(3);
    s->outputs = s->groups * (1 + draw(6));
    s->kernel = 1 + draw(s->samples);
    s->second_kernel = 1 + draw(20);
    int64_t elements[ARRAYS];
    if (afor_eegnet_elements(&call, OF_FORWARD, elements)) failures++;
    for (int i = 0; i < ARRAYS; i++)
      call.array[i] = (struct array){filled(i, elements[i], (int)call.dtype), elements[i]};
    struct array mine[ARRAYS];
    memcpy(mine, call.array, sizeof mine);
    if (n % 5 == 0) call.array[KEEP_1].address = call.array[KEEP_2].address = NULL;
    failures += run(&call, OF_FORWARD, afor_eegnet_forward);
    failures += run(&call, OF_BACKWARD, afor_eegnet_backward);
    failures += run(&call, OF_EVALUATION, afor_eegnet_evaluate);
    for (int i = 0; i < ARRAYS; i++) free(mine[i].address);
  }
  printf("%lld networks, %lld failures\n", (long long)networks, (long long)failures);
  return failures != 0;
}

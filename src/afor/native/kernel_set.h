/* All loops over elements for one instruction set; included by kernel.c once for each, with
 *   SET      its name
 *   TARGET   the attribute that lets the compiler use it
 *   WIDTH    bytes in a vector register
 *   SWEEP    vectors of a row of lanes that are summed in one sweep; the accumulators of the five
 *            sums and the values in between fit into the registers
 *   LOCALITY fetch the chunk that comes next into the first cache (3) or the second (2)
 *   PLACES   the sums of a full chunk fetch the next one from its beginning (1) or from this many
 *            evenly spaced places in turn
 *   FETCH    1: the update of a full chunk fetches the next one too, and large tensors are updated
 *            from their end; 0: they are updated in the order of memory, where the processor
 *            fetches ahead by itself
 * The lanes and the order of additions are the same in all of them, and so are the results. */

#define SET_NAME_(name, set) name##_##set
#define SET_NAME_OF(name, set) SET_NAME_(name, set)
#define SET_NAME(name) SET_NAME_OF(name, SET)
#define LOCAL TARGET static
#define INLINE TARGET static inline __attribute__((always_inline))

#define REAL float
#define BITS int32_t
#define MAGNITUDE 0x7fffffff
#define LANES 16
#define NAME(x) SET_NAME(x##_f32)
#define LARGEST FLT_MAX
#define SQRT sqrtf
#include "kernel_body.h"

#define REAL double
#define BITS int64_t
#define MAGNITUDE 0x7fffffffffffffffLL
#define LANES 8
#define NAME(x) SET_NAME(x##_f64)
#define LARGEST DBL_MAX
#define SQRT sqrt
#include "kernel_body.h"

#define HALF(type)                                                                               \
  LOCAL void SET_NAME(widen_##type)(const uint16_t *from, float *to, int64_t n) {                \
    for (int64_t i = 0; i < n; i++) to[i] = from_##type(from[i]);                                \
  }                                                                                              \
  LOCAL void SET_NAME(narrow_##type)(const float *from, uint16_t *to, int64_t n) {               \
    for (int64_t i = 0; i < n; i++) to[i] = to_##type(from[i]);                                  \
  }
HALF(bfloat16)
HALF(float16)
#undef HALF

static const struct loops SET_NAME(loops) = {
    SET_NAME(sum_chunk_f32),  SET_NAME(sum_chunk_f64),   SET_NAME(update_chunk_f32),
    SET_NAME(update_chunk_f64), SET_NAME(widen_bfloat16), SET_NAME(widen_float16),
    SET_NAME(narrow_bfloat16), SET_NAME(narrow_float16), FETCH,
};

#undef SET_NAME_
#undef SET_NAME_OF
#undef SET_NAME
#undef LOCAL
#undef INLINE
#undef SET
#undef TARGET
#undef WIDTH
#undef SWEEP
#undef LOCALITY
#undef PLACES
#undef FETCH

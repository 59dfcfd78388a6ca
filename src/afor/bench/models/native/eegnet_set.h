/* All loops for one instruction set; included by eegnet.c once for each, with
 *   SET      its name
 *   TARGET   the attribute that lets the compiler use it
 *   WIDTH    bytes in a vector register */

#define LOCAL TARGET static
#define INLINE TARGET static inline __attribute__((always_inline))

#define REAL float
#define BITS uint32_t
#define FRACTION_BITS 23
#define EXPONENT_OF_ONE 0x3f800000u
#define ROUNDER 12582912.0f /* 1.5·2^23: adding it rounds to an integer */
#define LOG2_E 1.44269504f
#define LN2_HIGH 0.693145752f
#define LN2_LOW 1.42860677e-6f
#define LOWEST -87.0f
#define POLYNOMIAL {1.0f / 5040, 1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f}
#define LANES (WIDTH / 4)
#define NAME(x) CONCAT(x, SET, f32)
#if WIDTH == 32
#define ZIP_LOW {0, 8, 1, 9, 2, 10, 3, 11}
#define ZIP_HIGH {4, 12, 5, 13, 6, 14, 7, 15}
#else
#define ZIP_LOW {0, 4, 1, 5}
#define ZIP_HIGH {2, 6, 3, 7}
#endif
#include "eegnet_body.h"

#define REAL double
#define BITS uint64_t
#define FRACTION_BITS 52
#define EXPONENT_OF_ONE 0x3ff0000000000000u
#define ROUNDER 6755399441055744.0 /* 1.5·2^52 */
#define LOG2_E 1.4426950408889634
#define LN2_HIGH 0.693147180369123816490
#define LN2_LOW 1.90821492927058770002e-10
#define LOWEST -708.0
#define POLYNOMIAL                                                                               \
  {1.0 / 6227020800, 1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880, 1.0 / 40320,  \
   1.0 / 5040, 1.0 / 720, 1.0 / 120, 1.0 / 24, 1.0 / 6, 0.5}
#define LANES (WIDTH / 8)
#define NAME(x) CONCAT(x, SET, f64)
#if WIDTH == 32
#define ZIP_LOW {0, 4, 1, 5}
#define ZIP_HIGH {2, 6, 3, 7}
#else
#define ZIP_LOW {0, 2}
#define ZIP_HIGH {1, 3}
#endif
#include "eegnet_body.h"

static int64_t CONCAT(saved, SET, any)(const struct sizes *z, int dtype) {
  return dtype == FLOAT64 ? CONCAT(saved_count, SET, f64)(z) : CONCAT(saved_count, SET, f32)(z);
}

static int64_t CONCAT(scratch, SET, any)(const struct sizes *z, int dtype, int which) {
  return dtype == FLOAT64 ? CONCAT(scratch_bytes, SET, f64)(z, which)
                          : CONCAT(scratch_bytes, SET, f32)(z, which);
}

#define STEPS_(set) steps_##set
#define STEPS(set) STEPS_(set)
static const struct steps STEPS(SET) = {
    {WIDTH / 4, WIDTH / 8},
    CONCAT(saved, SET, any),
    CONCAT(scratch, SET, any),
    {CONCAT(forward, SET, f32), CONCAT(forward, SET, f64)},
    {CONCAT(backward, SET, f32), CONCAT(backward, SET, f64)},
    {CONCAT(evaluate, SET, f32), CONCAT(evaluate, SET, f64)},
};
#undef STEPS
#undef STEPS_
#undef LOCAL
#undef INLINE
#undef SET
#undef TARGET
#undef WIDTH

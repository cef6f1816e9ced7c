// FP8 as TileLang's HIP templates use it: E4M3 and E5M2 in both encodings, by arithmetic that every target has.
#pragma once
#include "../../w2w_tile.h"
#include "w2w_fp8.h"

// E5M2   OCP: bias 15, largest 57344, infinity 0x7c; FNUZ: bias 16, largest 57344, one NaN (0x80), no negative zero
template <bool fnuz> __W2W unsigned char __w2w_to_e5m2(float x) {
  constexpr int bias = fnuz ? 16 : 15;
  if (x != x) return fnuz ? 0x80 : 0x7f;
  float size = fminf(fabsf(x), 57344.0f);
  int exponent = max((int)(__float_as_uint(size) >> 23) - 127, 1 - bias);
  int units = (int)rintf(size * __int_as_float((127 + 2 - exponent) << 23));
  int code = (exponent + bias - 1) * 4 + units;
  return fnuz && code == 0 ? 0 : code | (__float_as_uint(x) >> 31 << 7);
}
template <bool fnuz> __W2W float __w2w_from_e5m2(unsigned char code) {
  constexpr int bias = fnuz ? 16 : 15;
  if (fnuz ? code == 0x80 : (code & 0x7f) > 0x7c) return NAN;
  int exponent = code >> 2 & 31, mantissa = code & 3;
  float size = (exponent ? 4 + mantissa : mantissa) * __int_as_float((max(exponent, 1) - bias - 2 + 127) << 23);
  if (!fnuz && (code & 0x7f) == 0x7c) size = INFINITY;
  return code >> 7 ? -size : size;
}

typedef unsigned char __hip_fp8_storage_t;
enum __hip_saturation_t { __HIP_SATFINITE };
enum __hip_fp8_interpretation_t { __HIP_E4M3, __HIP_E4M3_FNUZ, __HIP_E5M2, __HIP_E5M2_FNUZ };
__W2W __hip_fp8_storage_t __hip_cvt_float_to_fp8(float x, __hip_saturation_t, __hip_fp8_interpretation_t encoding) {
  switch (encoding) {
    case __HIP_E4M3: return __w2w_to_e4m3<false>(x);
    case __HIP_E4M3_FNUZ: return __w2w_to_e4m3<true>(x);
    case __HIP_E5M2: return __w2w_to_e5m2<false>(x);
    default: return __w2w_to_e5m2<true>(x);
  }
}

#define __W2W_TILE_FP8(format, suffix, fnuz) \
  struct __hip_fp8_##format##suffix { \
    unsigned char __x; \
    explicit __device__ __forceinline__ operator float() const { return __w2w_from_##format<fnuz>(__x); } \
  }; \
  struct __hip_fp8x2_##format##suffix { unsigned short __x; }; \
  struct __hip_fp8x4_##format##suffix { unsigned __x; };
__W2W_TILE_FP8(e4m3, , false)
__W2W_TILE_FP8(e4m3, _fnuz, true)
__W2W_TILE_FP8(e5m2, , false)
__W2W_TILE_FP8(e5m2, _fnuz, true)

// FP8 E4M3 in its two encodings, by arithmetic that every target has: round to nearest even, saturating.
//   OCP   bias 7, largest 448, NaN 0x7f and 0xff
//   FNUZ  bias 8, largest 240, one NaN (0x80), no negative zero
#pragma once
#include "w2w_gpu.h"

template <bool fnuz> __W2W unsigned char __w2w_to_e4m3(float x) {
  constexpr int bias = fnuz ? 8 : 7;
  if (x != x) return fnuz ? 0x80 : 0x7f;
  float size = fminf(fabsf(x), fnuz ? 240.0f : 448.0f);
  int exponent = max((int)(__float_as_uint(size) >> 23) - 127, 1 - bias);
  // In units of the last of three mantissa bits; 16 carries into the exponent by itself.
  int units = (int)rintf(size * __int_as_float((127 + 3 - exponent) << 23));
  int code = (exponent + bias - 1) * 8 + units;
  return fnuz && code == 0 ? 0 : code | (__float_as_uint(x) >> 31 << 7);
}

template <bool fnuz> __W2W float __w2w_from_e4m3(unsigned char code) {
  constexpr int bias = fnuz ? 8 : 7;
  if (fnuz ? code == 0x80 : (code & 0x7f) == 0x7f) return NAN;
  int exponent = code >> 3 & 15, mantissa = code & 7;
  float size = (exponent ? 8 + mantissa : mantissa) * __int_as_float((max(exponent, 1) - bias - 3 + 127) << 23);
  return code >> 7 ? -size : size;
}

#define __W2W_FP8(name, fnuz, why) \
  struct why name { \
    unsigned char __x; \
    name() = default; \
    explicit __device__ __forceinline__ name(float x) : __x(__w2w_to_e4m3<fnuz>(x)) {} \
    explicit __device__ __forceinline__ operator float() const { return __w2w_from_e4m3<fnuz>(__x); } \
  };

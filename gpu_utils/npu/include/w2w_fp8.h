// Numbers of 8 bits and below, and the rounding that every conversion to fewer bits uses.
#pragma once

#include "w2w_simt.h"

#pragma clang attribute push(W2W_QUIET, apply_to = function)

namespace w2w {

enum Rounding { TO_EVEN, AWAY, FLOOR, CEIL, TO_ZERO };

inline double whole(double v, Rounding how) {
  switch (how) {
  case AWAY:
    return v < 0 ? -__builtin_floor(0.5 - v) : __builtin_floor(v + 0.5);
  case FLOOR:
    return __builtin_floor(v);
  case CEIL:
    return __builtin_ceil(v);
  case TO_ZERO:
    return __builtin_trunc(v);
  default:
    return __builtin_rint(v);
  }
}

// 2^power as a double, for powers of normal numbers.
inline double two_to(int power) { return __builtin_bit_cast(double, uint64_t(power + 1023) << 52); }

// v on the grid of a format with so many bits of fraction, whose smallest normal number is 2^least.
inline double on_grid(double v, int bits, int least, Rounding how) {
  const int power = int(__builtin_bit_cast(uint64_t, v) >> 52 & 0x7ff) - 1023;
  if (power == 1024 || v == 0)
    return v;
  const double step = two_to((power < least ? least : power) - bits);
  return whole(v / step, how) * step;
}

// The bits of a number that lies on the grid: sign, exponent, fraction.
inline uint32_t packed(double v, int bits, int least, int exponent_bits) {
  const uint64_t all = __builtin_bit_cast(uint64_t, v);
  const uint32_t sign = uint32_t(all >> 63) << (bits + exponent_bits);
  const double size = v < 0 ? -v : v;
  if (size < two_to(least))
    return sign | uint32_t(size / two_to(least - bits));
  const int power = int(all >> 52 & 0x7ff) - 1023;
  return sign | uint32_t(power - least + 1) << bits | uint32_t(all >> (52 - bits) & ((1u << bits) - 1));
}

// Bits of fraction, exponent of the smallest normal number, greatest number.
template <class T> struct Format;
template <> struct Format<float> { static constexpr int bits = 23, least = -126; static constexpr double most = 0x1.fffffep127; };
template <> struct Format<half> { static constexpr int bits = 10, least = -14; static constexpr double most = 65504; };
template <> struct Format<bfloat16_t> { static constexpr int bits = 7, least = -126; static constexpr double most = 0x1.fep127; };

// An 8-bit float; a value beyond the greatest becomes the greatest (`saturate`), infinity, or NaN where there is none.
template <int BITS, int EXPONENT_BITS, bool INFINITIES> struct Float8 {
  uint8_t data;
  static constexpr int bits = BITS, least = 2 - (1 << (EXPONENT_BITS - 1));
  static constexpr double most = INFINITIES ? 57344 : 448;
  static constexpr uint8_t nan = 0x7f, infinity = 0x7c;
  Float8() = default;
  Float8(float v) { *this = rounded(v, TO_EVEN, true); }
  static Float8 from_bits(uint8_t bits_of) {
    Float8 made;
    made.data = bits_of;
    return made;
  }
  static Float8 rounded(double v, Rounding how, bool saturate) {
    if (v != v)
      return from_bits(saturate ? 0 : nan);
    double on = on_grid(v, bits, least, how);
    if (on > most || on < -most) {
      if (!saturate)
        return from_bits((INFINITIES ? infinity : nan) | (v < 0 ? 0x80 : 0));
      on = v < 0 ? -most : most;
    }
    return from_bits(uint8_t(packed(on, bits, least, EXPONENT_BITS)));
  }
  operator float() const {
    const int power = data >> bits & ((1 << EXPONENT_BITS) - 1), fraction = data & ((1 << bits) - 1);
    if (INFINITIES ? power == (1 << EXPONENT_BITS) - 1 : (data & 0x7f) == nan)
      return fraction ? __builtin_nanf("") : (data & 0x80 ? -1 : 1) * __builtin_huge_valf();
    const double size = power ? (1.0 + fraction / double(1 << bits)) * two_to(power + least - 1) : fraction * two_to(least - bits);
    return float(data & 0x80 ? -size : size);
  }
};

// v as a T, with the rounding and the treatment of what is too great that a conversion names.
template <class T> T rounded(double v, Rounding how, bool saturate) {
  if constexpr (std::is_integral_v<T>) {
    constexpr bool SIGNED = T(-1) < T(0);
    const double bottom = SIGNED ? -two_to(8 * sizeof(T) - 1) : 0, top = two_to(8 * sizeof(T) - SIGNED);
    if (v != v)
      return T(0);
    const double on = whole(v, how);
    if (saturate || v - v != 0) {
      if (on >= top)
        return T(~(SIGNED ? T(1) << (8 * sizeof(T) - 1) : T(0)));
      if (on < bottom)
        return T(SIGNED ? T(1) << (8 * sizeof(T) - 1) : T(0));
    }
    return T(uint64_t(int64_t(on)));
  } else if constexpr (requires { T::from_bits(0); }) {
    return T::rounded(v, how, saturate);
  } else {
    using F = Format<T>;
    if (v != v)
      return saturate && sizeof(T) < 4 ? T(0.0f) : T(__builtin_nanf(""));
    double on = on_grid(v, F::bits, F::least, how);
    if (on > F::most || on < -F::most)
      on = saturate ? (v < 0 ? -F::most : F::most) : (v < 0 ? -1 : 1) * __builtin_huge_val();
    return T(float(on));
  }
}

} // namespace w2w

#pragma clang attribute pop

typedef w2w::Float8<3, 4, false> float8_e4m3_t;
typedef w2w::Float8<2, 5, true> float8_e5m2_t;
struct float8_e8m0_t {
  uint8_t data;
};
struct float4_e1m2x2_t {
  uint8_t bits;
};

// Two at a time, as TileLang's ascend_fp8.h asks for them.
#define __SIMT_DEVICE_FUNCTIONS_DECL__ __attribute__((no_sanitize("thread")))
typedef uint16_t __asc_fp8x2_storage_t;
struct float8_e4m3x2_t {
  float8_e4m3_t x, y;
};
struct float8_e5m2x2_t {
  float8_e5m2_t x, y;
};
enum w2w_saturation { __ASC_NOSAT, __ASC_SATFINITE };
enum w2w_float8 { __ASC_E4M3, __ASC_E5M2 };
W2W_QUIET inline __asc_fp8x2_storage_t __asc_cvt_float2_to_fp8x2(float2 v, w2w_saturation how, w2w_float8 kind) {
  auto byte = [=](float one) {
    return kind == __ASC_E4M3 ? float8_e4m3_t::rounded(one, w2w::TO_EVEN, how).data : float8_e5m2_t::rounded(one, w2w::TO_EVEN, how).data;
  };
  return __asc_fp8x2_storage_t(byte(v.x) | byte(v.y) << 8);
}
W2W_QUIET inline float2 __e4m3x22float2(float8_e4m3x2_t v) { return {float(v.x), float(v.y)}; }
W2W_QUIET inline float2 __e5m2x22float2(float8_e5m2x2_t v) { return {float(v.x), float(v.y)}; }

// SIMD: vector registers of 256 bytes, masks of a bit for each byte, and what a SIMD vector function does with them.
//
// Semantics are those of the C API's documentation of CANN. Where two documents disagree or none says it, the operation
// is refused by name ("not modelled"). Integers wrap; floats are IEEE, without the flush of subnormal results.
#pragma once

#include "w2w_fp8.h"

#pragma clang attribute push(W2W_QUIET, apply_to = function)

// ------------------------------------------------------------------------------------------- registers and words

constexpr int W2W_VL = 256;
template <class T> struct w2w_vector {
  static constexpr int LANES = W2W_VL / sizeof(T);
  using type = T;
  T lane[LANES];
};
// Of an element of several bytes, the first bit counts.
struct vector_bool {
  bool bit[W2W_VL];
};

#define W2W_REGISTER(name, type) typedef w2w_vector<type> vector_##name;
W2W_REGISTER(f32, float) W2W_REGISTER(f16, half) W2W_REGISTER(bf16, bfloat16_t) W2W_REGISTER(f8e4m3, float8_e4m3_t)
W2W_REGISTER(f8e5m2, float8_e5m2_t) W2W_REGISTER(f8e8m0, float8_e8m0_t) W2W_REGISTER(f4e2m1x2, float4_e2m1x2_t)
W2W_REGISTER(f4e1m2x2, float4_e1m2x2_t) W2W_REGISTER(u8, uint8_t) W2W_REGISTER(u16, uint16_t) W2W_REGISTER(u32, uint32_t)
W2W_REGISTER(u64, uint64_t) W2W_REGISTER(s8, int8_t) W2W_REGISTER(s16, int16_t) W2W_REGISTER(s32, int32_t)
W2W_REGISTER(s64, int64_t) W2W_REGISTER(uint16_t, uint16_t) W2W_REGISTER(uint32_t, uint32_t)

// A word that steers an operation: which family, and which of it.
template <int FAMILY, int VALUE> struct w2w_word {
  constexpr operator int() const { return VALUE; }
};
#define W2W_WORD(name, family, value) constexpr w2w_word<family, value> name{};
W2W_WORD(MODE_ZEROING, 0, 0) W2W_WORD(MODE_MERGING, 0, 1) W2W_WORD(MODE_STORED, 0, 2)
W2W_WORD(ROUND_R, 1, w2w::TO_EVEN) W2W_WORD(ROUND_A, 1, w2w::AWAY) W2W_WORD(ROUND_F, 1, w2w::FLOOR)
W2W_WORD(ROUND_C, 1, w2w::CEIL) W2W_WORD(ROUND_Z, 1, w2w::TO_ZERO) W2W_WORD(ROUND_O, 1, 8) W2W_WORD(ROUND_H, 1, 9)
W2W_WORD(RS_DISABLE, 2, 0) W2W_WORD(RS_ENABLE, 2, 1)
W2W_WORD(PART_EVEN, 3, 0) W2W_WORD(PART_ODD, 3, 1)
W2W_WORD(PART_P0, 3, 0) W2W_WORD(PART_P1, 3, 1) W2W_WORD(PART_P2, 3, 2) W2W_WORD(PART_P3, 3, 3)
W2W_WORD(LOWER, 4, 0) W2W_WORD(HIGHER, 4, 1) W2W_WORD(INC_ORDER, 5, 0) W2W_WORD(DEC_ORDER, 5, 1)
W2W_WORD(POS_LOWEST, 6, 0) W2W_WORD(POS_HIGHEST, 6, 1) W2W_WORD(POST_UPDATE, 7, 1) W2W_WORD(Bin_N0, 8, 0) W2W_WORD(Bin_N1, 8, 1)
W2W_WORD(DINTLV_B8, 9, 1) W2W_WORD(DINTLV_B16, 9, 2) W2W_WORD(DINTLV_B32, 9, 4)
W2W_WORD(VV_ALL, 10, 0) W2W_WORD(VST_VLD, 10, 1) W2W_WORD(VLD_VST, 10, 2) W2W_WORD(VST_VST, 10, 3) W2W_WORD(VS_ALL, 10, 4)
W2W_WORD(VST_LD, 10, 5) W2W_WORD(VLD_ST, 10, 6) W2W_WORD(VST_ST, 10, 7) W2W_WORD(SV_ALL, 10, 8)

enum w2w_pattern {
  PAT_ALL, PAT_VL1 = 1, PAT_VL2 = 2, PAT_VL3 = 3, PAT_VL4 = 4, PAT_VL8 = 8, PAT_VL16 = 16, PAT_VL32 = 32, PAT_VL64 = 64,
  PAT_VL128 = 128, PAT_M3 = 1003, PAT_M4 = 1004, PAT_H = 2002, PAT_Q = 2004, PAT_ALLF = 3000
};

namespace w2w {
template <int FAMILY> constexpr int word(int otherwise) { return otherwise; }
template <int FAMILY, int OTHER, int VALUE, class... Rest> constexpr int word(int otherwise, w2w_word<OTHER, VALUE>, Rest... rest) {
  return FAMILY == OTHER ? VALUE : word<FAMILY>(otherwise, rest...);
}

// f(i) says whether lane i is active.
template <class F> vector_bool mask_of(int width, F f) {
  vector_bool made{};
  for (int i = 0; i < W2W_VL / width; ++i)
    made.bit[i * width] = f(i);
  return made;
}
inline vector_bool patterned(int width, int pattern) {
  const int lanes_here = W2W_VL / width;
  return mask_of(width, [=](int i) {
    return pattern == PAT_ALL        ? true
           : pattern == PAT_ALLF     ? false
           : pattern > 2000          ? i < lanes_here / (pattern - 2000)
           : pattern > 1000          ? i % (pattern - 1000) == 0
                                     : i < pattern;
  });
}
inline vector_bool first_of(int width, uint32_t &count) {
  const uint32_t lanes_here = W2W_VL / width, had = count;
  count = had < lanes_here ? 0 : had - lanes_here;
  return mask_of(width, [=](int i) { return uint32_t(i) < had; });
}

// dst[i] = f(i) in active lanes, zero in the others.
template <class T, class F> void each(w2w_vector<T> &dst, const vector_bool &mask, F f) {
  w2w_vector<T> made;
  memset(&made, 0, sizeof made);
  int active = 0;
  for (int i = 0; i < made.LANES; ++i)
    if (mask.bit[i * sizeof(T)])
      made.lane[i] = f(i), ++active;
  w2w_count_vector(active);
  dst = made;
}
template <class T, class F> void each_bit(vector_bool &dst, const vector_bool &mask, F f) {
  int active = 0;
  dst = mask_of(sizeof(T), [&](int i) { return mask.bit[i * sizeof(T)] && (++active, f(i)); });
  w2w_count_vector(active);
}
template <class T> constexpr T least_of() {
  if constexpr (std::is_integral_v<T>)
    return T(-1) < T(0) ? T(T(1) << (8 * sizeof(T) - 1)) : T(0);
  else
    return T(-__builtin_huge_valf());
}
template <class T> constexpr T greatest_of() {
  if constexpr (std::is_integral_v<T>)
    return T(~least_of<T>());
  else
    return T(__builtin_huge_valf());
}
template <class T> bool is_nan(T v) { return v != v; }
template <class T> bool negative_zero(T v) {
  if constexpr (std::is_integral_v<T>)
    return false;
  else
    return v == T(0.0f) && __builtin_signbit(float(v));
}
// Whether a is the better one of a maximum (or minimum): NaN first, and +0 above -0.
template <bool GREATEST, class T> bool better(T a, T b) {
  if (is_nan(a) || is_nan(b))
    return is_nan(a) && !is_nan(b);
  if (a == b)
    return GREATEST ? negative_zero(b) && !negative_zero(a) : negative_zero(a) && !negative_zero(b);
  return GREATEST ? a > b : a < b;
}
// The sum of active lanes in [from, from + count), in pairs of neighbours.
template <class D, class T> D tree(const w2w_vector<T> &src, const vector_bool &mask, int from, int count) {
  if (count == 1)
    return mask.bit[from * sizeof(T)] ? D(src.lane[from]) : D(0);
  return D(tree<D>(src, mask, from, count / 2) + tree<D>(src, mask, from + count / 2, count / 2));
}
template <bool GREATEST, class T> int best_of(const w2w_vector<T> &src, const vector_bool &mask, int from, int count) {
  int best = -1;
  for (int i = from; i < from + count; ++i)
    if (mask.bit[i * sizeof(T)] && (best < 0 || better<GREATEST>(src.lane[i], src.lane[best])))
      best = i;
  return best;
}
inline int active_in(const vector_bool &mask, int width) {
  int active = 0;
  for (int i = 0; i < W2W_VL; i += width)
    active += mask.bit[i];
  return active;
}
template <class T> T fused(T a, T b, T c) {
  if constexpr (std::is_same_v<T, float>)
    return fmaf(a, b, c);
  else if constexpr (std::is_integral_v<T>)
    return T(a * b + c);
  else
    return rounded<T>(double(float(a)) * double(float(b)) + double(float(c)), TO_EVEN, false);
}
} // namespace w2w

// ------------------------------------------------------------------------------------------- masks

#define W2W_MASKS(name, width)                                                                                         \
  inline vector_bool asc_create_mask_##name(int pattern) { return w2w::patterned(width, pattern); }                     \
  inline vector_bool asc_update_mask_##name(uint32_t &count) { return w2w::first_of(width, count); }                    \
  inline void asc_intlv_##name(vector_bool &low, vector_bool &high, vector_bool a, vector_bool b) {                     \
    vector_bool both[2];                                                                                                \
    for (int i = 0; i < 2 * W2W_VL; ++i)                                                                                \
      both[i / W2W_VL].bit[i % W2W_VL] = (i / width % 2 ? b : a).bit[i / (2 * width) * width + i % width];              \
    low = both[0], high = both[1];                                                                                      \
  }                                                                                                                     \
  inline void asc_deintlv_##name(vector_bool &even, vector_bool &odd, vector_bool a, vector_bool b) {                   \
    vector_bool made[2];                                                                                                \
    for (int i = 0; i < 2 * W2W_VL; ++i)                                                                                \
      made[i / width % 2].bit[i / (2 * width) * width + i % width] = (i < W2W_VL ? a : b).bit[i % W2W_VL];              \
    even = made[0], odd = made[1];                                                                                      \
  }
W2W_MASKS(b8, 1)
W2W_MASKS(b16, 2)
W2W_MASKS(b32, 4)

#define W2W_MASK_LOGIC(name, expression)                                                                               \
  inline void name(vector_bool &dst, vector_bool a, vector_bool b, vector_bool mask) {                                  \
    for (int i = 0; i < W2W_VL; ++i)                                                                                    \
      dst.bit[i] = expression;                                                                                          \
  }
W2W_MASK_LOGIC(asc_and, mask.bit[i] && a.bit[i] && b.bit[i])
W2W_MASK_LOGIC(asc_or, mask.bit[i] && (a.bit[i] || b.bit[i]))
W2W_MASK_LOGIC(asc_xor, mask.bit[i] && a.bit[i] != b.bit[i])
W2W_MASK_LOGIC(asc_select, mask.bit[i] ? a.bit[i] : b.bit[i])
inline void asc_not(vector_bool &dst, vector_bool a, vector_bool mask) {
  for (int i = 0; i < W2W_VL; ++i)
    dst.bit[i] = mask.bit[i] && !a.bit[i];
}
// Packed: of each two bits the first. Unpacked: each bit, and a zero.
inline void w2w_packed(vector_bool &dst, vector_bool src, int start) {
  dst = vector_bool{};
  for (int i = 0; i < W2W_VL / 2; ++i)
    dst.bit[start + i] = src.bit[2 * i];
}
inline void w2w_unpacked(vector_bool &dst, vector_bool src, int start) {
  dst = vector_bool{};
  for (int i = 0; i < W2W_VL / 2; ++i)
    dst.bit[2 * i] = src.bit[start + i];
}
inline void asc_pack_to_low(vector_bool &dst, vector_bool src) { w2w_packed(dst, src, 0); }
inline void asc_pack_to_high(vector_bool &dst, vector_bool src) { w2w_packed(dst, src, W2W_VL / 2); }
inline void asc_unpack_lower(vector_bool &dst, vector_bool src) { w2w_unpacked(dst, src, 0); }
inline void asc_unpack_upper(vector_bool &dst, vector_bool src) { w2w_unpacked(dst, src, W2W_VL / 2); }

// ------------------------------------------------------------------------------------------- arithmetic

#define W2W_BINARY(name, expression)                                                                                   \
  template <class T> void name(w2w_vector<T> &dst, w2w_vector<T> one, w2w_vector<T> two, vector_bool mask) {            \
    w2w::each(dst, mask, [&](int i) {                                                                                   \
      const T a = one.lane[i], b = two.lane[i];                                                                         \
      return T(expression);                                                                                             \
    });                                                                                                                 \
  }
#define W2W_SCALAR(name, expression)                                                                                   \
  template <class T, class S> void name(w2w_vector<T> &dst, w2w_vector<T> one, S two, vector_bool mask) {               \
    const T b = T(two);                                                                                                 \
    w2w::each(dst, mask, [&](int i) {                                                                                   \
      const T a = one.lane[i];                                                                                          \
      return T(expression);                                                                                             \
    });                                                                                                                 \
  }
#define W2W_BOTH(name, scalar_name, expression) W2W_BINARY(name, expression) W2W_SCALAR(scalar_name, expression)
W2W_BOTH(asc_add, asc_add_scalar, a + b)
W2W_BOTH(asc_mul, asc_mul_scalar, a *b)
W2W_BOTH(asc_max, asc_max_scalar, (w2w::better<true>(a, b) ? a : b))
W2W_BOTH(asc_min, asc_min_scalar, (w2w::better<false>(a, b) ? a : b))
W2W_BINARY(asc_sub, a - b)
W2W_BINARY(asc_div, a / b)
W2W_BINARY(asc_and, a & b)
W2W_BINARY(asc_or, a | b)
W2W_BINARY(asc_xor, a ^ b)
W2W_BINARY(asc_abs_sub, a > b ? a - b : b - a)
W2W_BINARY(asc_prelu, a > T(0) ? a : a * b)
W2W_SCALAR(asc_leakyrelu, a > T(0) ? a : a * b)
W2W_BINARY(asc_exp_sub, T(expf(float(a) - float(b))))
// A shift by as many bits as an element has, or more, leaves zeros (or copies of the sign).
template <class T, class S> T w2w_left(T a, S by) { return uint64_t(by) >= 8 * sizeof(T) ? T(0) : T(a << by); }
template <class T, class S> T w2w_right(T a, S by) { return T(a >> (uint64_t(by) >= 8 * sizeof(T) ? 8 * sizeof(T) - 1 : by) >> (uint64_t(by) >= 8 * sizeof(T))); }
#define W2W_SHIFT(name, how)                                                                                           \
  template <class T, class B> void name(w2w_vector<T> &dst, w2w_vector<T> one, w2w_vector<B> two, vector_bool mask) {   \
    w2w::each(dst, mask, [&](int i) { return how(one.lane[i], two.lane[i]); });                                         \
  }                                                                                                                     \
  template <class T, class S> void name##_scalar(w2w_vector<T> &dst, w2w_vector<T> one, S by, vector_bool mask) {       \
    w2w::each(dst, mask, [&](int i) { return how(one.lane[i], by); });                                                  \
  }
W2W_SHIFT(asc_shiftleft, w2w_left)
W2W_SHIFT(asc_shiftright, w2w_right)

#define W2W_UNARY(name, expression)                                                                                    \
  template <class T> void name(w2w_vector<T> &dst, w2w_vector<T> one, vector_bool mask) {                               \
    w2w::each(dst, mask, [&](int i) {                                                                                   \
      const T a = one.lane[i];                                                                                          \
      return T(expression);                                                                                             \
    });                                                                                                                 \
  }
W2W_UNARY(asc_exp, expf(float(a)))
W2W_UNARY(asc_ln, logf(float(a)))
W2W_UNARY(asc_sqrt, sqrtf(float(a)))
W2W_UNARY(asc_abs, a < T(0) || w2w::negative_zero(a) ? -a : a)
W2W_UNARY(asc_neg, -a)
W2W_UNARY(asc_relu, a > T(0) || a != a ? a : T(0))
W2W_UNARY(asc_not, ~a)

template <class T> void asc_madd(w2w_vector<T> &dst, w2w_vector<T> one, w2w_vector<T> two, vector_bool mask) {
  const w2w_vector<T> old = dst;
  w2w::each(dst, mask, [&](int i) { return w2w::fused(old.lane[i], one.lane[i], two.lane[i]); });
}
template <class T, class S> void asc_axpy(w2w_vector<T> &dst, w2w_vector<T> one, S by, vector_bool mask) {
  const w2w_vector<T> old = dst;
  w2w::each(dst, mask, [&](int i) { return w2w::fused(one.lane[i], T(by), old.lane[i]); });
}
inline void asc_mull(vector_u32 &low, vector_u32 &high, vector_u32 a, vector_u32 b, vector_bool mask) {
  w2w::each(low, mask, [&](int i) { return uint32_t(uint64_t(a.lane[i]) * b.lane[i]); });
  w2w::each(high, mask, [&](int i) { return uint32_t(uint64_t(a.lane[i]) * b.lane[i] >> 32); });
}
inline void asc_mull(vector_s32 &low, vector_s32 &high, vector_s32 a, vector_s32 b, vector_bool mask) {
  w2w::each(low, mask, [&](int i) { return int32_t(int64_t(a.lane[i]) * b.lane[i]); });
  w2w::each(high, mask, [&](int i) { return int32_t(int64_t(a.lane[i]) * b.lane[i] >> 32); });
}
inline void asc_addc(vector_bool &carry, vector_u32 &dst, vector_u32 a, vector_u32 b, vector_bool before, vector_bool mask) {
  auto sum = [&](int i) { return uint64_t(a.lane[i]) + b.lane[i] + before.bit[4 * i]; };
  vector_bool over;
  w2w::each_bit<uint32_t>(over, mask, [&](int i) { return sum(i) >> 32 != 0; });
  w2w::each(dst, mask, [&](int i) { return uint32_t(sum(i)); });
  carry = over;
}
inline void asc_add(vector_bool &carry, vector_u32 &dst, vector_u32 a, vector_u32 b, vector_bool mask) { asc_addc(carry, dst, a, b, vector_bool{}, mask); }

#define W2W_COMPARE(name, sign)                                                                                        \
  template <class T> void asc_##name(vector_bool &dst, w2w_vector<T> a, w2w_vector<T> b, vector_bool mask) {            \
    w2w::each_bit<T>(dst, mask, [&](int i) { return a.lane[i] sign b.lane[i]; });                                       \
  }                                                                                                                     \
  template <class T, class S> void asc_##name##_scalar(vector_bool &dst, w2w_vector<T> a, S b, vector_bool mask) {      \
    w2w::each_bit<T>(dst, mask, [&](int i) { return a.lane[i] sign T(b); });                                            \
  }
W2W_COMPARE(eq, ==) W2W_COMPARE(ne, !=) W2W_COMPARE(gt, >) W2W_COMPARE(ge, >=) W2W_COMPARE(lt, <) W2W_COMPARE(le, <=)

// ------------------------------------------------------------------------------------------- within registers

template <class T> void asc_select(w2w_vector<T> &dst, w2w_vector<T> a, w2w_vector<T> b, vector_bool mask) {
  w2w_vector<T> made;
  for (int i = 0; i < made.LANES; ++i)
    made.lane[i] = mask.bit[i * sizeof(T)] ? a.lane[i] : b.lane[i];
  dst = made;
}
template <class T, class S> void asc_duplicate_scalar(w2w_vector<T> &dst, S value, vector_bool mask) {
  w2w::each(dst, mask, [&](int) { return T(value); });
}
template <class T> void asc_duplicate(w2w_vector<T> &dst, w2w_vector<T> src, vector_bool mask) {
  w2w::each(dst, mask, [&](int) { return src.lane[0]; });
}
template <class T, class S> void asc_arange(w2w_vector<T> &dst, S start) {
  for (int i = 0; i < dst.LANES; ++i)
    dst.lane[i] = T(T(start) + T(float(i)));
}
template <class T> void asc_intlv(w2w_vector<T> &low, w2w_vector<T> &high, w2w_vector<T> a, w2w_vector<T> b) {
  constexpr int N = w2w_vector<T>::LANES;
  for (int i = 0; i < 2 * N; ++i)
    (i < N ? low : high).lane[i % N] = (i % 2 ? b : a).lane[i / 2];
}
template <class T> void asc_deintlv(w2w_vector<T> &even, w2w_vector<T> &odd, w2w_vector<T> a, w2w_vector<T> b) {
  constexpr int N = w2w_vector<T>::LANES;
  for (int i = 0; i < 2 * N; ++i)
    (i % 2 ? odd : even).lane[i / 2] = (i < N ? a : b).lane[i % N];
}
template <class D, class T> void w2w_packed(w2w_vector<D> &dst, const w2w_vector<T> &src, int start) {
  static_assert(2 * sizeof(D) == sizeof(T));
  memset(&dst, 0, sizeof dst);
  for (int i = 0; i < src.LANES; ++i)
    memcpy(&dst.lane[start + i], &src.lane[i], sizeof(D)); // the lower half of an element
}
template <class D, class T> void asc_pack_to_low(w2w_vector<D> &dst, w2w_vector<T> src) { w2w_packed(dst, src, 0); }
template <class D, class T> void asc_pack_to_high(w2w_vector<D> &dst, w2w_vector<T> src) { w2w_packed(dst, src, src.LANES); }
template <class D, class T> void asc_unpack_lower(w2w_vector<D> &dst, w2w_vector<T> src) {
  for (int i = 0; i < dst.LANES; ++i)
    dst.lane[i] = D(src.lane[i]);
}
template <class D, class T> void asc_unpack_upper(w2w_vector<D> &dst, w2w_vector<T> src) {
  for (int i = 0; i < dst.LANES; ++i)
    dst.lane[i] = D(src.lane[dst.LANES + i]);
}
template <class T> void asc_squeeze(w2w_vector<T> &dst, w2w_vector<T> src, vector_bool mask) {
  memset(&dst, 0, sizeof dst);
  int count = 0;
  for (int i = 0; i < src.LANES; ++i)
    if (mask.bit[i * sizeof(T)])
      dst.lane[count++] = src.lane[i];
}
template <class T> void asc_unsqueeze(w2w_vector<T> &dst, vector_bool mask) {
  dst.lane[0] = T(0);
  for (int i = 1; i < dst.LANES; ++i)
    dst.lane[i] = T(dst.lane[i - 1] + mask.bit[(i - 1) * sizeof(T)]);
}
template <class T, class I> void asc_gather(w2w_vector<T> &dst, w2w_vector<T> src, w2w_vector<I> index) {
  memset(&dst, 0, sizeof dst);
  for (int i = 0; i < dst.LANES && i < index.LANES; ++i)
    if (uint64_t(index.lane[i]) < uint64_t(src.LANES))
      dst.lane[i] = src.lane[index.lane[i]];
    else
      w2w::refuse("asc_gather with an index beyond its register");
}

template <class D, class T> void asc_reduce_sum(w2w_vector<D> &dst, w2w_vector<T> src, vector_bool mask) {
  memset(&dst, 0, sizeof dst);
  dst.lane[0] = w2w::tree<D>(src, mask, 0, src.LANES);
  w2w_count_vector(w2w::active_in(mask, sizeof(T)));
}
template <class T> void asc_pair_reduce_sum(w2w_vector<T> &dst, w2w_vector<T> src, vector_bool mask) {
  memset(&dst, 0, sizeof dst);
  for (int i = 0; i < src.LANES / 2; ++i)
    dst.lane[i] = w2w::tree<T>(src, mask, 2 * i, 2);
  w2w_count_vector(w2w::active_in(mask, sizeof(T)));
}
template <class T> void asc_reduce_sum_datablock(w2w_vector<T> &dst, w2w_vector<T> src, vector_bool mask) {
  constexpr int N = 32 / sizeof(T);
  memset(&dst, 0, sizeof dst);
  for (int i = 0; i < 8; ++i)
    dst.lane[i] = w2w::tree<T>(src, mask, i * N, N);
  w2w_count_vector(w2w::active_in(mask, sizeof(T)));
}
// The best of the active lanes, and in the next lane, as bits, where it was first.
template <bool GREATEST, class T> void w2w_best(w2w_vector<T> &dst, const w2w_vector<T> &src, const vector_bool &mask) {
  memset(&dst, 0, sizeof dst);
  const int best = w2w::best_of<GREATEST>(src, mask, 0, src.LANES), index = best < 0 ? 0 : best;
  dst.lane[0] = best < 0 ? (GREATEST ? w2w::least_of<T>() : w2w::greatest_of<T>()) : src.lane[best];
  memcpy(&dst.lane[1], &index, sizeof(T) < 4 ? sizeof(T) : 4);
  w2w_count_vector(w2w::active_in(mask, sizeof(T)));
}
template <bool GREATEST, class T> void w2w_best_of_blocks(w2w_vector<T> &dst, const w2w_vector<T> &src, const vector_bool &mask) {
  constexpr int N = 32 / sizeof(T);
  memset(&dst, 0, sizeof dst);
  for (int i = 0; i < 8; ++i) {
    const int best = w2w::best_of<GREATEST>(src, mask, i * N, N);
    dst.lane[i] = best < 0 ? (GREATEST ? w2w::least_of<T>() : w2w::greatest_of<T>()) : src.lane[best];
  }
  w2w_count_vector(w2w::active_in(mask, sizeof(T)));
}
template <class T> void asc_reduce_max(w2w_vector<T> &dst, w2w_vector<T> src, vector_bool mask) { w2w_best<true>(dst, src, mask); }
template <class T> void asc_reduce_min(w2w_vector<T> &dst, w2w_vector<T> src, vector_bool mask) { w2w_best<false>(dst, src, mask); }
template <class T> void asc_reduce_max_datablock(w2w_vector<T> &dst, w2w_vector<T> src, vector_bool mask) { w2w_best_of_blocks<true>(dst, src, mask); }
template <class T> void asc_reduce_min_datablock(w2w_vector<T> &dst, w2w_vector<T> src, vector_bool mask) { w2w_best_of_blocks<false>(dst, src, mask); }

// ------------------------------------------------------------------------------------------- conversions

namespace w2w {
template <class D, class S> D converted(S v, Rounding how, bool saturate) {
  if constexpr (std::is_integral_v<S> && std::is_integral_v<D>) {
    if (!saturate)
      return D(v);
    const __int128 wide = v, least = least_of<D>(), most = greatest_of<D>();
    return D(wide < least ? least : wide > most ? most : wide);
  } else if constexpr (std::is_integral_v<S>) {
    return rounded<D>(double(v), how, false);
  } else {
    return rounded<D>(double(float(v)), how, saturate);
  }
}
} // namespace w2w

// Between widths, `part` says which of the narrow lanes that share the place of a wide one; the mask is the source's.
template <class D, class S, class... Words> void vcvt(w2w_vector<D> &dst, w2w_vector<S> src, vector_bool mask, Words... words) {
  constexpr int how = w2w::word<1>(w2w::TO_EVEN, Words{}...), part = w2w::word<3>(0, Words{}...), mode = w2w::word<0>(0, Words{}...);
  constexpr bool saturate = w2w::word<2>(std::is_integral_v<S>, Words{}...);
  constexpr int narrower = sizeof(S) / sizeof(D), wider = sizeof(D) / sizeof(S);
  if constexpr (sizeof(S) == 8 && !std::is_integral_v<D>)
    return w2w::refuse("vcvt from 64-bit integers to floats");
  if constexpr (how > w2w::TO_ZERO)
    return w2w::refuse(how == 8 ? "vcvt with ROUND_O" : "vcvt with ROUND_H");
  w2w_vector<D> made = dst;
  if constexpr (mode == 0)
    memset(&made, 0, sizeof made);
  int active = 0;
  for (int i = 0; i < (narrower > 1 ? src.LANES : made.LANES); ++i) {
    const int from = wider > 1 ? wider * i + part : i, to = narrower > 1 ? narrower * i + part : i;
    if (mask.bit[from * sizeof(S)])
      made.lane[to] = w2w::converted<D>(src.lane[from], w2w::Rounding(how), saturate), ++active;
  }
  w2w_count_vector(active);
  dst = made;
}

// ------------------------------------------------------------------------------------------- UB

namespace w2w {
// Loads `bytes` from UB to a place of the register; unset bytes are no fault, since a mask may leave them out.
inline void load_bytes(void *to, const void *from, uint64_t bytes, uint64_t unit) {
  const Ref ref = ub_ref(from);
  if (!aligned(ref, unit, "the vector load"))
    return;
  w2w_read(from, bytes, true);
  if (ref.at <= ref.region->bytes && bytes <= ref.region->bytes - ref.at)
    memcpy(to, from, bytes);
  else
    memset(to, 0x5a, bytes);
}
inline void store_bytes(void *to, const void *from, uint64_t bytes) {
  const Ref ref = ub_ref(to);
  w2w_write(to, bytes);
  if (ref.at <= ref.region->bytes && bytes <= ref.region->bytes - ref.at)
    memcpy(to, from, bytes);
}
// from(i): which element of those loaded goes to lane i; -1 for a zero.
template <class T, class F> void spread(w2w_vector<T> &dst, const T *src, int offset, int elements, uint64_t unit, F from) {
  T loaded[2 * W2W_VL / sizeof(T)];
  load_bytes(loaded, src + offset, elements * sizeof(T), unit);
  memset(&dst, 0, sizeof dst);
  for (int i = 0; i < dst.LANES; ++i)
    if (const int one = from(i); one >= 0)
      dst.lane[i] = loaded[one];
}
} // namespace w2w

#define W2W_LOAD(name, elements, unit, from)                                                                           \
  template <class T> void name(w2w_vector<T> &dst, T *src, int32_t offset) {                                            \
    constexpr int LANES = w2w_vector<T>::LANES, BLOCK = 32 / sizeof(T);                                                 \
    (void)LANES, (void)BLOCK;                                                                                           \
    w2w::spread(dst, src, offset, elements, unit, [](int i) { return from; });                                          \
  }                                                                                                                     \
  template <class T> void name(w2w_vector<T> &dst, T *src) { name(dst, src, 0); }                                       \
  template <class T> void name##_postupdate(w2w_vector<T> &dst, T *&src, int32_t step) {                                \
    name(dst, src, 0);                                                                                                  \
    src += step;                                                                                                        \
  }
W2W_LOAD(asc_loadalign, LANES, 32, i)
W2W_LOAD(asc_loadalign_brc_elem, 1, sizeof(T), 0)
W2W_LOAD(asc_loadalign_upsample, LANES / 2, 32, i / 2)
W2W_LOAD(asc_loadalign_downsample, 2 * LANES, 32, 2 * i)
W2W_LOAD(asc_loadalign_unpack, LANES / 2, 32, i % 2 ? -1 : i / 2)
W2W_LOAD(asc_loadalign_unpack4, LANES / 4, 32, i % 4 ? -1 : i / 4)
W2W_LOAD(asc_loadalign_brc_datablock, BLOCK, 32, i % BLOCK)
W2W_LOAD(asc_loadalign_brc_elem2datablock, 8, sizeof(T), i / BLOCK)
template <class T> void asc_loadalign_deintlv(w2w_vector<T> &even, w2w_vector<T> &odd, T *src, int32_t offset = 0) {
  w2w_vector<T> both[2];
  w2w::load_bytes(both, src + offset, 2 * W2W_VL, 32);
  asc_deintlv(even, odd, both[0], both[1]);
}
inline void asc_loadalign(vector_bool &dst, uint32_t *src, int32_t offset) {
  uint8_t loaded[W2W_VL / 8];
  w2w::load_bytes(loaded, reinterpret_cast<uint8_t *>(src) + offset, sizeof loaded, 32);
  for (int i = 0; i < W2W_VL; ++i)
    dst.bit[i] = loaded[i / 8] >> i % 8 & 1;
}
inline void asc_storealign(uint32_t *dst, vector_bool src, int32_t offset) {
  uint8_t stored[W2W_VL / 8]{};
  for (int i = 0; i < W2W_VL; ++i)
    stored[i / 8] |= src.bit[i] << i % 8;
  if (w2w::aligned(w2w::ub_ref(dst), 32, "the mask's store"))
    w2w::store_bytes(reinterpret_cast<uint8_t *>(dst) + offset, stored, sizeof stored);
}

// Active elements, each at its own place.
template <class T> void asc_storealign(T *dst, w2w_vector<T> src, int32_t offset, vector_bool mask) {
  if (!w2w::aligned(w2w::ub_ref(dst + offset), 32, "the vector store"))
    return;
  for (int i = 0, end; i < src.LANES; i = end + 1) {
    for (end = i; end < src.LANES && mask.bit[end * sizeof(T)];)
      ++end;
    if (end > i)
      w2w::store_bytes(dst + offset + i, &src.lane[i], (end - i) * sizeof(T));
  }
}
template <class T> void asc_storealign_1st(T *dst, w2w_vector<T> src, int32_t offset) { w2w::store_bytes(dst + offset, &src.lane[0], sizeof(T)); }
// The lower part of each active element, one after the other; a mask with gaps is refused.
template <class T> void w2w_store_packed(T *dst, const w2w_vector<T> &src, const vector_bool &mask, int bytes) {
  uint8_t stored[W2W_VL];
  int count = 0;
  for (int i = 0; i < src.LANES; ++i)
    if (mask.bit[i * sizeof(T)]) {
      if (count != i)
        return w2w::refuse("a packed store with gaps in its mask");
      memcpy(stored + bytes * count++, &src.lane[i], bytes);
    }
  if (count && w2w::aligned(w2w::ub_ref(dst), 32, "the packed store"))
    w2w::store_bytes(dst, stored, count * bytes);
}
template <class T> void asc_storealign_pack(T *dst, w2w_vector<T> src, int32_t offset, vector_bool mask) {
  if (offset)
    return w2w::refuse("asc_storealign_pack with an offset");
  w2w_store_packed(dst, src, mask, sizeof(T) / 2);
}
template <class T> void asc_storealign_pack_quarter(T *dst, w2w_vector<T> src, int32_t offset, vector_bool mask) {
  if (offset)
    return w2w::refuse("asc_storealign_pack_quarter with an offset");
  w2w_store_packed(dst, src, mask, 1);
}
// Blocks of 32 bytes, `block_stride` blocks apart; the pointer then goes on by `repeat_stride` blocks.
template <class T> void asc_storealign(T *dst, w2w_vector<T> src, uint16_t block_stride, uint16_t, vector_bool mask) {
  constexpr int N = 32 / sizeof(T);
  if (!w2w::aligned(w2w::ub_ref(dst), 32, "the store of blocks"))
    return;
  for (int i = 0; i < src.LANES; ++i)
    if (mask.bit[i * sizeof(T)])
      w2w::store_bytes(dst + i / N * block_stride * N + i % N, &src.lane[i], sizeof(T));
}
template <class T> void asc_storealign_postupdate(T *&dst, w2w_vector<T> src, uint16_t block_stride, uint16_t repeat_stride, vector_bool mask) {
  asc_storealign(dst, src, block_stride, repeat_stride, mask);
  dst += repeat_stride * (32 / sizeof(T));
}

template <class D, class T, class I> void asc_gather(w2w_vector<D> &dst, T *src, w2w_vector<I> index, vector_bool mask) {
  memset(&dst, 0, sizeof dst);
  for (int i = 0; i < dst.LANES && i < index.LANES; ++i)
    if (mask.bit[i * sizeof(D)]) {
      T value;
      w2w::load_bytes(&value, src + index.lane[i], sizeof value, sizeof(T));
      dst.lane[i] = D(value);
    }
}
template <class T> void asc_gather_datablock(w2w_vector<T> &dst, T *src, vector_u32 index, vector_bool mask) {
  constexpr int N = 32 / sizeof(T);
  w2w_vector<T> made;
  for (int b = 0; b < 8; ++b)
    w2w::load_bytes(&made.lane[b * N], reinterpret_cast<uint8_t *>(src) + index.lane[b], 32, 32);
  memset(&dst, 0, sizeof dst);
  for (int i = 0; i < dst.LANES; ++i)
    if (mask.bit[i * sizeof(T)])
      dst.lane[i] = made.lane[i];
}
template <class T> void asc_gather_datablock(w2w_vector<T> &dst, T *src, vector_u32 index) { asc_gather_datablock(dst, src, index, w2w::patterned(1, PAT_ALL)); }
template <class T, class I> void asc_scatter(T *dst, w2w_vector<T> src, w2w_vector<I> index, vector_bool mask) {
  for (int i = 0; i < src.LANES && i < index.LANES; ++i)
    if (mask.bit[i * sizeof(T)])
      w2w::store_bytes(dst + index.lane[i], &src.lane[i], sizeof(T));
}
// A vector function's own loads and stores are in order here, with a barrier and without.
template <class Kind> void asc_mem_bar(Kind) {}

// ------------------------------------------------------------------------------------------- refused by name

#define W2W_REFUSED(name)                                                                                              \
  template <class... Any> void name(Any &&...) { w2w::refuse(#name); }
W2W_REFUSED(asc_subc)
W2W_REFUSED(asc_arange_descend)
W2W_REFUSED(asc_duplicate_highest)
W2W_REFUSED(asc_storealign_intlv)
W2W_REFUSED(asc_frequency_histogram_bin0)
W2W_REFUSED(asc_frequency_histogram_bin1)
W2W_REFUSED(asc_cumulative_histogram_bin0)
W2W_REFUSED(asc_cumulative_histogram_bin1)
inline void asc_loadalign_upsample(vector_bool &, uint32_t *, int32_t) { w2w::refuse("asc_loadalign_upsample of a mask"); }
inline void asc_loadalign_downsample(vector_bool &, uint32_t *, int32_t) { w2w::refuse("asc_loadalign_downsample of a mask"); }
inline void asc_storealign_pack(uint32_t *, vector_bool, int32_t) { w2w::refuse("asc_storealign_pack of a mask"); }
inline void asc_sub(vector_bool &, vector_u32 &, vector_u32, vector_u32, vector_bool) { w2w::refuse("asc_sub with a borrow"); }

// ------------------------------------------------------------------------------------------- with a mode

// Inactive lanes are zero, or with MODE_MERGING stay as they were.
template <class Vector, class Mode> void w2w_into(Vector &dst, Vector made, vector_bool mask, Mode) {
  if constexpr (Mode{} == MODE_MERGING)
    asc_select(dst, made, Vector(dst), mask);
  else
    dst = made;
}
#define W2W_MODE_2(name, plain)                                                                                        \
  template <class Vector, class Other, class Mode> void name(Vector &dst, Vector a, Other b, vector_bool mask, Mode mode) { \
    Vector made;                                                                                                        \
    plain(made, a, b, mask);                                                                                            \
    w2w_into(dst, made, mask, mode);                                                                                    \
  }
#define W2W_MODE_1(name, plain)                                                                                        \
  template <class Vector, class From, class Mode> void name(Vector &dst, From a, vector_bool mask, Mode mode) {         \
    Vector made;                                                                                                        \
    plain(made, a, mask);                                                                                               \
    w2w_into(dst, made, mask, mode);                                                                                    \
  }
W2W_MODE_2(vadd, asc_add) W2W_MODE_2(vsub, asc_sub) W2W_MODE_2(vmul, asc_mul) W2W_MODE_2(vdiv, asc_div)
W2W_MODE_2(vmax, asc_max) W2W_MODE_2(vmin, asc_min) W2W_MODE_2(vand, asc_and) W2W_MODE_2(vor, asc_or)
W2W_MODE_2(vxor, asc_xor) W2W_MODE_2(vshl, asc_shiftleft) W2W_MODE_2(vshr, asc_shiftright) W2W_MODE_2(vabsdif, asc_abs_sub)
W2W_MODE_2(vadds, asc_add_scalar) W2W_MODE_2(vmuls, asc_mul_scalar) W2W_MODE_2(vmaxs, asc_max_scalar)
W2W_MODE_2(vmins, asc_min_scalar) W2W_MODE_2(vshls, asc_shiftleft_scalar) W2W_MODE_2(vshrs, asc_shiftright_scalar)
W2W_MODE_1(vln, asc_ln) W2W_MODE_1(vsqrt, asc_sqrt) W2W_MODE_1(vabs, asc_abs) W2W_MODE_1(vneg, asc_neg)
W2W_MODE_1(vrelu, asc_relu) W2W_MODE_1(vnot, asc_not) W2W_MODE_1(vexp, asc_exp)
W2W_MODE_1(vdup, asc_duplicate_scalar)
template <class T, class Mode> void vmula(w2w_vector<T> &dst, w2w_vector<T> a, w2w_vector<T> b, vector_bool mask, Mode mode) {
  w2w_vector<T> made;
  w2w::each(made, mask, [&](int i) { return w2w::fused(a.lane[i], b.lane[i], dst.lane[i]); });
  w2w_into(dst, made, mask, mode);
}
template <class T, class Mode> void vmadd(w2w_vector<T> &dst, w2w_vector<T> a, w2w_vector<T> b, vector_bool mask, Mode mode) {
  w2w_vector<T> made = dst;
  asc_madd(made, a, b, mask);
  w2w_into(dst, made, mask, mode);
}

// ------------------------------------------------------------------------------------------- calls

// A SIMD vector function is called like any function, and runs on the vector pipe.
template <class F> void w2w_simd(F f) { w2w::issue("vector function", PIPE_V, f); }

namespace AscendC {}

#pragma clang attribute pop

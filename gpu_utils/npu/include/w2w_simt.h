// SIMT: short vectors, conversions, mathematics, and threads of a vector function that meet.
#pragma once

#include "w2w_core.h"

typedef unsigned int uint;
typedef unsigned char uchar;
typedef unsigned short ushort;

// ------------------------------------------------------------------------------------------- numbers

#define W2W_SHORT(name, type)                                                                                          \
  struct name##2 { type x, y; };                                                                                        \
  struct name##4 { type x, y, z, w; };                                                                                  \
  inline name##2 make_##name##2(type x, type y) { return {x, y}; }                                                      \
  inline name##4 make_##name##4(type x, type y, type z, type w) { return {x, y, z, w}; }                                \
  inline name##2 operator+(name##2 a, name##2 b) { return {type(a.x + b.x), type(a.y + b.y)}; }                         \
  inline name##2 operator-(name##2 a, name##2 b) { return {type(a.x - b.x), type(a.y - b.y)}; }                         \
  inline name##2 operator*(name##2 a, name##2 b) { return {type(a.x * b.x), type(a.y * b.y)}; }                         \
  inline name##2 operator/(name##2 a, name##2 b) { return {type(a.x / b.x), type(a.y / b.y)}; }
struct uint1 {
  uint x;
};
struct ulonglong2 {
  uint64_t x, y;
};
W2W_SHORT(float, float)
W2W_SHORT(int, int)
W2W_SHORT(uint, uint)
W2W_SHORT(half, half)
W2W_SHORT(bfloat16, bfloat16_t)
W2W_SHORT(short, short)
W2W_SHORT(uchar, uchar)
typedef bfloat162 bfloat16x2_t;
inline bfloat16x2_t make_bfloat16x2(bfloat16_t x, bfloat16_t y) { return {x, y}; }

inline float2 __half22float2(half2 v) { return {float(v.x), float(v.y)}; }
inline half2 __float22half2_rn(float2 v) { return {half(v.x), half(v.y)}; }
inline float2 __bfloat1622float2(bfloat16x2_t v) { return {float(v.x), float(v.y)}; }
inline bfloat16x2_t __float22bfloat162_rn(float2 v) { return {bfloat16_t(v.x), bfloat16_t(v.y)}; }

namespace tl {
namespace limits {
constexpr float kFloatInf = __builtin_huge_valf(), kFloatNInf = -__builtin_huge_valf(), kFloatNaN = __builtin_nanf("");
}
} // namespace tl

template <class T> T max(T a, T b) { return a > b ? a : b; }
template <class T> T min(T a, T b) { return a < b ? a : b; }
template <class T> T abs(T a) { return a < T(0) ? T(-a) : a; }

extern "C" {
float expf(float), exp2f(float), exp10f(float), logf(float), log2f(float), log10f(float), log1pf(float), sqrtf(float), tanhf(float), tanf(float),
    sinf(float), cosf(float), atanf(float), atan2f(float, float), erff(float), floorf(float), ceilf(float), fabsf(float), roundf(float), truncf(float),
    powf(float, float), fmodf(float, float), fmaxf(float, float), fminf(float, float), fmaf(float, float, float);
}
inline float rsqrtf(float v) { return 1.0f / sqrtf(v); }
#define W2W_NARROW(name) inline half h##name(half v) { return half(name##f(float(v))); }
W2W_NARROW(exp) W2W_NARROW(exp2) W2W_NARROW(exp10) W2W_NARROW(log) W2W_NARROW(log2) W2W_NARROW(log10) W2W_NARROW(sqrt)
W2W_NARROW(rsqrt) W2W_NARROW(tanh) W2W_NARROW(sin) W2W_NARROW(cos) W2W_NARROW(floor) W2W_NARROW(ceil) W2W_NARROW(trunc) W2W_NARROW(fabs)

#pragma clang attribute push(W2W_QUIET, apply_to = function)

// ------------------------------------------------------------------------------------------- threads that meet

namespace w2w {
struct Round {
  int arrived;
  uint32_t number;
};
inline constinit Round warp_round[64]{}, team_round{};
inline constinit uint64_t posted[2][2048]{};

inline void meet(Round &round, int size) {
  const uint32_t mine = round.number;
  if (++round.arrived == size) {
    round.arrived = 0, round.number++, team.progress++;
    M.phase += &round == &team_round;
    return;
  }
  while (round.number == mine)
    w2w_yield();
}
// The values of the 32 lanes of this warp, in each of them.
template <class T> const uint64_t *exchange(T value) {
  static_assert(sizeof(T) <= 8);
  const int me = w2w_thread(), warp = me / 32, left = w2w_threads() - warp * 32;
  uint64_t *slots = posted[warp_round[warp].number & 1];
  slots[me] = 0;
  memcpy(&slots[me], &value, sizeof value);
  meet(warp_round[warp], left < 32 ? left : 32);
  return slots + warp * 32;
}
template <class T> T at_lane(const uint64_t *slots, int lane) {
  T value;
  memcpy(&value, &slots[lane], sizeof value);
  return value;
}
inline int lanes() {
  const int left = w2w_threads() - w2w_thread() / 32 * 32;
  return left < 32 ? left : 32;
}
} // namespace w2w

inline void asc_syncthreads() { w2w::meet(w2w::team_round, w2w_threads()); }
inline void asc_threadfence() {}
inline uint32_t asc_activemask() { return w2w::lanes() == 32 ? 0xffffffffu : (1u << w2w::lanes()) - 1; }
inline uint32_t asc_ballot(int wanted) {
  const uint64_t *slots = w2w::exchange(wanted);
  uint32_t bits = 0;
  for (int i = 0; i < w2w::lanes(); ++i)
    bits |= uint32_t(w2w::at_lane<int>(slots, i) != 0) << i;
  return bits;
}
template <class T> T asc_shfl_xor(T value, int offset) {
  const uint64_t *slots = w2w::exchange(value);
  const int lane = w2w_lane() ^ offset;
  return lane < w2w::lanes() ? w2w::at_lane<T>(slots, lane) : value;
}
template <class T> T asc_shfl(T value, int lane) { return w2w::at_lane<T>(w2w::exchange(value), lane & 31); }
template <class T, class Combine> T w2w_over_warp(T value, Combine combine) {
  const uint64_t *slots = w2w::exchange(value);
  T found = w2w::at_lane<T>(slots, 0);
  for (int i = 1; i < w2w::lanes(); ++i)
    found = combine(found, w2w::at_lane<T>(slots, i));
  return found;
}
template <class T> T asc_reduce_add(T value) { return w2w_over_warp(value, [](T a, T b) { return T(a + b); }); }
template <class T> T asc_reduce_max(T value) { return w2w_over_warp(value, [](T a, T b) { return a > b ? a : b; }); }
template <class T> T asc_reduce_min(T value) { return w2w_over_warp(value, [](T a, T b) { return a < b ? a : b; }); }

// Indivisible: two of them never conflict, so the shadow is not told; bounds are.
#define W2W_ATOMIC_RMW(name, result)                                                                                   \
  template <class T> T asc_atomic_##name(T *p, T value) {                                                               \
    const T old = *p;                                                                                                   \
    *p = (result);                                                                                                      \
    return old;                                                                                                         \
  }
W2W_ATOMIC_RMW(add, T(old + value))
W2W_ATOMIC_RMW(max, old > value ? old : value)
W2W_ATOMIC_RMW(min, old < value ? old : value)

#pragma clang attribute pop

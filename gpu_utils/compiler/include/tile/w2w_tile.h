// What the device code of TileLang's HIP back-end uses beyond w2w_gpu.h: names of HIP's runtime headers and of the
// standard library, from the compiler's own builtins. Left out: host code, FP4, textures, cooperative groups.
#pragma once
#include "w2w_gpu.h"

#define __align__(bytes) __attribute__((aligned(bytes)))
#define __HIP_DEVICE_COMPILE__ 1
#ifndef __HIP_MEMORY_SCOPE_AGENT
#define __HIP_MEMORY_SCOPE_AGENT 4
#endif

// Of the standard library

namespace std {
using ::int8_t;
using ::int16_t;
using ::int32_t;
using ::int64_t;
using ::uint8_t;
using ::uint16_t;
using ::uint32_t;
using ::uint64_t;
template <class A, class B> struct pair {
  A first;
  B second;
};
template <class A, class B> __W2W constexpr pair<A, B> make_pair(A first, B second) { return {first, second}; }
template <class T> __W2W constexpr T max(T x, T y) { return x < y ? y : x; }
template <class T> __W2W constexpr T min(T x, T y) { return y < x ? y : x; }
}  // namespace std

// Vectors that w2w_gpu.h leaves out, and the size of a grid

struct uint1 { unsigned x; };
__W2W_VECTOR(long long, longlong)
__W2W_VECTOR(unsigned long long, ulonglong)
struct alignas(4) half2 { _Float16 x, y; };
struct dim3 { unsigned x = 1, y = 1, z = 1; };

// bfloat16 as a class, which HIP has beside the compiler's type: it computes in float and rounds to nearest even

struct hip_bfloat16 {
  __bf16 data;
  hip_bfloat16() = default;
  __device__ __forceinline__ hip_bfloat16(float x) : data((__bf16)x) {}
  __device__ __forceinline__ operator float() const { return (float)data; }
  __device__ __forceinline__ hip_bfloat16 &operator+=(hip_bfloat16 x) { return *this = (float)*this + (float)x; }
  __device__ __forceinline__ hip_bfloat16 &operator-=(hip_bfloat16 x) { return *this = (float)*this - (float)x; }
  __device__ __forceinline__ hip_bfloat16 &operator*=(hip_bfloat16 x) { return *this = (float)*this * (float)x; }
};
#define __W2W_BF16(op) \
  __W2W hip_bfloat16 operator op(hip_bfloat16 x, hip_bfloat16 y) { return (float)x op (float)y; }
__W2W_BF16(+)
__W2W_BF16(-)
__W2W_BF16(*)
__W2W_BF16(/)
__W2W hip_bfloat16 operator-(hip_bfloat16 x) { return -(float)x; }

#define HUGE_VALF __builtin_inff()
#define HUGE_VAL __builtin_inf()

// Functions of one instruction, and what is made of them

__W2W double __hiloint2double(int high, int low) {
  return __builtin_bit_cast(double, (unsigned long long)(unsigned)high << 32 | (unsigned)low);
}
__W2W float __exp2f(float x) { return __w2w_exp2(x); }
__W2W float __frcp_rn(float x) { return 1.0f / x; }
__W2W float __fsqrt_rn(float x) { return sqrtf(x); }
__W2W float roundf(float x) { return __builtin_roundf(x); }
__W2W double round(double x) { return __builtin_round(x); }
__W2W double rsqrt(double x) { return 1.0 / __builtin_sqrt(x); }
#define __W2W_HALF(name, call) \
  __W2W _Float16 h##name(_Float16 x) { return (_Float16)call((float)x); } \
  __W2W hip_bfloat16 h##name(hip_bfloat16 x) { return call((float)x); }
__W2W_HALF(exp, expf)
__W2W_HALF(exp2, exp2f)
__W2W_HALF(rsqrt, rsqrtf)
__W2W_HALF(floor, floorf)
__W2W_HALF(ceil, ceilf)
__W2W_HALF(trunc, truncf)
__W2W_HALF(rint, rintf)
extern "C" __device__ __attribute__((const)) inline _Float16 __ocml_sqrt_f16(_Float16 x) {
  return (_Float16)sqrtf((float)x);
}

// HIP's shuffles up and down take an unsigned distance; without these, another class's overload is as good a match.
template <class T> __W2W T __shfl_up(T value, unsigned delta, int width) { return __shfl_up(value, (int)delta, width); }
template <class T> __W2W T __shfl_down(T value, unsigned delta, int width) {
  return __shfl_down(value, (int)delta, width);
}

// Barriers that also vote
__W2W int __syncthreads_or(int predicate) {
  __shared__ int any;
  any = 0;
  __syncthreads();
  if (predicate) any = 1;
  __syncthreads();
  int found = any;
  __syncthreads();
  return found;
}
__W2W int __syncthreads_and(int predicate) { return !__syncthreads_or(!predicate); }

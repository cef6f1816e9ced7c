// The CUDA names that a kernel uses, for both vendors, from the compiler's own builtins: no vendor header is needed.
//
// Where CUDA and HIP differ, this file differs too, so that a port meets the real problems:
//   warpSize             32 on NVIDIA and on RDNA, 64 on CDNA; never a constant expression (as in ROCm 7)
//   __ballot, __activemask and the masks of *_sync   32 bits on NVIDIA, 64 bits on AMD on every chip
//   *_sync on AMD        as in ROCm 7 (amd_warp_sync_functions.h): a mask that is not 64 bits wide does not compile, and
//                        a kernel traps where the lanes that a mask names are not the lanes that call with it
// Left out: host code, textures, cooperative groups, half2, and the functions of libdevice and ocml that no
// builtin replaces (listed at the end: naming one is an error that says so).
#pragma once

#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __host__ __attribute__((host))
#define __shared__ __attribute__((shared))
#define __constant__ __attribute__((constant))
// The second argument counts blocks of an SM in CUDA, and waves of a SIMD in HIP (amd_hip_runtime.h).
#ifdef __HIP__
#define __W2W_BOUNDS_1(threads) __attribute__((amdgpu_flat_work_group_size(1, threads)))
#define __W2W_BOUNDS_2(threads, waves) \
  __attribute__((amdgpu_flat_work_group_size(1, threads), amdgpu_waves_per_eu(waves)))
#define __W2W_BOUNDS(_1, _2, name, ...) name
#define __launch_bounds__(...) __W2W_BOUNDS(__VA_ARGS__, __W2W_BOUNDS_2, __W2W_BOUNDS_1, )(__VA_ARGS__)
#else
#define __launch_bounds__(...) __attribute__((launch_bounds(__VA_ARGS__)))
#endif
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __W2W static __device__ __forceinline__

// What hipcc and HIP's runtime header define, for sources that ask which platform they are built for
#ifdef __HIP__
#define __HIPCC__ 1
#define __HIP_PLATFORM_AMD__ 1
#endif

typedef __SIZE_TYPE__ size_t;

// uint32_t and its kind: CUDA's and HIP's runtime headers bring them along
#include <stdint.h>

// Where a thread is

#ifdef __AMDGCN__
#define __W2W_AXIS(name, amd, nvidia) \
  __W2W unsigned __get_##name() { return amd; } \
  __declspec(property(get = __get_##name)) unsigned name
__W2W unsigned __w2w_block_count(int axis) {
  return ((const __attribute__((address_space(4))) unsigned *)__builtin_amdgcn_implicitarg_ptr())[axis];
}
#else
#define __W2W_AXIS(name, amd, nvidia) \
  __W2W unsigned __get_##name() { return nvidia; } \
  __declspec(property(get = __get_##name)) unsigned name
#endif

struct __w2w_thread_index {
  __W2W_AXIS(x, __builtin_amdgcn_workitem_id_x(), __nvvm_read_ptx_sreg_tid_x());
  __W2W_AXIS(y, __builtin_amdgcn_workitem_id_y(), __nvvm_read_ptx_sreg_tid_y());
  __W2W_AXIS(z, __builtin_amdgcn_workitem_id_z(), __nvvm_read_ptx_sreg_tid_z());
};
struct __w2w_block_index {
  __W2W_AXIS(x, __builtin_amdgcn_workgroup_id_x(), __nvvm_read_ptx_sreg_ctaid_x());
  __W2W_AXIS(y, __builtin_amdgcn_workgroup_id_y(), __nvvm_read_ptx_sreg_ctaid_y());
  __W2W_AXIS(z, __builtin_amdgcn_workgroup_id_z(), __nvvm_read_ptx_sreg_ctaid_z());
};
struct __w2w_block_size {
  __W2W_AXIS(x, __builtin_amdgcn_workgroup_size_x(), __nvvm_read_ptx_sreg_ntid_x());
  __W2W_AXIS(y, __builtin_amdgcn_workgroup_size_y(), __nvvm_read_ptx_sreg_ntid_y());
  __W2W_AXIS(z, __builtin_amdgcn_workgroup_size_z(), __nvvm_read_ptx_sreg_ntid_z());
};
struct __w2w_grid_size {
  __W2W_AXIS(x, __w2w_block_count(0), __nvvm_read_ptx_sreg_nctaid_x());
  __W2W_AXIS(y, __w2w_block_count(1), __nvvm_read_ptx_sreg_nctaid_y());
  __W2W_AXIS(z, __w2w_block_count(2), __nvvm_read_ptx_sreg_nctaid_z());
};
struct __w2w_warp_size {
#ifdef __AMDGCN__
  __device__ __forceinline__ operator int() const { return __builtin_amdgcn_wavefrontsize(); }
#else
  __device__ __forceinline__ operator int() const { return __nvvm_read_ptx_sreg_warpsize(); }
#endif
};
extern const __device__ __attribute__((weak)) __w2w_thread_index threadIdx;
extern const __device__ __attribute__((weak)) __w2w_block_index blockIdx;
extern const __device__ __attribute__((weak)) __w2w_block_size blockDim;
extern const __device__ __attribute__((weak)) __w2w_grid_size gridDim;
extern const __device__ __attribute__((weak)) __w2w_warp_size warpSize;

// Vectors of 2, 3 and 4 elements, aligned so that one lane can load 64 or 128 bits at once

#define __W2W_VECTOR(type, name) \
  struct alignas(2 * sizeof(type)) name##2 { type x, y; }; \
  struct name##3 { type x, y, z; }; \
  struct alignas(4 * sizeof(type) > 16 ? 16 : 4 * sizeof(type)) name##4 { type x, y, z, w; }; \
  __W2W name##2 make_##name##2(type x, type y) { return {x, y}; } \
  __W2W name##3 make_##name##3(type x, type y, type z) { return {x, y, z}; } \
  __W2W name##4 make_##name##4(type x, type y, type z, type w) { return {x, y, z, w}; }
__W2W_VECTOR(char, char)
__W2W_VECTOR(unsigned char, uchar)
__W2W_VECTOR(short, short)
__W2W_VECTOR(unsigned short, ushort)
__W2W_VECTOR(int, int)
__W2W_VECTOR(unsigned, uint)
__W2W_VECTOR(float, float)
__W2W_VECTOR(double, double)

// Barriers and fences

#ifdef __AMDGCN__
__W2W void __syncthreads() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
__W2W void __syncwarp() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront");
  __builtin_amdgcn_wave_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront");
}
__W2W void __threadfence() { __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "agent"); }
__W2W void __threadfence_block() { __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "workgroup"); }
#else
extern "C" __device__ void __syncthreads();
__W2W void __syncwarp(unsigned mask = 0xffffffffu) { __nvvm_bar_warp_sync(mask); }
__W2W void __threadfence() { __nvvm_membar_gl(); }
__W2W void __threadfence_block() { __nvvm_membar_cta(); }
#endif

// Bits

__W2W int __popc(unsigned x) { return __builtin_popcount(x); }
__W2W int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
__W2W int __ffs(int x) { return __builtin_ffs(x); }
__W2W int __ffsll(long long x) { return __builtin_ffsll(x); }
__W2W int __clz(int x) { return x ? __builtin_clz(x) : 32; }
__W2W int __clzll(long long x) { return x ? __builtin_clzll(x) : 64; }
__W2W unsigned __brev(unsigned x) { return __builtin_bitreverse32(x); }
__W2W unsigned __float_as_uint(float x) { return __builtin_bit_cast(unsigned, x); }
__W2W int __float_as_int(float x) { return __builtin_bit_cast(int, x); }
__W2W float __uint_as_float(unsigned x) { return __builtin_bit_cast(float, x); }
__W2W float __int_as_float(int x) { return __builtin_bit_cast(float, x); }

// Votes and shuffles

#ifdef __AMDGCN__
#define __W2W_MASK_64(M) static_assert(sizeof(M) == 8, "The mask must be a 64-bit integer")
__W2W unsigned long long __ballot(int predicate) { return __builtin_amdgcn_ballot_w64(predicate != 0); }
__W2W unsigned long long __activemask() { return __ballot(1); }
__W2W int __any(int predicate) { return __ballot(predicate) != 0; }
__W2W int __all(int predicate) { return __ballot(predicate) == __activemask(); }

// The virtual GPU stops here and says which lanes the mask names, which it finds in VCC, and which are active.
__W2W void __w2w_wrong_mask(unsigned long long mask) {
  int low = __builtin_amdgcn_readfirstlane((unsigned)mask), high = __builtin_amdgcn_readfirstlane(mask >> 32);
  asm volatile("s_mov_b32 vcc_lo, %0\n\ts_mov_b32 vcc_hi, %1\n\ts_trap 5" : : "s"(low), "s"(high) : "vcc");
  __builtin_unreachable();
}
__W2W unsigned long long __w2w_first_lanes(unsigned long long value) {
  unsigned low = __builtin_amdgcn_readfirstlane((unsigned)value), high = __builtin_amdgcn_readfirstlane(value >> 32);
  return (unsigned long long)high << 32 | low;
}
// The lanes that a mask names. Masks may differ: each active lane must be named by its own, and each lane that a mask
// names must call with it. A wave of 32 lanes ignores the upper half. ROCm leaves the check out under NDEBUG.
template <class M> __W2W unsigned long long __w2w_named(M mask) {
  __W2W_MASK_64(M);
  unsigned long long named = __builtin_amdgcn_wavefrontsize() == 32 ? (unsigned)mask : (unsigned long long)mask;
  for (bool checked = false; __any(!checked);) {
    if (!checked) {
      unsigned long long chosen = __w2w_first_lanes(named);
      if (named == chosen) {
        if (chosen != __ballot(1)) __w2w_wrong_mask(chosen);
        checked = true;
      }
    }
  }
  return named;
}
template <class M> __W2W void __syncwarp(M mask) {
  __w2w_named(mask);
  __syncwarp();
}
template <class M> __W2W unsigned long long __ballot_sync(M mask, int predicate) {
  unsigned long long named = __w2w_named(mask);
  return __ballot(predicate) & named;
}
template <class M> __W2W int __any_sync(M mask, int predicate) { return __ballot_sync(mask, predicate) != 0; }
template <class M> __W2W int __all_sync(M mask, int predicate) { return __ballot_sync(mask, !predicate) == 0; }
__W2W int __w2w_lane() { return __builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0)); }
#else
__W2W unsigned __activemask() { return __nvvm_activemask(); }
__W2W unsigned __ballot_sync(unsigned mask, int predicate) { return __nvvm_vote_ballot_sync(mask, predicate); }
__W2W int __any_sync(unsigned mask, int predicate) { return __nvvm_vote_any_sync(mask, predicate); }
__W2W int __all_sync(unsigned mask, int predicate) { return __nvvm_vote_all_sync(mask, predicate); }
__W2W unsigned __ballot(int predicate) { return __ballot_sync(__activemask(), predicate); }
__W2W int __any(int predicate) { return __any_sync(__activemask(), predicate); }
__W2W int __all(int predicate) { return __all_sync(__activemask(), predicate); }
#endif

// A value of 1, 2, 4 or 8 bytes goes through `move` in words of 32 bits.
template <class T, class Move> __W2W T __w2w_in_words(T value, Move move) {
  static_assert(sizeof(T) <= 8, "a shuffle moves values of up to 8 bytes");
  int words[2] = {0, 0};
  __builtin_memcpy(words, &value, sizeof(T));
  words[0] = move(words[0]);
  if (sizeof(T) == 8) words[1] = move(words[1]);
  __builtin_memcpy(&value, words, sizeof(T));
  return value;
}

// width: a power of two; lanes move values inside groups of that many lanes.
#ifdef __AMDGCN__
#define __W2W_SHUFFLE(name, operand, source) \
  template <class T> __W2W T name(T value, int operand, int width = warpSize) { \
    int self = __w2w_lane(), group = self & -width, from = source; \
    return __w2w_in_words(value, [=](int word) { return __builtin_amdgcn_ds_bpermute(from << 2, word); }); \
  } \
  template <class M, class T> __W2W T name##_sync(M mask, T value, int operand, int width = warpSize) { \
    __w2w_named(mask); \
    return name(value, operand, width); \
  }
__W2W_SHUFFLE(__shfl, lane, group + (lane & (width - 1)))
__W2W_SHUFFLE(__shfl_up, delta, self - delta < group ? self : self - delta)
__W2W_SHUFFLE(__shfl_down, delta, self - group + delta >= width ? self : self + delta)
__W2W_SHUFFLE(__shfl_xor, lanes, (self ^ lanes) >= group + width ? self : self ^ lanes)
#else
#define __W2W_SHUFFLE(name, operand, builtin, last) \
  template <class T> __W2W T name##_sync(unsigned mask, T value, int operand, int width = warpSize) { \
    return __w2w_in_words(value, [=](int word) { return builtin(mask, word, operand, (32 - width) << 8 | last); }); \
  } \
  template <class T> __W2W T name(T value, int operand, int width = warpSize) { \
    return name##_sync(__activemask(), value, operand, width); \
  }
__W2W_SHUFFLE(__shfl, lane, __nvvm_shfl_sync_idx_i32, 31)
__W2W_SHUFFLE(__shfl_up, delta, __nvvm_shfl_sync_up_i32, 0)
__W2W_SHUFFLE(__shfl_down, delta, __nvvm_shfl_sync_down_i32, 31)
__W2W_SHUFFLE(__shfl_xor, lanes, __nvvm_shfl_sync_bfly_i32, 31)
#endif

// Lanes with the same value: a mask of them; __match_all_sync gives 0 unless all have it
#define __W2W_MATCHED(T) static_assert(sizeof(T) == 4 || sizeof(T) == 8, "a match compares values of 4 or 8 bytes")
#ifdef __AMDGCN__
template <class T> __W2W unsigned long long __match_any(T value) {
  __W2W_MATCHED(T);
  unsigned long long same = 0;
  for (bool found = false; __any(!found);) {
    if (!found && __shfl(value, __builtin_ctzll(__ballot(1))) == value) {
      same = __activemask();
      found = true;
    }
  }
  return same;
}
template <class T> __W2W unsigned long long __match_all(T value, int *all) {
  *all = __match_any(value) == __activemask();
  return *all ? __activemask() : 0;
}
template <class M, class T> __W2W unsigned long long __match_any_sync(M mask, T value) {
  unsigned long long named = __w2w_named(mask);
  return __match_any(value) & named;
}
template <class M, class T> __W2W unsigned long long __match_all_sync(M mask, T value, int *all) {
  unsigned long long named = __w2w_named(mask);
  *all = (__match_any(value) & named) == named;
  return *all ? named : 0;
}
#else
template <class T> __W2W unsigned __match_any_sync(unsigned mask, T value) {
  __W2W_MATCHED(T);
  if constexpr (sizeof(T) == 4) return __nvvm_match_any_sync_i32(mask, __builtin_bit_cast(int, value));
  else return __nvvm_match_any_sync_i64(mask, __builtin_bit_cast(long long, value));
}
template <class T> __W2W unsigned __match_all_sync(unsigned mask, T value, int *all) {
  __W2W_MATCHED(T);
  if constexpr (sizeof(T) == 4) return __nvvm_match_all_sync_i32p(mask, __builtin_bit_cast(int, value), all);
  else return __nvvm_match_all_sync_i64p(mask, __builtin_bit_cast(long long, value), all);
}
#endif

// Atomics: relaxed, seen by the whole device; they return the old value

#define __W2W_ATOMIC(name, operation, type) \
  __W2W type name(type *address, type value) { \
    return operation(address, value, __ATOMIC_RELAXED, __MEMORY_SCOPE_DEVICE); \
  }
#define __W2W_ATOMIC_INTEGERS(name, operation) \
  __W2W_ATOMIC(name, operation, int) \
  __W2W_ATOMIC(name, operation, unsigned) \
  __W2W_ATOMIC(name, operation, unsigned long long)
#ifdef __AMDGCN__
#define __W2W_ATOMIC_CAS(type, word, nvidia) \
  __W2W type atomicCAS(type *address, type expected, type desired) { \
    __scoped_atomic_compare_exchange_n( \
        address, &expected, desired, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED, __MEMORY_SCOPE_DEVICE); \
    return expected; \
  }
#else
#define __W2W_ATOMIC_CAS(type, word, nvidia) \
  __W2W type atomicCAS(type *address, type expected, type desired) { \
    return (type)nvidia((word *)address, (word)expected, (word)desired); \
  }
#endif
__W2W_ATOMIC_INTEGERS(atomicAdd, __scoped_atomic_fetch_add)
__W2W_ATOMIC(atomicAdd, __scoped_atomic_fetch_add, float)
__W2W_ATOMIC(atomicAdd, __scoped_atomic_fetch_add, double)
__W2W_ATOMIC_INTEGERS(atomicSub, __scoped_atomic_fetch_sub)
__W2W_ATOMIC_INTEGERS(atomicMax, __scoped_atomic_fetch_max)
__W2W_ATOMIC_INTEGERS(atomicMin, __scoped_atomic_fetch_min)
__W2W_ATOMIC_INTEGERS(atomicAnd, __scoped_atomic_fetch_and)
__W2W_ATOMIC_INTEGERS(atomicOr, __scoped_atomic_fetch_or)
__W2W_ATOMIC_INTEGERS(atomicXor, __scoped_atomic_fetch_xor)
__W2W_ATOMIC_INTEGERS(atomicExch, __scoped_atomic_exchange_n)
__W2W float atomicExch(float *address, float value) {
  return __int_as_float(atomicExch((int *)address, __float_as_int(value)));
}
__W2W_ATOMIC_CAS(int, int, __nvvm_atom_cas_gen_i)
__W2W_ATOMIC_CAS(unsigned, int, __nvvm_atom_cas_gen_i)
__W2W_ATOMIC_CAS(unsigned long long, long long, __nvvm_atom_cas_gen_ll)

// Numbers

#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")

#define __W2W_ORDER(type) \
  __W2W type min(type x, type y) { return y < x ? y : x; } \
  __W2W type max(type x, type y) { return x < y ? y : x; }
__W2W_ORDER(int)
__W2W_ORDER(unsigned)
__W2W_ORDER(long long)
__W2W_ORDER(unsigned long long)
__W2W float fminf(float x, float y) { return __builtin_fminf(x, y); }
__W2W float fmaxf(float x, float y) { return __builtin_fmaxf(x, y); }
__W2W double fmin(double x, double y) { return __builtin_fmin(x, y); }
__W2W double fmax(double x, double y) { return __builtin_fmax(x, y); }
__W2W float min(float x, float y) { return fminf(x, y); }
__W2W float max(float x, float y) { return fmaxf(x, y); }
__W2W double min(double x, double y) { return fmin(x, y); }
__W2W double max(double x, double y) { return fmax(x, y); }
__W2W int abs(int x) { return x < 0 ? -x : x; }
__W2W float fabsf(float x) { return __builtin_fabsf(x); }
__W2W double fabs(double x) { return __builtin_fabs(x); }
__W2W float fmaf(float x, float y, float z) { return __builtin_fmaf(x, y, z); }
__W2W double fma(double x, double y, double z) { return __builtin_fma(x, y, z); }
__W2W float sqrtf(float x) { return __builtin_sqrtf(x); }
__W2W double sqrt(double x) { return __builtin_sqrt(x); }
__W2W float floorf(float x) { return __builtin_floorf(x); }
__W2W float ceilf(float x) { return __builtin_ceilf(x); }
__W2W float truncf(float x) { return __builtin_truncf(x); }
__W2W float rintf(float x) { return __builtin_rintf(x); }
__W2W bool isnan(float x) { return x != x; }
__W2W bool isinf(float x) { return __builtin_fabsf(x) == __builtin_inff(); }

// One instruction each: an approximation, with the error of that instruction
#ifdef __AMDGCN__
__W2W float rsqrtf(float x) { return __builtin_amdgcn_rsqf(x); }
__W2W float __w2w_exp2(float x) { return __builtin_amdgcn_exp2f(x); }
__W2W float __w2w_log2(float x) { return __builtin_amdgcn_logf(x); }
#else
__W2W float rsqrtf(float x) { return __nvvm_rsqrt_approx_f(x); }
__W2W float __w2w_exp2(float x) { return __nvvm_ex2_approx_f(x); }
__W2W float __w2w_log2(float x) { return __nvvm_lg2_approx_f(x); }
#endif
__W2W float exp2f(float x) { return __w2w_exp2(x); }
__W2W float __expf(float x) { return __w2w_exp2(x * 1.44269504f); }
__W2W float __logf(float x) { return __w2w_log2(x) * 0.69314718f; }
__W2W float __log2f(float x) { return __w2w_log2(x); }
__W2W float __fdividef(float x, float y) { return x / y; }

// exp(x) = 2^n * exp(r) with r = x - n ln 2, |r| <= ln(2)/2, so that the approximation never sees a large argument.
__W2W float expf(float x) {
  if (x > 88.72284f) return __builtin_inff();
  if (x < -103.97209f) return 0.0f;
  float n = rintf(x * 1.44269504f);
  float r = fmaf(n, -1.42860677e-6f, fmaf(n, -0.693145752f, x));
  int half = (int)n / 2, rest = (int)n - half;
  return __expf(r) * __int_as_float((half + 127) << 23) * __int_as_float((rest + 127) << 23);
}

// Half precision and bfloat16: the compiler's own types, with its conversions and arithmetic

typedef _Float16 __half;
typedef _Float16 half;
typedef __bf16 __nv_bfloat16;
typedef __bf16 __hip_bfloat16;
__W2W float __half2float(__half x) { return x; }
__W2W __half __float2half(float x) { return x; }
__W2W __half __float2half_rn(float x) { return x; }
__W2W __half __hadd(__half x, __half y) { return x + y; }
__W2W __half __hmul(__half x, __half y) { return x * y; }
__W2W __half __hfma(__half x, __half y, __half z) { return __builtin_elementwise_fma(x, y, z); }
__W2W float __bfloat162float(__bf16 x) { return x; }
__W2W __bf16 __float2bfloat16(float x) { return x; }
__W2W __bf16 __float2bfloat16_rn(float x) { return x; }

// Stopping a kernel
__W2W void __trap() { __builtin_trap(); }
#define assert(condition) ((condition) ? (void)0 : __builtin_trap())

// Printing: clang packs the arguments for NVIDIA's vprintf; on AMD a message goes to the host

#ifdef __AMDGCN__
#include <w2w_printf_amd.h>
#else
template <typename... T>
__W2W int printf(const char *format, T... values) {
  return __builtin_printf(format, values...);
}
#endif

// What this header does not have
#define __W2W_MISSING(why) __attribute__((unavailable(why)))
#define __W2W_LIBRARY(type, name, ...) \
  __device__ type name(__VA_ARGS__) \
      __W2W_MISSING("it lives in libdevice (NVIDIA) and ocml (AMD), which this compiler does not have");
extern "C" __device__ void *malloc(size_t)
    __W2W_MISSING("kernels here have no heap; pass a tensor, or use __shared__ memory");
__W2W_LIBRARY(float, logf, float)
__W2W_LIBRARY(float, log2f, float)
__W2W_LIBRARY(float, powf, float, float)
__W2W_LIBRARY(float, sinf, float)
__W2W_LIBRARY(float, cosf, float)
__W2W_LIBRARY(float, tanhf, float)
__W2W_LIBRARY(float, erff, float)
__W2W_LIBRARY(double, exp, double)
__W2W_LIBRARY(double, log, double)
__W2W_LIBRARY(double, pow, double, double)
__W2W_LIBRARY(double, sin, double)
__W2W_LIBRARY(double, cos, double)

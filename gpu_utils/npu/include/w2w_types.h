// Names that AscendC's sources use: address spaces, qualifiers, number types and short vectors.
#pragma once

#include <stdint.h>
#include <type_traits>

#define __gm__
#define __ubuf__
#define __cbuf__
#define __ca__
#define __cb__
#define __cc__
#define __aicore__
#define __global__
#define __mix__(cubes, vectors)
#define __cube__
#define __vector__
#define __simt_vf__
#define __simd_vf__
#define __simt_callee__
#define __simd_callee__
#define __launch_bounds__(threads)
#define __NPU_ARCH__ 3510

typedef _Float16 half;
typedef __bf16 bfloat16_t;

// Narrow formats that the templates name.
struct float4_e2m1x2_t {
  uint8_t bits;
};
struct fp8_e8m0_t {
  uint8_t bits;
};

// What the compiler calls where the processor cannot round to bfloat16 itself: to nearest, ties to even.
extern "C" __attribute__((weak, no_sanitize("thread"))) bfloat16_t __truncsfbf2(float value) {
  const uint32_t bits = __builtin_bit_cast(uint32_t, value);
  const uint32_t rounded = value != value ? bits | 0x400000 : bits + 0x7fff + (bits >> 16 & 1);
  return __builtin_bit_cast(bfloat16_t, uint16_t(rounded >> 16));
}
extern "C" __attribute__((weak, no_sanitize("thread"))) bfloat16_t __truncdfbf2(double value) { return __truncsfbf2(float(value)); }

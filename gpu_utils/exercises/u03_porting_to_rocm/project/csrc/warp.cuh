// Reductions within a warp and within a block.
#pragma once

#include <cuda_runtime.h>

#include "config.h"

#define WARP_SIZE 32
#define FULL_MASK 0xffffffffu

namespace normq {

__device__ __forceinline__ float warp_sum(float value) {
#pragma unroll
  for (int offset = WARP_SIZE / 2; offset > 0; offset /= 2) {
    value += __shfl_xor_sync(FULL_MASK, value, offset);
  }
  return value;
}

__device__ __forceinline__ float warp_max(float value) {
#pragma unroll
  for (int offset = WARP_SIZE / 2; offset > 0; offset /= 2) {
    value = fmaxf(value, __shfl_xor_sync(FULL_MASK, value, offset));
  }
  return value;
}

// The sum (largest value) over all threads of the block, in every thread. Every thread must call it.
template <bool kMax>
__device__ __forceinline__ float block_reduce(float value) {
  __shared__ float partial[kThreads / WARP_SIZE];
  value = kMax ? warp_max(value) : warp_sum(value);
  if (threadIdx.x % warpSize == 0) {
    partial[threadIdx.x / warpSize] = value;
  }
  __syncthreads();
  float total = partial[0];
  for (int i = 1; i < kThreads / WARP_SIZE; ++i) {
    total = kMax ? fmaxf(total, partial[i]) : total + partial[i];
  }
  __syncthreads();
  return total;
}

}  // namespace normq

// Kernels: residual add + RMSNorm + FP8, a counter of clipped values, and GELU.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "config.h"
#include "fp8.cuh"
#include "hopper.cuh"
#include "warp.cuh"

namespace normq {

// residual[t] += x[t];  y = residual[t] / rms(residual[t]) * weight;  scales[t] = max |y| / kFp8Max;
// out_t[c, t] = fp8(y[c] / scales[t]): transposed, as the GEMM of the backward pass reads it.
// One block takes kTileTokens tokens and needs kStageBytes of dynamic shared memory.
__global__ void __launch_bounds__(kThreads)
    normq_norm_kernel(const float *x, float *residual, const float *weight, fp8_t *out_t, float *scales,
                         int tokens, float eps) {
  extern __shared__ float stage[];
  const int first = blockIdx.x * kTileTokens;
  for (int t = 0; t < kTileTokens && first + t < tokens; ++t) {
    const size_t row = static_cast<size_t>(first + t) * kHidden;
    float squares = 0.0f;
    for (int c = threadIdx.x; c < kHidden; c += kThreads) {
      const float value = residual[row + c] + x[row + c];
      residual[row + c] = value;
      stage[t * kHidden + c] = value;
      squares += value * value;
    }
    const float rstd = rsqrtf(block_reduce<false>(squares) / kHidden + eps);
    float largest = 0.0f;
    for (int c = threadIdx.x; c < kHidden; c += kThreads) {
      const float y = stage[t * kHidden + c] * rstd * weight[c];
      stage[t * kHidden + c] = y;
      largest = fmaxf(largest, fabsf(y));
    }
    const float scale = fmaxf(block_reduce<true>(largest), 1e-12f) / kFp8Max;
    for (int c = threadIdx.x; c < kHidden; c += kThreads) {
      stage[t * kHidden + c] /= scale;
    }
    if (threadIdx.x == 0) {
      scales[first + t] = scale;
    }
  }
  __syncthreads();
  const int rows = tokens - first < kTileTokens ? tokens - first : kTileTokens;
  for (int i = threadIdx.x; i < rows * kHidden; i += kThreads) {
    const int c = i / rows, t = i % rows;
    out_t[static_cast<size_t>(c) * tokens + first + t] = fp8_t(stage[t * kHidden + c]);
  }
}

// Appends the position of every value with |x| > limit to `where` (in any order) and counts them in `count`.
__global__ void __launch_bounds__(kThreads)
    normq_clip_kernel(const float *x, int n, float limit, int *where, int *count) {
  for (int base = blockIdx.x * kThreads; base < n; base += gridDim.x * kThreads) {
    const int i = base + threadIdx.x;
    const bool clipped = i < n && fabsf(x[i]) > limit;
    const unsigned vote = __ballot_sync(FULL_MASK, clipped);
    const unsigned lane = threadIdx.x % warpSize;
    int start = 0;
    if (lane == 0) {
      start = atomicAdd(count, __popc(vote));
    }
    start = __shfl_sync(FULL_MASK, start, 0);
    if (clipped) {
      where[start + __popc(vote & ((1u << lane) - 1u))] = i;
    }
  }
}

__device__ __forceinline__ float fast_exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// out = gelu(x) in the tanh form; tanh(u) = 1 - 2 / (exp(2u) + 1).
__global__ void __launch_bounds__(kThreads) normq_gelu_kernel(const __nv_bfloat16 *x, __nv_bfloat16 *out, int n) {
#if __CUDA_ARCH__ >= 800  // bfloat16 needs Ampere
  for (int i = blockIdx.x * kThreads + threadIdx.x; i < n; i += gridDim.x * kThreads) {
    const float z = __bfloat162float(x[i]);
    const float u = 0.7978845608f * (z + 0.044715f * z * z * z);
    const float tanh_u = 1.0f - 2.0f / (fast_exp2(2.885390082f * u) + 1.0f);
    out[i] = __float2bfloat16(0.5f * z * (1.0f + tanh_u));
  }
#endif
}

}  // namespace normq

// Launchers. rmsnorm_quant overlaps with the tail of the kernel before it (programmatic dependent launch).
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <algorithm>

#include "kernels.cuh"
#include "launch.h"
#include "streams.h"

namespace normq {

void rmsnorm_quant(const float *x, float *residual, const float *weight, void *out_t, float *scales, int tokens,
                   float eps, cudaStream_t stream) {
  // More than 48 KB of shared memory must be asked for.
  NORMQ_CHECK(cudaFuncSetAttribute(reinterpret_cast<const void *>(normq_norm_kernel),
                                   cudaFuncAttributeMaxDynamicSharedMemorySize, kStageBytes));

  cudaLaunchAttribute overlap[1];
  overlap[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap[0].val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3((tokens + kTileTokens - 1) / kTileTokens);
  config.blockDim = dim3(kThreads);
  config.dynamicSmemBytes = kStageBytes;
  config.stream = stream;
  config.attrs = overlap;
  config.numAttrs = 1;
  NORMQ_CHECK(cudaLaunchKernelEx(&config, normq_norm_kernel, x, residual, weight, static_cast<fp8_t *>(out_t),
                                 scales, tokens, eps));
}

void clip_count(const float *x, int n, float limit, int *where, int *count, cudaStream_t stream) {
  NORMQ_CHECK(cudaMemsetAsync(count, 0, sizeof(int), stream));
  const int blocks = std::min((n + kThreads - 1) / kThreads, 1024);
  normq_clip_kernel<<<blocks, kThreads, 0, stream>>>(x, n, limit, where, count);
  NORMQ_CHECK(cudaGetLastError());
}

void gelu(const void *x, void *out, int n, cudaStream_t stream) {
  const int blocks = std::min((n + kThreads - 1) / kThreads, 1024);
  normq_gelu_kernel<<<blocks, kThreads, 0, stream>>>(static_cast<const __nv_bfloat16 *>(x),
                                               static_cast<__nv_bfloat16 *>(out), n);
  NORMQ_CHECK(cudaGetLastError());
}

}  // namespace normq

// What the binding calls. Pointers are device memory; every call only queues work on `stream`.
#pragma once

#include <cuda_runtime.h>

namespace normq {

void rmsnorm_quant(const float *x, float *residual, const float *weight, void *out_t, float *scales, int tokens,
                   float eps, cudaStream_t stream);
void clip_count(const float *x, int n, float limit, int *where, int *count, cudaStream_t stream);
void gelu(const void *x, void *out, int n, cudaStream_t stream);

}  // namespace normq

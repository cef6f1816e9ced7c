// The libraries: NCCL and cuBLAS.
#pragma once

#include <cublas_v2.h>
#include <nccl.h>

#include "streams.h"

namespace normq {

void all_reduce(ncclComm_t comm, StreamRing &ring, float *gradients, size_t count, cudaStream_t producer);
void project(cublasHandle_t handle, const float *x, const float *weight, float *out, int tokens, int in, int width,
             cudaStream_t stream);

}  // namespace normq

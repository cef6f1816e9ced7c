// Gradients over all ranks, and the product that reads the quantised activations' scales.
#include "comm.h"

#include <nvtx3/nvToolsExt.h>

#include <stdexcept>

namespace normq {

void all_reduce(ncclComm_t comm, StreamRing &ring, float *gradients, size_t count, cudaStream_t producer) {
  nvtxRangePushA("all_reduce");
  cudaStream_t stream = ring.next(producer);
  const ncclResult_t status = ncclAllReduce(gradients, gradients, count, ncclFloat, ncclAvg, comm, stream);
  nvtxRangePop();
  if (status != ncclSuccess) {
    throw std::runtime_error(ncclGetErrorString(status));
  }
}

void project(cublasHandle_t handle, const float *x, const float *weight, float *out, int tokens, int in, int width,
             cudaStream_t stream) {
  nvtxRangePushA("project");
  const float one = 1.0f, zero = 0.0f;
  cublasSetStream(handle, stream);
  const cublasStatus_t status = cublasSgemm(handle, CUBLAS_OP_T, CUBLAS_OP_N, width, tokens, in, &one, weight, in, x,
                                            in, &zero, out, width);
  nvtxRangePop();
  if (status != CUBLAS_STATUS_SUCCESS) {
    throw std::runtime_error("cublasSgemm failed");
  }
}

}  // namespace normq

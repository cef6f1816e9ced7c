// Adds sums[0], sums[1] ... sums[blockDim.x - 1] up in sums[0]. A block has 64 to 1024
// threads, a power of two. All of them call it, and find what every thread has written.
__device__ void fold(float *sums) {
  // BEGIN SOLUTION
  for (int step = blockDim.x / 2; step > 0; step /= 2) {
    if (threadIdx.x < step) sums[threadIdx.x] += sums[threadIdx.x + step];
    __syncthreads();
  }
  // END SOLUTION
}

// out[b] = sum of the blockDim.x values of block b
__global__ void block_sum(const float *x, float *out) {
  __shared__ float sums[1024];
  sums[threadIdx.x] = x[blockIdx.x * blockDim.x + threadIdx.x];
  __syncthreads();
  fold(sums);
  if (threadIdx.x == 0) out[blockIdx.x] = sums[0];
}

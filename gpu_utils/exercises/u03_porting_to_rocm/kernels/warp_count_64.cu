// out[row] = the largest of x[row][0], ..., x[row][255]; one block of 256 threads a row.
__global__ void row_max(const float *x, float *out) {
  __shared__ float partial[4];  // 256 threads are 4 wavefronts
  float most = x[blockIdx.x * 256 + threadIdx.x];
  for (int offset = warpSize / 2; offset > 0; offset /= 2) most = fmaxf(most, __shfl_xor(most, offset));
  if (threadIdx.x % warpSize == 0) partial[threadIdx.x / warpSize] = most;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int warp = 1; warp < 4; ++warp) most = fmaxf(most, partial[warp]);
    out[blockIdx.x] = most;
  }
}

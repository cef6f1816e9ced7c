// The sum of `value` over all threads of the block, returned to thread 0;
// what the others get does not matter.
__device__ float block_sum(float value) {
  // BEGIN SOLUTION
  __shared__ float partial[32];
  int lane = threadIdx.x % warpSize, warp = threadIdx.x / warpSize;
  int warps = (blockDim.x + warpSize - 1) / warpSize;
  for (int offset = warpSize / 2; offset > 0; offset /= 2)
    value += __shfl_down_sync(__activemask(), value, offset);
  if (lane == 0) partial[warp] = value;
  __syncthreads();
  value = threadIdx.x < warps ? partial[threadIdx.x] : 0.0f;
  for (int offset = warpSize / 2; offset; offset /= 2)
    value += __shfl_down_sync(__activemask(), value, offset);
  return value;
  // END SOLUTION
}

// One block sums one row: out[row] = x[row][0] + ... + x[row][columns - 1]
__global__ void row_sum(const float *x, float *out, int columns) {
  float sum = 0.0f;
  for (int c = threadIdx.x; c < columns; c += blockDim.x)
    sum += x[blockIdx.x * columns + c];
  sum = block_sum(sum);
  if (threadIdx.x == 0) out[blockIdx.x] = sum;
}

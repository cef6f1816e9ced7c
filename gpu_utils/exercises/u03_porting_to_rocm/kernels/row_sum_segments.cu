// out[row] = x[row][0] + ... + x[row][255]; one block of 256 threads a row. out starts at 0.
__global__ void row_sum(const float *x, float *out) {
  float sum = x[blockIdx.x * 256 + threadIdx.x];
  for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_down(sum, offset, 32);
  if (threadIdx.x % 32 == 0) atomicAdd(&out[blockIdx.x], sum);
}

// out[i] = sum of x up to and with i, within each warp or wavefront.
__global__ void prefix(const float *x, float *out) {
  int lane = threadIdx.x & 31;
  float sum = x[threadIdx.x];
  for (int offset = 1; offset < warpSize; offset *= 2) {
    float before = __shfl_up(sum, offset);
    if (lane >= offset) sum += before;
  }
  out[threadIdx.x] = sum;
}

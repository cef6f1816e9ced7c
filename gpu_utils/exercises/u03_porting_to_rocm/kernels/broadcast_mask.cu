// The first n threads: each gets the value of the first lane of its warp or wavefront.
__global__ void broadcast(const float *x, float *out, int n) {
  const unsigned long long mask = __ballot_sync(__activemask(), threadIdx.x < n);
  if (threadIdx.x < n) out[threadIdx.x] = __shfl_sync(mask, x[threadIdx.x], 0);
}

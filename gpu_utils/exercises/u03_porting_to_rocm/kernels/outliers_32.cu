// For each warp or wavefront: how many of its numbers exceed 2, and which lane has the first of them (-1: none).
__global__ void outliers(const float *x, int *many, int *first) {
  unsigned votes = __ballot(x[threadIdx.x] > 2);
  if (threadIdx.x % warpSize == 0) {
    many[threadIdx.x / warpSize] = __popc(votes);
    first[threadIdx.x / warpSize] = __ffs(votes) - 1;
  }
}

// For the calling lane: how many kept lanes of its wave come before it.
// *kept: how many its whole wave keeps.
__device__ int place_in_wave(bool keep, int *kept) {
  // BEGIN SOLUTION
  unsigned long long votes = __ballot_sync(__activemask(), keep);
  int lane = threadIdx.x % warpSize;
  *kept = __popcll(votes);
  return __popcll(votes & ((1ull << lane) - 1));
  // END SOLUTION
}

// Moves the elements above zero of each block's piece of x to the front of its piece
// of out, and counts them.
__global__ void compact(const float *x, float *out, int *count, int n) {
  __shared__ int kept_by[32];
  int i = blockIdx.x * blockDim.x + threadIdx.x, wave = threadIdx.x / warpSize;
  int waves = (blockDim.x + warpSize - 1) / warpSize;
  bool keep = i < n && x[i] > 0.0f;

  int kept, place = place_in_wave(keep, &kept);
  int next = threadIdx.x + 1;  // the last lane of a wave passes its number on
  if (next % warpSize == 0 || next == blockDim.x) kept_by[wave] = kept;
  __syncthreads();

  int before = 0, total = 0;
  for (int w = 0; w < waves; ++w) {
    if (w < wave) before += kept_by[w];
    total += w == wave ? kept : kept_by[w];
  }
  if (keep) out[blockIdx.x * blockDim.x + before + place] = x[i];
  if (threadIdx.x == 0) count[blockIdx.x] = total;
}

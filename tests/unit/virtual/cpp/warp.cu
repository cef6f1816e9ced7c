// What lanes of a warp (NVIDIA) or wavefront (AMD) tell each other, right for 32 and for 64 lanes, and wrong.

// One sum for each warp of the data; the block is a multiple of the warp.
__global__ void warp_sum(const float *x, float *out) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float sum = x[i];
  for (int offset = warpSize / 2; offset > 0; offset /= 2) sum += __shfl_down(sum, offset);
  if (threadIdx.x % warpSize == 0) out[i / warpSize] = sum;
}

// WRONG on wavefronts of 64: the steps 16, 8, 4, 2, 1 leave lanes 32 to 63 out of the sum of lane 0.
__global__ void warp_sum_32(const float *x, float *out) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float sum = x[i];
  for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_down(sum, offset);
  if (threadIdx.x % warpSize == 0) out[i / warpSize] = sum;
}

// Right everywhere: groups of 32 lanes are asked for, on a wavefront of 64 there are two of them.
__global__ void sum_of_32(const float *x, float *out) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float sum = x[i];
  for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_down(sum, offset, 32);
  if (threadIdx.x % 32 == 0) out[i / 32] = sum;
}

// How many elements are positive: one vote and one atomic for each warp.
__global__ void count_positive(const float *x, int *count, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  unsigned long long votes = __ballot(i < n && x[i] > 0.0f);
  if (threadIdx.x % warpSize == 0) atomicAdd(count, __popcll(votes));
}

// WRONG on wavefronts of 64: the votes of lanes 32 to 63 do not fit into 32 bits.
__global__ void count_positive_32(const float *x, int *count, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  unsigned votes = __ballot(i < n && x[i] > 0.0f);
  if (threadIdx.x % warpSize == 0) atomicAdd(count, __popc(votes));
}

// Keeps the positive elements of one warp in order: a lane's place is the number of votes below it.
__global__ void compact(const int *x, int *out, int *count) {
  int lane = threadIdx.x % warpSize;
  unsigned long long votes = __ballot(x[threadIdx.x] > 0), below = votes & ((1ull << lane) - 1);
  if (x[threadIdx.x] > 0) out[__popcll(below)] = x[threadIdx.x];
  if (lane == 0) *count = __popcll(votes);
}

// WRONG on wavefronts of 64: lane 40 calls itself lane 8 and takes the place of another.
__global__ void compact_lane_31(const int *x, int *out, int *count) {
  int lane = threadIdx.x & 31;
  unsigned long long votes = __ballot(x[threadIdx.x] > 0), below = votes & ((1ull << lane) - 1);
  if (x[threadIdx.x] > 0) out[__popcll(below)] = x[threadIdx.x];
  if (lane == 0) *count = __popcll(votes);
}

// Running sums inside each warp: lane i adds the value 1, 2, 4, ... lanes before it.
__global__ void warp_scan(const int *x, int *out) {
  int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x % warpSize, sum = x[i];
  for (int offset = 1; offset < warpSize; offset *= 2) {
    int before = __shfl_up(sum, offset);
    if (lane >= offset) sum += before;
  }
  out[i] = sum;
}

// The same value in all lanes, from 64-bit numbers: the last lane's.
__global__ void broadcast_last(const double *x, double *out) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i] = __shfl(x[i], warpSize - 1);
}

// Which lanes run inside a branch, and what they agree on.
__global__ void votes_in_a_branch(const int *x, unsigned long long *active, int *any, int *all, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n || threadIdx.x % 3 != 0) return;
  active[i] = __activemask();
  any[i] = __any(x[i] > 5);
  all[i] = __all(x[i] > -5);
}

// The forms with a mask. Its type has 32 bits on NVIDIA and must have 64 bits on AMD.
__global__ void warp_max_sync(const int *x, int *out) {
  int i = blockIdx.x * blockDim.x + threadIdx.x, largest = x[i];
  for (int offset = warpSize / 2; offset > 0; offset /= 2)
    largest = max(largest, __shfl_xor_sync(~0ull, largest, offset));
  out[i] = __all_sync(~0ull, largest >= x[i]) ? largest : -1;
}

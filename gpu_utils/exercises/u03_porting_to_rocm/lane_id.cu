// The thread's number in its block, and how many there are.
// Waves are cut from this order: x runs fastest, then y.
__device__ int thread_id() {
  return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
}
__device__ int thread_count() { return blockDim.x * blockDim.y * blockDim.z; }

struct Place {
  int x, y, z;
};

// MAX_WAVES: the most waves of a block on any target, known when this is compiled.
// lane_id(): the thread's place in its wave. wave_id(): its wave in the block.
// wave_count(): the waves of the block.
// place_of(wave, lane): the threadIdx of the thread in that lane of that wave.
// BEGIN SOLUTION
constexpr int MAX_WAVES = 1024 / 32;
__device__ int lane_id() { return thread_id() % warpSize; }
__device__ int wave_id() { return thread_id() / warpSize; }
__device__ int wave_count() { return (thread_count() + warpSize - 1) / warpSize; }
__device__ Place place_of(int wave, int lane) {
  int number = wave * warpSize + lane, row = number / blockDim.x;
  return {int(number % blockDim.x), int(row % blockDim.y), int(row / blockDim.y)};
}
// END SOLUTION

// sums[t] = x[0] + ... + x[t] in each block; total: all of it.
// number: each thread's number, from its wave and lane.
// partner: x, y and z of the thread in the lane beside (0 and 1, 2 and 3, ...).
__global__ void running_sum(const float *x, int *number, int *partner, float *sums,
                            float *total) {
  __shared__ float sum_of[MAX_WAVES];
  for (int w = thread_id(); w < MAX_WAVES; w += thread_count())
    sum_of[w] = NAN;  // a wave that stays silent shows
  __syncthreads();

  int lane = lane_id(), wave = wave_id(), i = blockIdx.x * thread_count() + thread_id();
  number[i] = wave * warpSize + lane;
  bool alone = (thread_id() ^ 1) >= thread_count();
  Place beside = place_of(wave, alone ? lane : lane ^ 1);
  partner[3 * i] = beside.x;
  partner[3 * i + 1] = beside.y;
  partner[3 * i + 2] = beside.z;

  float sum = x[i];
  for (int offset = 1; offset < warpSize; offset *= 2) {
    float before = __shfl_up_sync(__activemask(), sum, offset);
    if (lane >= offset) sum += before;
  }
  if (lane == warpSize - 1 || thread_id() == thread_count() - 1) sum_of[wave] = sum;
  __syncthreads();

  for (int w = 0; w < wave; ++w) sum += sum_of[w];
  sums[i] = sum;
  if (thread_id() == 0) {
    float all = 0.0f;
    for (int w = 0; w < wave_count(); ++w) all += sum_of[w];
    total[blockIdx.x] = all;
  }
}

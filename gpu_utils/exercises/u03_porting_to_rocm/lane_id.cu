// The thread's number in its block, and how many there are. Waves are cut from this order: x runs fastest, then y.
__device__ int thread_id() { return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z); }
__device__ int thread_count() { return blockDim.x * blockDim.y * blockDim.z; }

// MAX_WAVES: the most waves that a block can have on any target, known when this is compiled.
// lane_id(): the thread's place in its wave. wave_id(): its wave in the block. wave_count(): the waves of the block.
// BEGIN SOLUTION
constexpr int MAX_WAVES = 1024 / 32;
__device__ int lane_id() { return thread_id() % warpSize; }
__device__ int wave_id() { return thread_id() / warpSize; }
__device__ int wave_count() { return (thread_count() + warpSize - 1) / warpSize; }
// END SOLUTION

// sums[t] = x[0] + ... + x[t] in each block; total: all of it. number: each thread's number, from its wave and lane.
__global__ void running_sum(const float *x, int *number, float *sums, float *total) {
  __shared__ float sum_of[MAX_WAVES];
  for (int w = thread_id(); w < MAX_WAVES; w += thread_count()) sum_of[w] = NAN;  // a wave that stays silent shows
  __syncthreads();

  int lane = lane_id(), wave = wave_id(), i = blockIdx.x * thread_count() + thread_id();
  number[i] = wave * warpSize + lane;
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

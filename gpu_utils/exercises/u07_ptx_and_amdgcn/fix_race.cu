// Tile t goes through slot t % slots of a ring in global memory. All counters are 0 at first.
struct Queue {
  float *ring; // slots * WORDS numbers
  int *full;   // full[s]: how many times slot s has been filled
  int *empty;  // empty[s]: how many times it has been emptied
  int slots;
};

constexpr int WORDS = 100;

// All threads of a block double a tile. Memory does not serve every wave at the same time:
// some dawdle (a loop on a counter of the block stands for it) before they begin.
__device__ void double_tile(float *to, const float *from, int t, int *clock) {
  int waves = (blockDim.x + warpSize - 1) / warpSize;
  int delay = (threadIdx.x / warpSize + t) % waves;
  for (int i = 0; i < 4 * delay; ++i) atomicAdd(&clock[blockIdx.x], 1);
  for (int i = threadIdx.x; i < WORDS; i += blockDim.x) to[i] = 2.0f * from[i];
}

// send: double tile t of x into its slot. receive: double what is there into tile t of out.
// All threads of a block call them.
// BEGIN SOLUTION
__device__ void wait_for(int *counter, int value) {
  bool asks = threadIdx.x == 0;
  if (asks) {
    while (atomicAdd(counter, 0) < value) {
    }
    __threadfence();
  }
  __syncthreads();
}

__device__ void publish(int *counter) {
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    atomicAdd(counter, 1);
  }
}

__device__ void send(Queue queue, const float *x, int t, int *clock) {
  int slot = t % queue.slots, turn = t / queue.slots;
  wait_for(&queue.empty[slot], turn);
  double_tile(queue.ring + slot * WORDS, x + t * WORDS, t, clock);
  publish(&queue.full[slot]);
}

__device__ void receive(Queue queue, float *out, int t, int *clock) {
  int slot = t % queue.slots, turn = t / queue.slots;
  wait_for(&queue.full[slot], turn + 1);
  double_tile(out + t * WORDS, queue.ring + slot * WORDS, t, clock);
  publish(&queue.empty[slot]);
}
// END SOLUTION

// A persistent kernel with two roles: the first blocks send, the others receive.
__global__ void pass_on(const float *x, float *ring, int *full, int *empty, float *out,
                        int *clock, int tiles, int slots, int senders) {
  Queue queue = {ring, full, empty, slots};
  int block = blockIdx.x, receivers = gridDim.x - senders;
  if (block < senders)
    for (int t = block; t < tiles; t += senders) send(queue, x, t, clock);
  else
    for (int t = block - senders; t < tiles; t += receivers) receive(queue, out, t, clock);
}

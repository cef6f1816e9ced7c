// Every lane adds 1 to *count under a lock.
__global__ void count_all(int *lock, int *count) {
  for (int turn = 0; turn < warpSize; ++turn) {
    if (threadIdx.x % warpSize == turn) {
      while (atomicCAS(lock, 0, 1) != 0) {
      }
      __threadfence();
      *count += 1;
      __threadfence();
      atomicExch(lock, 0);
    }
  }
}

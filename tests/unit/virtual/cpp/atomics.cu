// Many threads, one address.

// Counts in shared memory first, so that a block adds to global memory once for each bin.
__global__ void histogram(const int *x, unsigned *bins, int n) {
  __shared__ unsigned local[64];
  for (int b = threadIdx.x; b < 64; b += blockDim.x) local[b] = 0;
  __syncthreads();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) atomicAdd(&local[x[i]], 1u);
  __syncthreads();
  for (int b = threadIdx.x; b < 64; b += blockDim.x) atomicAdd(&bins[b], local[b]);
}

// WRONG: the increments of different threads overwrite each other.
__global__ void histogram_without_atomics(const int *x, unsigned *bins, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) bins[x[i]] += blockIdx.x + 1;
}

__global__ void extremes(const int *x, int *largest, int *smallest, unsigned *largest_unsigned, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  atomicMax(largest, x[i]);
  atomicMin(smallest, x[i]);
  atomicMax(largest_unsigned, (unsigned)x[i]);
}

__global__ void sums(const float *x, float *total, double *exact, unsigned long long *count, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  atomicAdd(total, x[i]);
  atomicAdd(exact, (double)x[i]);
  atomicAdd(count, 1ull << 33);
}

// No hardware has this atomic for float: read, compare, swap, and try again when another thread was faster.
__device__ float atomic_max_float(float *address, float value) {
  int *word = (int *)address, old = *word, seen;
  do {
    seen = old;
    if (__int_as_float(seen) >= value) break;
    old = atomicCAS(word, seen, __float_as_int(value));
  } while (old != seen);
  return __int_as_float(old);
}

__global__ void largest_float(const float *x, float *out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) atomic_max_float(out, x[i]);
}

// The last block to finish adds up what the others left: a counter decides which one it is.
__global__ void sum_in_one_launch(const float *x, float *partial, unsigned *finished, float *out, int n) {
  __shared__ bool last;
  if (threadIdx.x == 0) {
    float sum = 0.0f;
    for (int i = blockIdx.x * blockDim.x; i < min(n, (int)((blockIdx.x + 1) * blockDim.x)); ++i) sum += x[i];
    partial[blockIdx.x] = sum;
    __threadfence();
    last = atomicAdd(finished, 1u) == gridDim.x - 1;
  }
  __syncthreads();
  if (last && threadIdx.x == 0) {
    __threadfence();  // atomicAdd is relaxed: what it found is acquired here
    float sum = 0.0f;
    for (int b = 0; b < gridDim.x; ++b) sum += partial[b];
    *out = sum;
  }
}

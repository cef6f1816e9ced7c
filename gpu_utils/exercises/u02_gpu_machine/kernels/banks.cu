// Each thread reads one word of shared memory; which one is asked of memory.
extern "C" __global__ void look_up(const int *word, float *out) {
  __shared__ float table[4096];
  for (int i = threadIdx.x; i < 4096; i += blockDim.x) table[i] = i;
  __syncthreads();
  out[threadIdx.x] = table[word[threadIdx.x]];
}

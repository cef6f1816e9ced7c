// Ninety-six running values a thread: they want registers.
__global__ void __launch_bounds__(256) many_values(const float *x, float *out, int steps) {
  float v[96];
#pragma unroll
  for (int i = 0; i < 96; ++i) v[i] = x[threadIdx.x + 256 * i];
  for (int step = 0; step < steps; ++step) {
#pragma unroll
    for (int i = 0; i < 96; ++i) v[i] = v[i] * v[(i + 7) % 96] + 1.0f;
  }
#pragma unroll
  for (int i = 0; i < 96; ++i) out[threadIdx.x + 256 * i] = v[i];
}

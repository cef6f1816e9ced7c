// Each thread takes one of two paths, of 12 and of 6 instructions; memory says which.
extern "C" __global__ void branch(const int *takes, float *x) {
  float value = x[threadIdx.x];
  if (takes[threadIdx.x]) {
#pragma unroll
    for (int i = 0; i < 12; i++) value = value * 0.5f + 1.0f;
  } else {
#pragma unroll
    for (int i = 0; i < 6; i++) value = value * 2.0f - 1.0f;
  }
  x[threadIdx.x] = value;
}

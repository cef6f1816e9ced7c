// out = x * x, in a branch that was meant to say "Ampere or newer".
__global__ void square(const float *x, float *out) {
#if __CUDA_ARCH__ >= 800 || defined(__HIP_DEVICE_COMPILE__)
  out[threadIdx.x] = x[threadIdx.x] * x[threadIdx.x];
#endif
}

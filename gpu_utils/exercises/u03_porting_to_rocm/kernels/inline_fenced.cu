__global__ void exp2_all(const float *x, float *out) {
  float y;
#ifdef __HIP_PLATFORM_AMD__
  y = __builtin_amdgcn_exp2f(x[threadIdx.x]);
#else
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x[threadIdx.x]));
#endif
  out[threadIdx.x] = y;
}

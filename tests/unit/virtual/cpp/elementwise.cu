// One thread for one element, and what else a thread may do alone: loops, branches, wide loads, narrow numbers.

// reads 2 n floats, writes n
__global__ void vector_add(const float *x, const float *y, float *out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = x[i] + y[i];
}

// A grid smaller than the data: each thread takes every (gridDim.x * blockDim.x)-th element.
__global__ void saxpy_grid_stride(float a, const float *x, float *y, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) y[i] = fmaf(a, x[i], y[i]);
}

// Neighbours leave the loop after different numbers of steps: the warp runs until its slowest lane is done.
__global__ void collatz_steps(const int *start, int *steps, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  unsigned value = start[i];
  int count = 0;
  while (value != 1) {
    if (value % 2 == 0) {
      value /= 2;
    } else {
      value = 3 * value + 1;
    }
    ++count;
  }
  steps[i] = count;
}

// Even and odd lanes take different branches.
__global__ void divergent_branch(const int *x, int *out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  if (threadIdx.x % 2 == 0) {
    out[i] = x[i] * x[i];
  } else {
    out[i] = -x[i] - 1;
  }
}

// 128 bits for one lane at a time; n counts groups of four floats.
__global__ void scale_by_four(const float4 *x, float4 *out, float factor, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float4 v = x[i];
  out[i] = make_float4(v.x * factor, v.y * factor, v.z * factor, v.w * factor);
}

// Half precision in, bfloat16 out, arithmetic in float.
__global__ void half_to_bfloat16(const __half *x, __nv_bfloat16 *out, float factor, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = __float2bfloat16(__half2float(x[i]) * factor);
}

// expf is ours (2 ulp and a little), rsqrtf one instruction, sqrtf and the division are rounded correctly.
__global__ void functions(const float *x, float *exponential, float *inverse_root, float *root, float *quotient, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  exponential[i] = expf(x[i]);
  inverse_root[i] = rsqrtf(fabsf(x[i]));
  root[i] = sqrtf(fabsf(x[i]));
  quotient[i] = 1.0f / x[i];
}

// Division is one instruction in PTX, and about ten on AMD, with scaling before and after.
__global__ void divide(const float *x, const float *y, float *out, const double *a, const double *b, double *wide, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  out[i] = x[i] / y[i];
  wide[i] = a[i] / b[i];
}

// Three dimensions of threads and of blocks.
__global__ void coordinates(int *out) {
  int threads = blockDim.x * blockDim.y * blockDim.z;
  int thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  int block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  out[block * threads + thread] = threadIdx.x + 10 * threadIdx.y + 100 * threadIdx.z + 1000 * blockIdx.x +
                                  10000 * blockIdx.y + 100000 * blockIdx.z;
}

// Bits of a word, as CUDA counts them.
__global__ void bits(const int *x, int *ones, int *first, int *leading, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  ones[i] = __popc(x[i]);
  first[i] = __ffs(x[i]);
  leading[i] = __clz(x[i]);
}

// Numbers of 8 and 16 bits as arguments: one lane reads them for all.
__global__ void narrow_arguments(unsigned char a, signed char b, unsigned short c, short d, bool e, int *out) {
  out[0] = a;
  out[1] = b;
  out[2] = c;
  out[3] = d;
  out[4] = e;
}

struct Line {
  float slope;
  int steps;
  double start;
};

// A struct by value.
__global__ void struct_argument(Line line, double *out) { out[0] = line.start + line.slope * line.steps; }

// What C++ adds around the arithmetic: memory of all kinds, calls, branches, wide and narrow integers, templates.

__constant__ int table[8] = {3, 1, 4, 1, 5, 9, 2, 6};
__device__ const float weights[5] = {0.5f, 1.5f, 2.5f, 3.5f, 4.5f};
__device__ int next_ticket = 5;

__global__ void constants(int *from_table, float *from_weights) {
  from_table[threadIdx.x] = table[threadIdx.x % 8];
  from_weights[threadIdx.x] = weights[threadIdx.x % 5];
}

__global__ void take_tickets(int *out) { out[threadIdx.x] = atomicAdd(&next_ticket, 1); }

__global__ void reset_tickets(int first) { next_ticket = first; }

// An array that is indexed at run time lies in scratch (AMD) or local (NVIDIA) memory.
__global__ void shuffle_a_local_array(const int *x, int *out) {
  int cards[16];
  for (int i = 0; i < 16; ++i) cards[i] = i * i;
  for (int i = 0; i < 16; ++i) {
    int j = x[(threadIdx.x + i) % 32] & 15, card = cards[j];
    cards[j] = cards[i];
    cards[i] = card;
  }
  out[threadIdx.x] = cards[x[threadIdx.x] & 15];
}

__device__ __noinline__ int greatest_common_divisor(int a, int b) {
  while (b) {
    int rest = a % b;
    a = b;
    b = rest;
  }
  return a;
}

__global__ void calls(const int *x, int *out) {
  out[threadIdx.x] = greatest_common_divisor(x[threadIdx.x], 360) + greatest_common_divisor(x[threadIdx.x], 77);
}

__global__ void switches(const int *x, int *out) {
  int v = x[threadIdx.x], result;
  switch (v & 7) {
    case 0: result = v * 3; break;
    case 1: result = v ^ 55; break;
    case 2: result = v >> 2; break;
    case 3: result = -v; break;
    case 4: result = v / 7; break;
    case 5: result = v % 11; break;
    case 6: result = v * v; break;
    default: result = 1000;
  }
  out[threadIdx.x] = result;
}

__global__ void long_integers(const long long *a, const long long *b, long long *out) {
  int i = threadIdx.x;
  out[4 * i] = a[i] * b[i];
  out[4 * i + 1] = a[i] / b[i];
  out[4 * i + 2] = a[i] % b[i];
  out[4 * i + 3] = (a[i] << (i & 63)) ^ ((unsigned long long)b[i] >> (i % 50));
}

__global__ void bytes_and_shorts(const unsigned char *a, const short *b, signed char *difference, unsigned short *product) {
  int i = threadIdx.x;
  difference[i] = a[i] - b[i];
  product[i] = a[i] * b[i];
}

// A pointer that is known at run time only: some lanes read shared memory, others a tensor.
__global__ void generic_pointer(const int *x, int *out) {
  __shared__ int shared[64];
  shared[threadIdx.x] = x[threadIdx.x] + 1;
  __syncthreads();
  const int *from = (x[threadIdx.x] & 1) ? shared : x;
  out[threadIdx.x] = from[63 - threadIdx.x];
}

__global__ void doubles(const double *x, double *out, int *truncated) {
  int i = threadIdx.x;
  out[i] = sqrt(x[i]) * 3.0 + 1.0 / x[i] - fma(x[i], x[i], 0.1) + fmax(x[i], 2.0);
  truncated[i] = (int)x[i];
}

template <typename T, int N>
__global__ void sum_of_each(const T *x, T *out) {
  T sum = 0;
#pragma unroll
  for (int i = 0; i < N; ++i) sum += x[threadIdx.x * N + i];
  out[threadIdx.x] = sum;
}
template __global__ void sum_of_each<float, 4>(const float *, float *);
template __global__ void sum_of_each<int, 3>(const int *, int *);

__global__ void half_arithmetic(const __half *a, const __half *b, __half *out, __nv_bfloat16 *product) {
  int i = threadIdx.x;
  out[i] = __hfma(a[i], b[i], __hadd(a[i], b[i]));
  product[i] = (__nv_bfloat16)(float)a[i] * (__nv_bfloat16)(float)b[i];
}

// Loops in loops that lanes leave, repeat and jump out of at different times.
__global__ void nested_loops(const int *x, int *out) {
  int i = threadIdx.x, sum = 0;
  for (int a = 0; a < x[i] % 5; ++a) {
    for (int b = 0; b < 6; ++b) {
      if (b == x[(i + a) % 64] % 4) continue;
      if (sum > 60) break;
      sum += a * b + 1;
    }
    if (sum % 9 == 7) goto done;
  }
  sum += 1000;
done:
  out[i] = sum;
}

// Bitonic sort of 128 numbers in each block.
__global__ void sort_128(int *x) {
  __shared__ int part[128];
  int t = threadIdx.x;
  part[t] = x[blockIdx.x * 128 + t];
  __syncthreads();
  for (int size = 2; size <= 128; size *= 2) {
    for (int distance = size / 2; distance > 0; distance /= 2) {
      int other = t ^ distance;
      if (other > t) {
        int a = part[t], b = part[other];
        if ((a > b) == ((t & size) == 0)) {
          part[t] = b;
          part[other] = a;
        }
      }
      __syncthreads();
    }
  }
  x[blockIdx.x * 128 + t] = part[t];
}

__global__ void asserts(const int *x) { assert(x[threadIdx.x] < 1000); }

// Shuffles inside groups narrower than a warp.
__global__ void groups(const int *x, int *out) {
  int i = threadIdx.x;
  out[i] = __shfl(x[i], (i * 7) % 32, 16) + 100 * __shfl_xor(x[i], 3, 8) + 10000 * __shfl_up(x[i], 2, 4);
}

__global__ void rounding(const float *x, float *out) {
  int i = threadIdx.x;
  out[4 * i] = floorf(x[i]);
  out[4 * i + 1] = ceilf(x[i]);
  out[4 * i + 2] = truncf(x[i]);
  out[4 * i + 3] = rintf(x[i]);
}

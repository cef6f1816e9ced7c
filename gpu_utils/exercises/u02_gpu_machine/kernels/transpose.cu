// out = transpose of in, square, its size a multiple of 32; blocks of 32 x 8 threads.
extern "C" __global__ void direct(const float *in, float *out, int size) {
  int column = blockIdx.x * 32 + threadIdx.x, row = blockIdx.y * 32 + threadIdx.y;
  for (int i = 0; i < 32; i += 8)
    out[column * size + row + i] = in[(row + i) * size + column];
}

template <int WIDTH>
__device__ void through_shared(const float *in, float *out, int size) {
  __shared__ float tile[32][WIDTH];
  int x = threadIdx.x, y = threadIdx.y;
  int column = blockIdx.x * 32 + x, row = blockIdx.y * 32 + y;
  for (int i = 0; i < 32; i += 8) tile[y + i][x] = in[(row + i) * size + column];
  __syncthreads();
  column = blockIdx.y * 32 + x, row = blockIdx.x * 32 + y;
  for (int i = 0; i < 32; i += 8) out[(row + i) * size + column] = tile[x][y + i];
}

extern "C" __global__ void tile_of_32(const float *in, float *out, int size) {
  through_shared<32>(in, out, size);
}
extern "C" __global__ void tile_of_33(const float *in, float *out, int size) {
  through_shared<33>(in, out, size);
}

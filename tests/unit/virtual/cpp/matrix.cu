// Tiles of matrices in shared memory (LDS). Matrices are row-major.

#define TILE 16

// C[m][n] = sum over k of A[m][k] B[k][n]; blocks of TILE x TILE threads, edges masked.
__global__ void matmul_static(const float *a, const float *b, float *c, int rows, int columns, int inner) {
  __shared__ float tile_a[TILE][TILE], tile_b[TILE][TILE];
  int row = blockIdx.y * TILE + threadIdx.y, column = blockIdx.x * TILE + threadIdx.x;
  float sum = 0.0f;
  for (int start = 0; start < inner; start += TILE) {
    int k = start + threadIdx.x, l = start + threadIdx.y;
    tile_a[threadIdx.y][threadIdx.x] = row < rows && k < inner ? a[row * inner + k] : 0.0f;
    tile_b[threadIdx.y][threadIdx.x] = l < inner && column < columns ? b[l * columns + column] : 0.0f;
    __syncthreads();
    for (int i = 0; i < TILE; ++i) sum += tile_a[threadIdx.y][i] * tile_b[i][threadIdx.x];
    __syncthreads();
  }
  if (row < rows && column < columns) c[row * columns + column] = sum;
}

// The same with a tile whose size the launch decides: 2 * blockDim.x * blockDim.x * 4 bytes of dynamic shared memory.
__global__ void matmul_dynamic(const float *a, const float *b, float *c, int rows, int columns, int inner) {
  extern __shared__ float tiles[];
  int tile = blockDim.x;
  float *tile_a = tiles, *tile_b = tiles + tile * tile;
  int row = blockIdx.y * tile + threadIdx.y, column = blockIdx.x * tile + threadIdx.x;
  int place = threadIdx.y * tile + threadIdx.x;
  float sum = 0.0f;
  for (int start = 0; start < inner; start += tile) {
    int k = start + threadIdx.x, l = start + threadIdx.y;
    tile_a[place] = row < rows && k < inner ? a[row * inner + k] : 0.0f;
    tile_b[place] = l < inner && column < columns ? b[l * columns + column] : 0.0f;
    __syncthreads();
    for (int i = 0; i < tile; ++i) sum += tile_a[threadIdx.y * tile + i] * tile_b[i * tile + threadIdx.x];
    __syncthreads();
  }
  if (row < rows && column < columns) c[row * columns + column] = sum;
}

// Static and dynamic shared memory in one kernel: the dynamic part lies behind the static one.
__global__ void static_and_dynamic(const int *x, int *out) {
  __shared__ int head[3];
  extern __shared__ int tail[];
  if (threadIdx.x < 3) head[threadIdx.x] = 100 * threadIdx.x;
  tail[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  out[threadIdx.x] = tail[blockDim.x - 1 - threadIdx.x] + head[threadIdx.x % 3];
}

#define SIDE 32

// out = transpose of x, (n, n); blocks of 32 x 8 threads. Lanes that read a column of the tile meet in one bank.
__global__ void transpose_conflicts(const float *x, float *out, int n) {
  __shared__ float tile[SIDE][SIDE];
  for (int j = threadIdx.y; j < SIDE; j += blockDim.y)
    tile[j][threadIdx.x] = x[(blockIdx.y * SIDE + j) * n + blockIdx.x * SIDE + threadIdx.x];
  __syncthreads();
  for (int j = threadIdx.y; j < SIDE; j += blockDim.y)
    out[(blockIdx.x * SIDE + j) * n + blockIdx.y * SIDE + threadIdx.x] = tile[threadIdx.x][j];
}

// One column more, and the rows of a column lie in different banks (of the 64 banks of gfx950 a pair still meets).
__global__ void transpose(const float *x, float *out, int n) {
  __shared__ float tile[SIDE][SIDE + 1];
  for (int j = threadIdx.y; j < SIDE; j += blockDim.y)
    tile[j][threadIdx.x] = x[(blockIdx.y * SIDE + j) * n + blockIdx.x * SIDE + threadIdx.x];
  __syncthreads();
  for (int j = threadIdx.y; j < SIDE; j += blockDim.y)
    out[(blockIdx.x * SIDE + j) * n + blockIdx.y * SIDE + threadIdx.x] = tile[threadIdx.x][j];
}

// 72 KiB of dynamic shared memory when launched so: more than a CU of gfx942 has, less than an SM of sm_80.
__global__ void uses_the_last_byte(int *out, int elements) {
  extern __shared__ int all[];
  for (int i = threadIdx.x; i < elements; i += blockDim.x) all[i] = i;
  __syncthreads();
  if (threadIdx.x == 0) *out = all[elements - 1];
}

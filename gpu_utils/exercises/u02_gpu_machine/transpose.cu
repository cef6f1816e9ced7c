// out[c][r] = in[r][c] for a matrix of rows x columns, both multiples of 32.
// A block of 32 x 8 threads moves one tile of 32 x 32: blockIdx.x counts tiles along
// the columns of `in`, blockIdx.y along its rows.
__global__ void transpose(const float *in, float *out, int rows, int columns) {
  // BEGIN SOLUTION
  __shared__ float tile[32][32];
  int x = threadIdx.x, row = 32 * blockIdx.y, column = 32 * blockIdx.x;
  // element (r, c) lies at (c + r) % 32 of row r: rows and columns visit each bank once
  for (int i = threadIdx.y; i < 32; i += 8)
    tile[i][(x + i) % 32] = in[(row + i) * columns + column + x];
  __syncthreads();
  for (int i = threadIdx.y; i < 32; i += 8)
    out[(column + i) * rows + row + x] = tile[x][(i + x) % 32];
  // END SOLUTION
}

// One training step of a layer, a = max(0, x w), by six kernels. Each exists as it should be, and with a fault.
// All blocks have 128 threads. Sizes are multiples of 32; n is a multiple of 512.
enum Fault { sound, uncoalesced, bank_conflicts, spills, low_occupancy };

// Room of shared memory that a block asks for: nothing, or so much that few blocks fit.
template <int FAULT> __device__ float through_room(float value) {
  if (FAULT != low_occupancy) return value;
  __shared__ volatile float room[10700];
  room[threadIdx.x * 83] = value;
  return room[threadIdx.x * 83];
}

// Four values of a thread; "turn" is 0, which the compiler does not know: an array indexed by it has no registers.
template <int FAULT> __device__ void keep(float *values, int turn) {
  if (FAULT != spills) return;
  float kept[96];
  for (int i = 0; i < 4; i++) kept[(i * 23 + turn) % 96] = values[i];
  for (int i = 0; i < 4; i++) values[i] = kept[(i * 23 + turn * 3) % 96];
}

// The element of an array of (rows, columns) that thread number i takes: in the order of memory, or down a column.
template <int FAULT> __device__ int place(int i, int rows, int columns) {
  return FAULT == uncoalesced ? i % rows * columns + i / rows : i;
}

template <int FAULT> __device__ void activation(const float *h, float *a, int rows, int columns, int turn) {
  float v[4];
  for (int r = 0; r < 4; r++) v[r] = h[place<FAULT>(blockIdx.x * 512 + r * 128 + threadIdx.x, rows, columns)];
  keep<FAULT>(v, turn);
  for (int r = 0; r < 4; r++)
    a[place<FAULT>(blockIdx.x * 512 + r * 128 + threadIdx.x, rows, columns)] = through_room<FAULT>(fmaxf(v[r], 0.0f));
}

template <int FAULT>
__device__ void loss_gradient(const float *a, const float *t, float *d, int rows, int columns, float scale, int turn) {
  float v[4];
  for (int r = 0; r < 4; r++) {
    int at = place<FAULT>(blockIdx.x * 512 + r * 128 + threadIdx.x, rows, columns);
    v[r] = a[at] > 0.0f ? (a[at] - t[at]) * scale : 0.0f;
  }
  keep<FAULT>(v, turn);
  for (int r = 0; r < 4; r++)
    d[place<FAULT>(blockIdx.x * 512 + r * 128 + threadIdx.x, rows, columns)] = through_room<FAULT>(v[r]);
}

template <int FAULT> __device__ void update(float *w, const float *g, int rows, int columns, float rate, int turn) {
  float v[4];
  for (int r = 0; r < 4; r++) {
    int at = place<FAULT>(blockIdx.x * 512 + r * 128 + threadIdx.x, rows, columns);
    v[r] = w[at] - rate * g[at];
  }
  keep<FAULT>(v, turn);
  for (int r = 0; r < 4; r++)
    w[place<FAULT>(blockIdx.x * 512 + r * 128 + threadIdx.x, rows, columns)] = through_room<FAULT>(v[r]);
}

// c (m, n) = a (m, k) b (k, n); a block of 16 x 8 threads makes 16 x 16 elements.
template <int FAULT> __device__ void product(const float *a, const float *b, float *c, int n, int k, int turn) {
  const int WIDTH = FAULT == bank_conflicts ? 16 : 17;
  __shared__ float as[16][17], bs[16][WIDTH]; // bs is transposed
  int x = threadIdx.x % 16, y = threadIdx.x / 16, row = blockIdx.y * 16, column = blockIdx.x * 16;
  float sum[4] = {0.0f, 0.0f, 0.0f, 0.0f};
  for (int from = 0; from < k; from += 16) {
    for (int i = y; i < 16; i += 8) {
      as[i][x] = a[(row + i) * k + from + x];
      bs[x][i] = b[(from + i) * n + column + x];
    }
    __syncthreads();
    for (int i = 0; i < 16; i++) {
      sum[0] += as[y][i] * bs[x][i];
      sum[1] += as[y + 8][i] * bs[x][i];
    }
    __syncthreads();
  }
  keep<FAULT>(sum, turn);
  c[(row + y) * n + column + x] = through_room<FAULT>(sum[0]);
  c[(row + y + 8) * n + column + x] = through_room<FAULT>(sum[1]);
}

// out (columns, rows) = in (rows, columns), in tiles of 32 x 32 by 32 x 4 threads.
template <int FAULT> __device__ void transpose(const float *in, float *out, int rows, int columns) {
  const int WIDTH = FAULT == bank_conflicts ? 32 : 33;
  __shared__ float tile[32][WIDTH];
  int x = threadIdx.x % 32, y = threadIdx.x / 32, row = blockIdx.y * 32, column = blockIdx.x * 32;
  if (FAULT == uncoalesced) {
    for (int i = y; i < 32; i += 4) out[(column + x) * rows + row + i] = in[(row + i) * columns + column + x];
    return;
  }
  for (int i = y; i < 32; i += 4) tile[i][x] = in[(row + i) * columns + column + x];
  __syncthreads();
  for (int i = y; i < 32; i += 4) out[(column + i) * rows + row + x] = through_room<FAULT>(tile[x][i]);
}

#define ELEMENTWISE(FAULT)                                                                                           \
  extern "C" __global__ void activation__##FAULT(const float *h, float *a, int rows, int columns, int turn) {        \
    activation<FAULT>(h, a, rows, columns, turn);                                                                    \
  }                                                                                                                  \
  extern "C" __global__ void loss_gradient__##FAULT(const float *a, const float *t, float *d, int rows, int columns, \
                                                    float scale, int turn) {                                         \
    loss_gradient<FAULT>(a, t, d, rows, columns, scale, turn);                                                       \
  }                                                                                                                  \
  extern "C" __global__ void update__##FAULT(float *w, const float *g, int rows, int columns, float rate, int turn) {\
    update<FAULT>(w, g, rows, columns, rate, turn);                                                                  \
  }
#define PRODUCT(NAME, FAULT)                                                                                         \
  extern "C" __global__ void NAME##__##FAULT(const float *a, const float *b, float *c, int n, int k, int turn) {     \
    product<FAULT>(a, b, c, n, k, turn);                                                                             \
  }
#define TRANSPOSE(FAULT)                                                                                             \
  extern "C" __global__ void transpose__##FAULT(const float *in, float *out, int rows, int columns) {                \
    transpose<FAULT>(in, out, rows, columns);                                                                        \
  }

ELEMENTWISE(sound)
ELEMENTWISE(uncoalesced)
ELEMENTWISE(spills)
ELEMENTWISE(low_occupancy)
PRODUCT(forward, sound)
PRODUCT(forward, bank_conflicts)
PRODUCT(forward, spills)
PRODUCT(forward, low_occupancy)
PRODUCT(weight_gradient, sound)
PRODUCT(weight_gradient, bank_conflicts)
PRODUCT(weight_gradient, spills)
PRODUCT(weight_gradient, low_occupancy)
TRANSPOSE(sound)
TRANSPOSE(uncoalesced)
TRANSPOSE(bank_conflicts)
TRANSPOSE(low_occupancy)

// One warp or wavefront stores the 16-byte pieces of a tile in shared memory and loads them again.
// `written` and `read` say for each lane of each access which place of 16 bytes it takes; -1: none.
#ifdef __CUDACC_RTC__
typedef int4 Piece;
#else
typedef int Piece __attribute__((ext_vector_type(4)));
#endif

extern "C" __global__ void tile_pieces(const int *written, int writes, const int *read,
                                       int reads, const Piece *in, Piece *out) {
  __shared__ Piece tile[2048];
#pragma unroll 1
  for (int i = threadIdx.x; i < writes * blockDim.x; i += blockDim.x)
    if (written[i] >= 0) tile[written[i]] = in[i];
  __syncthreads();
#pragma unroll 1
  for (int i = threadIdx.x; i < reads * blockDim.x; i += blockDim.x)
    if (read[i] >= 0) out[i] = tile[read[i]];
}

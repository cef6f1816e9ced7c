#include "c_api/asc_simd.h"
#include "simt_api/asc_simt.h"

constexpr int TILE = 512;  // floats of a tile

// y = x / (1 + exp(-x)), on 128 threads of a vector core
__simt_vf__ __launch_bounds__(128) inline void silu(__ubuf__ float *x, __ubuf__ float *y) {
  for (int i = threadIdx.x; i < TILE; i += 128) y[i] = x[i] / (1.0f + expf(-x[i]));
}

extern "C" __global__ __vector__ void silu_tiles(__gm__ float *x, __gm__ float *y,
                                                      __gm__ int *tiles) {
  asc_init();
  const int TILES = tiles[0];  // of each core
  // the unified buffer: x0, x1, y0, y1; tile t is in x0 and y0, or in x1 and y1
  __ubuf__ float *ub = (__ubuf__ float *)0;
  int first = block_idx * TILES * TILE;

  auto load = [&](int t) {  // on PIPE_MTE2
    asc_copy_gm2ub_align((__ubuf__ uint8_t *)(ub + t % 2 * TILE),
                         (__gm__ uint8_t *)(x + first + t * TILE), 1, 4 * TILE, 0, 0, 0,
                         static_cast<asc_load_l2_cache_mode>(0), 4 * TILE, 4 * TILE);
  };
  auto compute = [&](int t) {  // on PIPE_V
    asc_vf_call<silu>(cce::dim3(128), ub + t % 2 * TILE, ub + (2 + t % 2) * TILE);
  };
  auto store = [&](int t) {  // on PIPE_MTE3
    asc_copy_ub2gm_align((__gm__ uint8_t *)(y + first + t * TILE),
                         (__ubuf__ uint8_t *)(ub + (2 + t % 2) * TILE), 1, 4 * TILE,
                         static_cast<asc_store_l2_cache_mode>(0), 4 * TILE, 4 * TILE);
  };
  auto event = [](int id) { return static_cast<event_t>(id); };

  // BEGIN SOLUTION
  for (int i = 0; i < 2; ++i) {  // at first both buffers are free, on either side
    asc_sync_notify(PIPE_V, PIPE_MTE2, event(i));
    asc_sync_notify(PIPE_MTE3, PIPE_V, event(i));
  }
  for (int t = 0; t < TILES; ++t) {
    int i = t % 2;
    asc_sync_wait(PIPE_V, PIPE_MTE2, event(i));
    load(t);
    asc_sync_notify(PIPE_MTE2, PIPE_V, event(i));

    asc_sync_wait(PIPE_MTE2, PIPE_V, event(i));
    asc_sync_wait(PIPE_MTE3, PIPE_V, event(i));
    compute(t);
    asc_sync_notify(PIPE_V, PIPE_MTE2, event(i));
    asc_sync_notify(PIPE_V, PIPE_MTE3, event(i));

    asc_sync_wait(PIPE_V, PIPE_MTE3, event(i));
    store(t);
    asc_sync_notify(PIPE_MTE3, PIPE_V, event(i));
  }
  for (int i = 0; i < 2; ++i) {  // what was set for a next tile, which there is not
    asc_sync_wait(PIPE_V, PIPE_MTE2, event(i));
    asc_sync_wait(PIPE_MTE3, PIPE_V, event(i));
  }
  // END SOLUTION
}

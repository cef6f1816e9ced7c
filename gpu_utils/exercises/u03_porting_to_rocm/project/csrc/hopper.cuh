// What only Hopper has: tensor maps for TMA, and staging through cuda::pipeline. Used when NORMQ_TMA is set.
#pragma once

#include <cuda.h>
#include <cuda/pipeline>
#include <mma.h>

#include "config.h"

namespace normq {

// Describes x (tokens, kHidden) in float32 to the TMA unit, one box per staged tile.
inline CUresult describe_rows(CUtensorMap *map, void *x, cuuint64_t tokens) {
  const cuuint64_t shape[2] = {kHidden, tokens};
  const cuuint64_t strides[1] = {kHidden * sizeof(float)};
  const cuuint32_t box[2] = {kHidden < 256 ? kHidden : 256, kTileTokens};
  const cuuint32_t steps[2] = {1, 1};
  return cuTensorMapEncodeTiled(map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2, x, shape, strides, box, steps,
                                CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
                                CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

}  // namespace normq

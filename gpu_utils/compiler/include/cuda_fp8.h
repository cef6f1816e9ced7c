// The part of CUDA's FP8 header that E4M3 needs.
#pragma once
#include "w2w_fp8.h"

__W2W_FP8(__nv_fp8_e4m3, false, )

typedef unsigned char __nv_fp8_storage_t;
enum __nv_saturation_t { __NV_SATFINITE };
enum __nv_fp8_interpretation_t { __NV_E4M3 };
__W2W __nv_fp8_storage_t __nv_cvt_float_to_fp8(float x, __nv_saturation_t, __nv_fp8_interpretation_t) {
  return __w2w_to_e4m3<false>(x);
}

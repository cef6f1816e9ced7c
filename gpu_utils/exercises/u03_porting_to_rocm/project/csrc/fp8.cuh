// The FP8 type that the GEMM reads, and its largest number.
#pragma once

#include <cuda_fp8.h>

namespace normq {

using fp8_t = __nv_fp8_e4m3;
constexpr float kFp8Max = 448.0f;

}  // namespace normq

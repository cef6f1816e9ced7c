// The part of HIP's FP8 header that E4M3 needs. As there, gfx942 has FNUZ only, gfx950 and gfx12 have OCP only, and
// other targets have both in software (ROCm clr, amd_hip_fp8.h).
#pragma once
#include "../w2w_fp8.h"

#if defined(__gfx942__)
#define HIP_FP8_TYPE_FNUZ 1
#define HIP_FP8_TYPE_OCP 0
#elif defined(__gfx950__) || defined(__gfx1200__) || defined(__gfx1201__)
#define HIP_FP8_TYPE_FNUZ 0
#define HIP_FP8_TYPE_OCP 1
#else
#define HIP_FP8_TYPE_FNUZ 1
#define HIP_FP8_TYPE_OCP 1
#endif

#if HIP_FP8_TYPE_FNUZ
__W2W_FP8(__hip_fp8_e4m3_fnuz, true, )
#else
__W2W_FP8(__hip_fp8_e4m3_fnuz, true, __W2W_MISSING("this target has FP8 in OCP only: __hip_fp8_e4m3"))
#endif
#if HIP_FP8_TYPE_OCP
__W2W_FP8(__hip_fp8_e4m3, false, )
#else
__W2W_FP8(__hip_fp8_e4m3, false, __W2W_MISSING("this target has FP8 in FNUZ only: __hip_fp8_e4m3_fnuz"))
#endif

typedef unsigned char __hip_fp8_storage_t;
enum __hip_saturation_t { __HIP_SATFINITE };
enum __hip_fp8_interpretation_t { __HIP_E4M3, __HIP_E4M3_FNUZ };
__W2W __hip_fp8_storage_t __hip_cvt_float_to_fp8(float x, __hip_saturation_t, __hip_fp8_interpretation_t encoding) {
  return encoding == __HIP_E4M3 ? __w2w_to_e4m3<false>(x) : __w2w_to_e4m3<true>(x);
}

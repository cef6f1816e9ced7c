// TileLang's header of this name, over registers of the virtual AI core.
#pragma once
#include "w2w_simd.h"
#pragma clang attribute push(W2W_QUIET, apply_to = function)
#include_next <tl_templates/ascend/simd_inst.h>
#pragma clang attribute pop

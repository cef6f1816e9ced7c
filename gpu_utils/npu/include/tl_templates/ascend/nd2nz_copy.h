// TileLang's header of this name, over registers of the virtual AI core.
#pragma once
#include "simd_inst.h"
#pragma clang attribute push(W2W_QUIET, apply_to = function)
#include_next <tl_templates/ascend/nd2nz_copy.h>
#pragma clang attribute pop

// In place of TileLang's header of this name: the same includes, without the run time of a host.
#pragma once
#include "w2w_fp8.h"
#include <tl_templates/ascend/ascend_fp8.h>
#include <tl_templates/ascend/reduce.h>

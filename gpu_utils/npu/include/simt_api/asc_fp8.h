#pragma once
#include "../w2w_fp8.h"

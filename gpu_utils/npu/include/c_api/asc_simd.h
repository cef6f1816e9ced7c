#pragma once
#include "../w2w_core.h"

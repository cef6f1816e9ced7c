#include "w2w_gpu.h"

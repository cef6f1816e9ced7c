// The shuffles are in w2w_gpu.h.
#include "../../w2w_tile.h"

#pragma once
#include "../w2w_simt.h"

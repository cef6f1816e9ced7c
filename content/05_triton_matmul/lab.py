# %% [markdown] top
# # Lab 05: one matrix product, from a tile to a full chip
#
# **Seven exercises.** Each is a matrix product that you write. The counters of lesson 05 decide: matrix instructions and
# their share, bytes from memory and from the L2, spills, programs.
#
# - **First**: lesson 05. Everything that is asked here is explained there.
# - **How it works**: write your answer in the cell that says `YOUR CODE`, run it, run the check below it. A check runs
#   the public cases and three fresh ones, and says what differs. `hint("05.tiled")` gives three hints of growing
#   strength. `solution("05.tiled")` asks first.

# %% imports tags=["setup"]
import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from gpu_utils import check, compile_for, hint, progress, solution, virtual_gpu
from gpu_utils.lesson import resources

# %% [markdown] part one
# ## Part 1: one tile

# %% [markdown] part two
# ## Part 2: many tiles

# %% [markdown] part three
# ## Part 3: a chip full of tiles

# %% [markdown] end of the lab
# ## Done

# %% progress
progress()

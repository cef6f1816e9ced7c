# %% [markdown] top
# # Lab 06: attention in tiles
#
# **Eight exercises.** Each is an attention kernel that you write. The counters of lesson 06 decide: bytes loaded and
# stored, matrix FLOPs, programs, spills.
#
# - **First**: lesson 06. Everything that is asked here is explained there.
# - **How it works**: write your answer in the cell that says `YOUR CODE`, run it, run the check below it. A check runs
#   the public cases and three fresh ones, and says what differs. `hint("06.forward")` gives three hints of growing
#   strength. `solution("06.forward")` asks first.

# %% imports tags=["setup"]
import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from gpu_utils import check, compile_for, hint, progress, solution, virtual_gpu
from gpu_utils.lesson import resources

# %% [markdown] part one
# ## Part 1: forward

# %% [markdown] part two
# ## Part 2: backward, and relatives

# %% [markdown] part three
# ## Part 3: decoding

# %% [markdown] end of the lab
# ## Done

# %% progress
progress()

# %% [markdown] top
# # Lab 04: kernels that memory decides
#
# **Ten exercises.** Each is a kernel that you write, with its launcher; four have a backward pass, too. The counters of
# lesson 04 decide: bytes moved, accesses, launches, conflicts, spills.
#
# - **First**: lesson 04. Everything that is asked here is explained there.
# - **How it works**: write your answer in the cell that says `YOUR CODE`, run it, run the check below it. A check runs
#   the public cases and three fresh ones, and says what differs. `hint("04.softmax")` gives three hints of growing
#   strength. `solution("04.softmax")` asks first.

# %% imports tags=["setup"]
import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from gpu_utils import check, compile_for, hint, progress, solution, virtual_gpu
from gpu_utils.lesson import resources

# %% [markdown] part one
# ## Part 1: element by element

# %% [markdown] part two
# ## Part 2: a row for each program

# %% [markdown] part three
# ## Part 3: across rows and tiles

# %% [markdown] part four
# ## Part 4: the loss

# %% [markdown] end of the lab
# ## Done

# %% progress
progress()

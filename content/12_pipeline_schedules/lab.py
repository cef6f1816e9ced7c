# %% [markdown] top
# # Lab 12: pipeline schedules
#
# **Seven exercises.**
#
# - **First**: lesson 12. It has the ideas; each statement says what else it needs.
# - **How it works**: write your answer in the cell that says `YOUR CODE`, run it, run the check below it.
#   `hint("12.one_f_one_b")` gives three hints of growing strength. `solution("12.one_f_one_b")` asks first.

# %% imports tags=["setup"]
import torch
from torch import Tensor

from gpu_utils import check, hint, lesson, progress, solution

# %% [markdown] part 1
# ## Part 1: one order, and what it costs

# %% [markdown] statement of one_f_one_b
# ## 12.one_f_one_b: PLACEHOLDER

# %% [markdown] statement of validate
# ## 12.validate: PLACEHOLDER

# %% [markdown] statement of bubble
# ## 12.bubble: PLACEHOLDER

# %% [markdown] statement of memory
# ## 12.memory: PLACEHOLDER

# %% [markdown] part 2
# ## Part 2: the backward in two

# %% [markdown] statement of zero_bubble
# ## 12.zero_bubble: PLACEHOLDER

# %% [markdown] statement of dualpipe
# ## 12.dualpipe: PLACEHOLDER

# %% [markdown] part 3
# ## Part 3: on ranks and on a cluster

# %% [markdown] statement of choose
# ## 12.choose: PLACEHOLDER

# %% [markdown] payoff
# ## The payoff: PLACEHOLDER

# %% [markdown] end of the lab
# ## Done
#
# PLACEHOLDER

# %% progress
progress()

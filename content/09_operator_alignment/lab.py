# %% [markdown] top
# # Lab 09: the same answer on two chips
#
# **Seven exercises.**
#
# - **First**: lesson 09. It has the ideas; each statement says what else it needs.
# - **How it works**: write your answer in the cell that says `YOUR CODE`, run it, run the check below it.
#   `hint("09.ulp")` gives three hints of growing strength. `solution("09.ulp")` asks first.

# %% imports tags=["setup"]
import torch
from torch import Tensor

from gpu_utils import check, hint, lesson, progress, solution

# %% [markdown] part 1
# ## Part 1: how far apart

# %% [markdown] statement of ulp
# ## 09.ulp: PLACEHOLDER

# %% [markdown] statement of reduction_order
# ## 09.reduction_order: PLACEHOLDER

# %% [markdown] statement of tolerance
# ## 09.tolerance: PLACEHOLDER

# %% [markdown] part 2
# ## Part 2: the same bits on purpose

# %% [markdown] statement of fixed_tree
# ## 09.fixed_tree: PLACEHOLDER

# %% [markdown] statement of batch_invariant
# ## 09.batch_invariant: PLACEHOLDER

# %% [markdown] part 3
# ## Part 3: noise or a bug

# %% [markdown] statement of layer_diff
# ## 09.layer_diff: PLACEHOLDER

# %% [markdown] statement of convergence
# ## 09.convergence: PLACEHOLDER

# %% [markdown] end of the lab
# ## Done
#
# PLACEHOLDER

# %% progress
progress()

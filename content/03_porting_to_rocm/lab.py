# %% [markdown]
# # Lab 03: from CUDA to ROCm
#
# (opening: what the lab holds, minutes, how hints work: `hint("03.warp_reduce")`, `solution("03.warp_reduce")`)

# %% imports tags=["setup"]
from gpu_utils import check, hint, progress, solution

# %% [markdown] where you stand
# ## Where you stand
#
# `progress()` lists every exercise of the course that exists, and what you have passed.

# %% progress
progress()

# %% [markdown]
# # Lab 02: warps, wavefronts, memory, occupancy, roofline
#
# (opening: what the lab holds, minutes, how hints work: `hint("02.transactions")`, `solution("02.transactions")`)

# %% imports tags=["setup"]
from gpu_utils import check, hint, progress, solution

# %% [markdown] where you stand
# ## Where you stand
#
# `progress()` lists every exercise of the course that exists, and what you have passed.

# %% progress
progress()

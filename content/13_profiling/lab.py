# %% [markdown] top
# # Lab 13: profiling

# %% imports tags=["setup"]
from gpu_utils import check, hint, progress, solution

# %% [markdown] end
# ## Where you stand

# %% progress
progress()

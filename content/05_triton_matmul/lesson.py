# %% [markdown] top
# # 05 Matrix multiplication in Triton

# %% imports
import torch

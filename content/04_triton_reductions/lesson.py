# %% [markdown] top
# # 04 Memory-bound kernels in Triton

# %% imports
import torch

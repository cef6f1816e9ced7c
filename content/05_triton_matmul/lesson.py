# %% [markdown] top
# # 05 Matrix multiplication in Triton

# %% imports
import torch  # noqa: F401  until the lesson is written

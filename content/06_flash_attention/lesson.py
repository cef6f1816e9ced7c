# %% [markdown] top
# # 06 FlashAttention, forward, backward and decoding

# %% imports
import torch

# %% [markdown] top
# # 9 PLACEHOLDER head

# %% imports
import torch

from gpu_utils import explore, lesson, predict

# %% [markdown] sitting 1
# # Sitting 1: PLACEHOLDER

# %% [markdown] sitting 2
# # Sitting 2: PLACEHOLDER

# %% [markdown] sitting 3
# # Sitting 3: PLACEHOLDER

# %% [markdown] sitting 4
# # Sitting 4: PLACEHOLDER

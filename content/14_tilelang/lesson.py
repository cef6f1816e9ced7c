# %% [markdown] top
# # 14 TileLang: one source, three vendors
#
# TODO top

# %% imports
from gpu_utils import lesson, predict

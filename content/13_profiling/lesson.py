# %% [markdown] top
# # 13 Profiling on both vendors

# %% imports
from gpu_utils import lesson

# %% end of sitting 1
lesson.sitting("13", 1)

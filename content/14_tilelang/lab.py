# %% [markdown] top
# # Lab 14: one source, three vendors
#
# **Eight exercises.** TODO top

# %% imports tags=["setup"]
from gpu_utils import check, hint, lesson, progress, solution

# %% [markdown] part 1
# ## Part 1: one source

# %% [markdown] TODO gemm
# TODO gemm


# %% [markdown] TODO fused_epilogue
# TODO fused_epilogue


# %% [markdown] part 2
# ## Part 2: layouts and proofs

# %% [markdown] TODO swizzle
# TODO swizzle


# %% [markdown] TODO prove_bounds
# TODO prove_bounds


# %% [markdown] TODO prove_bijective
# TODO prove_bijective


# %% [markdown] part 3
# ## Part 3: who moves the data

# %% [markdown] TODO flags
# TODO flags


# %% [markdown] TODO memory_plan
# TODO memory_plan


# %% [markdown] TODO portability
# TODO portability


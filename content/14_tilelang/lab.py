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

# %% [markdown] statement of flags
# ## 14.flags: who waits for whom
#
# Below is a kernel in AscendC, the language that TileLang lowers to for an Ascend AI core: `y = x / (1 + exp(-x))`, tile
# by tile, on a vector core. Everything is there but its synchronisation. A vector core has four units that work at the
# same time: the scalar unit runs the text, and three *pipes* do what it hands them. A call returns at once; a pipe does
# what it was given in order, and knows nothing of the other pipes.
#
# | call | pipe | reads | writes |
# |---|---|---|---|
# | `load(t)` | `PIPE_MTE2` | `x` in memory | `x0` or `x1` |
# | `compute(t)` | `PIPE_V` | `x0` or `x1` | `y0` or `y1` |
# | `store(t)` | `PIPE_MTE3` | `y0` or `y1` | `y` in memory |
#
# Tile `t` uses the buffers `x0` and `y0` in the unified buffer where `t` is even, `x1` and `y1` where it is odd. Two
# calls order two pipes:
#
# - `asc_sync_notify(from, to, event(id))` is queued on pipe `from` behind what that pipe was given before; when its turn
#   comes, it sets the flag `(from, to, id)`.
# - `asc_sync_wait(from, to, event(id))` is queued on pipe `to`, which stops there until the flag is set, and clears it.
#
# A flag holds one notify: to set it again before it was waited for is a fault. `id` is 0 to 15. `asc_sync()` waits until
# all pipes are empty.
#
# Write the part of the kernel that calls `load(t)`, `compute(t)` and `store(t)` for the tiles 0 to `TILES - 1`, with the
# flags that it needs. `flags() -> str` returns the whole source. With one tile, data has to be in order, and nothing
# else: the load comes before the computation, that before the store, so two flags do. From the third tile on a buffer
# is written again that somebody may still be reading.
#
# Your source is compiled and **executed on a virtual Ascend core**, for several numbers of tiles. It must
#
# 1. have no fault: nothing is read before a flag says that it is there, nothing is overwritten before a flag says that
#    it was read, no wait is for ever, and no flag is still set at the end;
# 2. give the right `y`, float32;
# 3. overlap: were every load, computation and store one step long, `n` tiles would take `n + 2` steps, in place of the
#    `3 n` of one after the other.


# %% 14.flags tags=["answer", "14.flags"]
def flags() -> str:
    """AscendC of silu_tiles(x, y, tiles), with its flags."""
    return """
// INSERT gpu_utils/exercises/u14_tilelang/flags.cpp
"""


# %% 14.flags check tags=["check", "14.flags"]
check("14.flags")

# %% [markdown] why flags
# **Why it matters.** TileLang places these flags for you, from the same graph that you drew. When it places one too few,
# or a kernel is written by hand, the result is right on most days: here every run looks at who has made what ready,
# whatever came out. The four flags have a counterpart on each machine: a full and an empty `mbarrier` for each stage of
# a TMA pipeline, `s_waitcnt` and `s_barrier` around a double buffer in LDS.


# %% [markdown] TODO memory_plan
# TODO memory_plan


# %% [markdown] TODO portability
# TODO portability


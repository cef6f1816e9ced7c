# %% [markdown] top
# # Lab 14: one source, three vendors
#
# **Eight exercises.** TODO top

# %% imports tags=["setup"]
from gpu_utils import check, hint, lesson, progress, solution

# %% [markdown] part 1
# ## Part 1: one source

# %% [markdown] statement of gemm
# ## 14.gemm: one product, three vendors
#
# Write a tile program for `c = a @ b.T`. `a` is `(M, K)`, `b` is `(N, K)`, both of `dtype` (`"float16"` or
# `"bfloat16"`); `c` is `(M, N)` in float32, and sums are float32. `M`, `N` and `K` are multiples of the tile's `BM`, `BN`
# and `BK`, which are 32 or 64.
#
# `gemm(T, vendor, M, N, K, BM, BN, BK, dtype)` returns what stands under `@T.prim_func`, with the tensors `a`, `b`, `c` in
# this order. `T` is the tile language of the target, `vendor` is `"nvidia"`, `"amd"` or `"ascend"`. A block makes one
# tile of `c`, or an AI core does, in steps of `BK`. Tiles are counted row by row: with `M = 64`, `N = 96` and tiles of 32
# there are 2 rows of 3 tiles, and block 5 makes rows 32 to 63 of columns 64 to 95.
#
# | | on GPUs | on an AI core |
# |---|---|---|
# | open the kernel | `with T.Kernel(blocks, threads=128) as t:` | `with T.Kernel(cores) as t:` |
# | a tile of `a` or `b` | `T.alloc_shared(shape, dtype)` | `T.alloc_l1(shape, dtype)` |
# | a tile of sums | `T.alloc_fragment(shape, dtype)` | `T.alloc_l0c(shape, dtype)` |
#
# The rest is the same text for all of them:
#
# - `for k in T.Pipelined(steps, num_stages=2):` copies of later steps start while this one is multiplied;
# - `T.copy(source, target)`: a tensor with the place where the tile begins, as in `a[row, column]`, or a tile;
# - `T.gemm(x, y, sums, transpose_B=..., clear_accum=...)`: `sums += x @ y`, of tiles that lie as you say; with
#   `clear_accum` sums begin at 0. It may depend on `k`.
#
# The check lowers your program, compiles it and **executes it on the virtual `sm_80` and `gfx942` and on a virtual Ascend
# core**, with sizes, tiles and types of its own. The result must be right to float32, the multiplications must be done by
# the matrix units, and each tile may load its rows of `a` and `b` once.


# %% 14.gemm tags=["answer", "14.gemm"]
def gemm(T, vendor, M, N, K, BM, BN, BK, dtype):
    """A tile program: c = a @ b.T, on an SM, a CU and an AI core."""
    # BEGIN SOLUTION
    npu = vendor == "ascend"
    blocks = (M // BM) * (N // BN)
    threads = {} if npu else {"threads": 128}
    tile = T.alloc_l1 if npu else T.alloc_shared
    accumulator = T.alloc_l0c if npu else T.alloc_fragment

    @T.prim_func
    def main(
        a: T.Tensor((M, K), dtype),
        b: T.Tensor((N, K), dtype),
        c: T.Tensor((M, N), "float32"),
    ):
        with T.Kernel(blocks, **threads) as t:
            a_tile = tile((BM, BK), dtype)
            b_tile = tile((BN, BK), dtype)
            sums = accumulator((BM, BN), "float32")
            m = t // (N // BN) * BM
            n = t % (N // BN) * BN
            for k in T.Pipelined(K // BK, num_stages=2):
                T.copy(a[m, k * BK], a_tile)
                T.copy(b[n, k * BK], b_tile)
                T.gemm(a_tile, b_tile, sums, transpose_B=True, clear_accum=(k == 0))
            T.copy(sums, c[m, n])

    return main
    # END SOLUTION


# %% 14.gemm check tags=["check", "14.gemm"]
check("14.gemm")

# %% [markdown] why gemm
# **Why it matters.** This is what "one source" means, and what it does not: loop, tiles and copies are one text, and
# where a tile lives is a branch. The bytes from memory are those of the tile on every chip. Which tile is a good one is
# not the same everywhere: `14.portability` counts that.


# %% [markdown] statement of fused_epilogue
# ## 14.fused_epilogue: from the matrix unit to the vector units
#
# The same product with an epilogue: `out = silu(scale * (a @ b.T) + bias)`, where `silu(v) = v / (1 + exp(-v))`.
# `a` is `(M, K)` and `b` is `(N, K)`, both float16; `bias` is `(N,)` in float32, an element for each *column*; `out` is
# `(M, N)` in float16. Sums, scale, bias and `silu` are float32, and the result is rounded once. With a sum of 16, a scale
# of 0.125 and a bias of -2, `v` is 0, and so is the result.
#
# `fused_epilogue(T, vendor, M, N, K, BM, BN, BK, scale)` returns the tile program; its tensors are `a`, `b`, `bias`, `out`.
# `scale` is a number of Python. Sums must not go to memory on their way: the check counts bytes.
#
# On a GPU the lanes that have called the tensor cores hold the sums in registers: a loop
# `for i, j in T.Parallel(rows, columns):` over a fragment, or over shared memory, is work for all threads. `T.exp` is the
# exponential. On an AI core the sums lie in L0C, which only the cube core has. Its fixpipe hands them to *both* vector
# cores of the AI core:
#
# - `T.dual_copy(sums, half)`: from L0C to a buffer of `BM // 2` rows, `T.alloc_shared`, in the unified buffer of each
#   vector core; core 0 gets the upper half, core 1 the lower one;
# - `with T.SimtVF(threads=128):` around a `T.Parallel` loop runs it on a vector core;
# - `T.copy(bias[...], buffer)` brings the same elements to both cores;
# - `T.dual_copy(half, out[m : m + BM, n : n + BN])`: each core stores its half.
#
# You write no flag: TileLang sees which core needs what, and places them, also between the cores.


# %% 14.fused_epilogue tags=["answer", "14.fused_epilogue"]
def fused_epilogue(T, vendor, M, N, K, BM, BN, BK, scale):
    """A tile program: out = silu(scale * (a @ b.T) + bias), and no sum goes to memory."""
    # BEGIN SOLUTION
    npu = vendor == "ascend"
    blocks = (M // BM) * (N // BN)
    threads = {} if npu else {"threads": 128}
    tile = T.alloc_l1 if npu else T.alloc_shared
    accumulator = T.alloc_l0c if npu else T.alloc_fragment

    @T.prim_func
    def main(
        a: T.Tensor((M, K), "float16"),
        b: T.Tensor((N, K), "float16"),
        bias: T.Tensor((N,), "float32"),
        out: T.Tensor((M, N), "float16"),
    ):
        with T.Kernel(blocks, **threads) as t:
            a_tile = tile((BM, BK), "float16")
            b_tile = tile((BN, BK), "float16")
            sums = accumulator((BM, BN), "float32")
            shift = T.alloc_shared((BN,), "float32")
            m = t // (N // BN) * BM
            n = t % (N // BN) * BN
            for k in T.Pipelined(K // BK, num_stages=2):
                T.copy(a[m, k * BK], a_tile)
                T.copy(b[n, k * BK], b_tile)
                T.gemm(a_tile, b_tile, sums, transpose_B=True, clear_accum=(k == 0))
            T.copy(bias[n], shift)
            if npu:
                half = T.alloc_shared((BM // 2, BN), "float32")
                done = T.alloc_shared((BM // 2, BN), "float16")
                T.dual_copy(sums, half)
                with T.SimtVF(threads=128):
                    for i, j in T.Parallel(BM // 2, BN):
                        v = scale * half[i, j] + shift[j]
                        done[i, j] = v / (1.0 + T.exp(-v))
                T.dual_copy(done, out[m : m + BM, n : n + BN])
            else:
                for i, j in T.Parallel(BM, BN):
                    v = scale * sums[i, j] + shift[j]
                    sums[i, j] = v / (1.0 + T.exp(-v))
                T.copy(sums, out[m, n])

    return main
    # END SOLUTION


# %% 14.fused_epilogue check tags=["check", "14.fused_epilogue"]
check("14.fused_epilogue")

# %% [markdown] why fused_epilogue
# **Why it matters.** Every linear layer ends so. On a GPU fusing saves a kernel and a round trip; on an AI core it is
# also what lets cube and vector cores work at the same time. Which of the two units waits for the other is a question of
# FLOPs for each element: a short `K` leaves the cube core waiting for `exp`.


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


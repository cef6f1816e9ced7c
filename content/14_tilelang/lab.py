# %% [markdown] top
# # Lab 14: one source, three vendors
#
# **Eight exercises.** TODO top

# %% imports tags=["setup"]
import math

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


# %% [markdown] memory_plan
# ## 14.memory_plan: tiles and offsets
#
# Attention keeps a tile of queries and walks over the keys. Write `memory_plan(memories, buffers, tiles, n)`: the best
# tile that fits into the on-chip memories, and where each buffer lies. It returns `None` where no tile fits, or
#
# `{"tile": tile, "offsets": {name: [offset of each copy]}}`, offsets in bytes, a name for every buffer.
#
# | `memories[name]` | | a buffer | |
# |---|---|---|---|
# | `bytes` | of one part | `name`, `memory` | what it is, and where |
# | `parts` | share the rows of a tile | `shape` | numbers, or names of sizes in the tile; rows first |
# | `align` | offsets are multiples of it | `itemsize` | bytes of an element |
# | | | `copies` | 1 or `"stages"` |
# | | | `live` | `[first, last]`, steps of a round |
#
# A tile is `{"queries": ..., "keys": ..., "stages": ...}`, `tiles` is a list of them, `n` the number of queries, and of
# keys. `"queries"` in a shape stands for the tile's `queries`.
#
# **Size.** A part holds `ceil(rows / parts)` rows of a buffer, times the other sizes, times `itemsize`. All parts are
# laid out alike, so one offset serves for all.
#
# **Life.** A buffer is written in its first step and read in its last: both belong to its life. If it has two copies or
# more, each copy is live in every step, from 0 to the largest last step of all buffers: data of later rounds is on its
# way into them.
#
# **A plan fits** when every offset is a multiple of `align`, every copy ends within `bytes`, and no two copies that are
# live in the same step share a byte. A copy need not end on a multiple of `align`.
#
# **The best tile** has the fewest blocks, `ceil(n / queries)`, because each block reads all keys and values. Of these,
# the fewest rounds of a block, `ceil(n / keys)`; of these, the most stages. Any offsets that fit are right. At most 9
# copies share a memory, so you can be certain: say `None`, or pass over a tile, only where no offsets fit.
#
# **A small example**, with `n = 16`. The cell below the answer has its numbers.
#
# | memory | bytes | parts | align |
# |---|---|---|---|
# | `L1` | 128 | 1 | 32 |
# | `UB` | 160 | 2 | 32 |
#
# | buffer | memory | shape | itemsize | copies | live | 4 x 8, 1 stage | 8 x 8, 1 | 8 x 4, 1 | 8 x 4, 2 |
# |---|---|---|---|---|---|---|---|---|---|
# | `K` | `L1` | `keys`, 8 | 2 | `"stages"` | 0 to 0 | 128 | 128 | 64 | 2 of 64 |
# | `S` | `UB` | `queries`, `keys` | 4 | 1 | 0 to 1 | 64 | 128 | 64 | 64 |
# | `P` | `UB` | `queries`, `keys` | 2 | 1 | 1 to 2 | 32 | 64 | 32 | 32 |
# | `O` | `UB` | `queries`, 8 | 4 | 1 | 2 to 2 | 64 | 128 | 128 | 128 |
#
# With 8 x 8, `S` and `P` are live in step 1 and need 192 of 160 bytes. With 8 x 4, `O` needs bytes 0 to 127, so `P`
# goes to 128, although byte 64 is free when `S` has its place:
#
# `{"tile": {"queries": 8, "keys": 4, "stages": 2}, "offsets": {"K": [0, 64], "S": [0], "P": [128], "O": [0]}}`


# %% 14.memory_plan tags=["answer", "14.memory_plan"]
def memory_plan(
    memories: dict[str, dict[str, int]],
    buffers: list[dict],
    tiles: list[dict[str, int]],
    n: int,
) -> dict | None:
    """The best tile that fits, with an offset for each copy of each buffer."""
    # BEGIN SOLUTION
    end = max(one["live"][1] for one in buffers)

    def copies_in(memory, tile):
        found = []
        for one in buffers:
            if one["memory"] == memory:
                rows, *more = (tile.get(size, size) for size in one["shape"])
                size = math.ceil(rows / memories[memory]["parts"]) * math.prod(more)
                copies = tile["stages"] if one["copies"] == "stages" else 1
                live = (0, end) if copies > 1 else one["live"]
                found += [(one["name"], size * one["itemsize"], *live)] * copies
        return found

    def fill(memory, found):
        room, align = memories[memory]["bytes"], memories[memory]["align"]
        at = {}

        def place(left):
            if not left:
                return True
            for i in left:
                _, size, first, last = found[i]
                tops = [0]
                for j in at:
                    if first <= found[j][3] and found[j][2] <= last:
                        tops.append(at[j] + found[j][1])
                low = math.ceil(max(tops) / align) * align
                if low + size <= room:
                    at[i] = low
                    if place(left - {i}):
                        return True
                    del at[i]
            return False

        fits = place(frozenset(range(len(found))))
        return [at[i] for i in range(len(found))] if fits else None

    def order(tile):
        blocks, rounds = math.ceil(n / tile["queries"]), math.ceil(n / tile["keys"])
        return blocks, rounds, -tile["stages"]

    for tile in sorted(tiles, key=order):
        offsets = {one["name"]: [] for one in buffers}
        for memory in memories:
            found = copies_in(memory, tile)
            places = fill(memory, found)
            if places is None:
                break
            for (name, *_), place in zip(found, places, strict=True):
                offsets[name].append(place)
        else:
            return {"tile": tile, "offsets": offsets}
    return None
    # END SOLUTION


# %% 14.memory_plan check tags=["check", "14.memory_plan"]
check("14.memory_plan")

# %% [markdown] own plan
# **Three machines.** Your function on attention with vectors of 128, in the memories of an SM, a CU and an AI core.
# Tiles of 128 queries and multiples of it share out evenly over four waves, two groups of four warps and two vector
# cores. Before you run it: which memory is full first on each machine? Then change `d` to 256 in both places, and
# decide: on which machine is it worth the work to split `d`, so that a product runs in two halves?

# %% your plan
tiles = [
    {"queries": queries, "keys": keys, "stages": stages}
    for queries in (128, 256, 384, 512)
    for keys in range(32, 257, 32)
    for stages in (1, 2, 3)
]
planned = {}
for machine in ("sm_90", "gfx942", "ascend950"):
    memories, buffers = lesson.attention_buffers(machine, d=128)
    planned[machine] = memory_plan(memories, buffers, tiles, 4096)
lesson.plan_figure(planned, d=128)


# %% [markdown] TODO portability
# TODO portability

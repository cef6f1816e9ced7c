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


# %% [markdown] statement of portability
# ## 14.portability: which tile survives the move?
#
# One tile program, several tile sizes, several chips. Write `portability(counts, chips, work)`: pick the tile that
# keeps most of the roofline **on the chip where it keeps least**, and say for it, chip by chip, what bounds it there
# and which fraction of the roofline it keeps.
#
# `counts[tile][chip]` is what one block of that tile counted on the chip, or `None` where the compiler refuses the
# tile:
#
# | key | |
# |---|---|
# | `blocks` | blocks of the whole launch; a block runs on one unit (SM, CU, AI core) |
# | `bytes` | bytes that **one block** moves between the chip and its memory, behind L2 |
# | `spilled` | bytes of **one block** beside `bytes`: what found no register goes to memory and comes back |
# | `matrix`, `other` | FLOPs of **one block** on the matrix units, and on all others, which work side by side |
# | `resident` | blocks that fit on one unit at the same time |
# | `buffers` | buffers for the rows of A and B: with 2, one fills while the other is multiplied |
#
# `chips[chip]` is the **whole chip**: `units`, the FLOP/s of the matrix units `matrix` and of all others `other`, and
# bytes/s `memory`. `work` is the operator itself, whatever the tiles: `flops` and the fewest `bytes`.
#
# - **Arithmetic** belongs to a unit. Units get blocks as evenly as whole blocks allow, and the launch takes as long
#   as the unit with the most blocks. Each unit has its share of the chip's FLOP/s; resident blocks share their unit.
# - **Copies** share one way to memory: the bytes of all blocks, over `memory`.
# - **Together**: they run at the same time where one unit has something to multiply while it waits: where
#   `resident * buffers` is 2 or more. Else the seconds of the copies and those of the arithmetic add up.
# - **Bound**: `"matrix"`, `"other"` or `"memory"`: the one that takes longest by itself.
# - **Fraction**: the least seconds that the operator needs on this chip, from `work` and the two rates of its
#   roofline (`matrix` and `memory`), over the seconds of the launch.
#
# The result is `(tile, {chip: (bound, fraction)})`. A tile that one of the chips refuses is out; when none is left
# the result is `(None, {})`. Of equal tiles take any.
#
# **A small example.** Two chips and two tiles. The last five columns are results: three times and the launch in
# seconds, and the fraction:
#
# | | blocks | bytes | spilled | matrix | other | resident | buffers | matrix | other | copies | launch | fraction |
# |---|---|---|---|---|---|---|---|---|---|---|---|---|
# | small on gpu | 16 | 100 | 0 | 500 | 10 | 2 | 1 | 2 | 0.4 | 1.6 | 2 | 1 |
# | small on npu | 16 | 100 | 0 | 500 | 10 | 1 | 2 | 2 | 0.4 | 3.2 | 3.2 | 0.625 |
# | large on gpu | 4 | 200 | 50 | 2000 | 40 | 1 | 1 | 2 | 0.4 | 1 | 3 | 0.667 |
# | large on npu | 4 | 200 | 0 | 2000 | 40 | 1 | 2 | 2 | 0.4 | 1.6 | 2 | 1 |
#
# The gpu has 4 units, 4,000 FLOP/s on its matrix units, 400 elsewhere and 1,000 bytes/s; the npu 2 units, 4,000, 400
# and 500 bytes/s. The operator has 8,000 FLOPs and 1,000 bytes, so its least time is 2 s on both. `large` keeps two
# thirds where it keeps least, `small` 0.625: the result is `("large", {"gpu": ("matrix", 0.667), "npu": ("matrix",
# 1.0)})`, unrounded.


# %% 14.portability tags=["answer", "14.portability"]
def portability(counts: dict, chips: dict, work: dict) -> tuple:
    """(tile, {chip: (bound, fraction)}): the tile that keeps most on its worst chip."""
    # BEGIN SOLUTION
    best, chosen, report = 0.0, None, {}
    for tile, row in counts.items():
        if any(row[name] is None for name in chips):
            continue
        shares = {}
        for name, chip in chips.items():
            one = row[name]
            busiest = -(-one["blocks"] // chip["units"])
            moved = one["blocks"] * (one["bytes"] + one["spilled"])
            times = {
                "matrix": busiest * one["matrix"] * chip["units"] / chip["matrix"],
                "other": busiest * one["other"] * chip["units"] / chip["other"],
                "memory": moved / chip["memory"],
            }
            arithmetic = max(times["matrix"], times["other"])
            if one["resident"] * one["buffers"] >= 2:
                launch = max(arithmetic, times["memory"])
            else:
                launch = arithmetic + times["memory"]
            least = max(work["flops"] / chip["matrix"], work["bytes"] / chip["memory"])
            shares[name] = (max(times, key=times.get), least / launch)
        kept = min(fraction for _, fraction in shares.values())
        if kept > best:
            best, chosen, report = kept, tile, shares
    return chosen, report
    # END SOLUTION


# %% 14.portability check tags=["check", "14.portability"]
check("14.portability")

# %% [markdown] one block on three machines
# **The same block, counted.** Before the counters are believed: here is one block of a product in TileLang, 64 rows
# of A and 64 of B, 128 elements long, lowered for three vendors and executed on two virtual GPUs and a virtual AI
# core. Beside what was counted is what the table of the next cells has for such a block.

# %% counted on three machines
lesson.table(lesson.counted_block(BM=64, BN=64, BK=32, K=128), first="chip")

# %% [markdown] a product on three chips
# **Three vendors, one product.** Now 4,096 x 4,224 x 4,096 in float16, too large to execute: the counters of a block
# grow with the rows and columns of its tile and with the number of blocks, as in the block above. Three things are
# assumed, not counted: how often L2 saves a way to memory (6 blocks share a row on the H100, 4 on the MI300X, 3 on
# the Ascend), two buffers everywhere, and spills where the sums of a tile take more than a quarter of a GPU's
# registers.
#
# The chips first. All rates of the Ascend are derived from sizes and clock.
#
# > **Facts: the memory of an Ascend 950PR**
# >
# > - 27 bytes of a cycle for each of 28 cores at 1,650 MHz are 1.25 TB/s
# >   (source: CANN platform_config Ascend950PR_957bx.ini).
# > - A report on the announced chip has about 1.6 TB/s
# >   (source: whatpsu.com, Huawei Ascend 950 AI accelerator revealed in new image).
#
# This cannot show how fast anything is on these chips: nothing ran there. It says where a port will lose first, and
# why.

# %% the three chips
chips_of = {
    target: lesson.machine(target) for target in ("sm_90", "gfx942", "ascend950")
}
lesson.sourced(
    {
        f"{chip.name}: {what}": getattr(chip, what)
        for chip in chips_of.values()
        for what in ("units", "matrix", "other", "memory")
    }
)

# %% one tile for all, and one for each
picked = {}
with lesson.when_written():
    product = lesson.tiled_product()
    alone = [{name: chip} for name, chip in product["chips"].items()]
    for chips in (product["chips"], *alone):
        tile, report = portability(product["counts"], chips, product["work"])
        kept = {
            name: f"{share:.2f}, {bound}" for name, (bound, share) in report.items()
        }
        picked[f"best on {', '.join(chips)}"] = {"tile": tile} | kept
lesson.table(picked, first="pick")

# %% [markdown] what the move costs
# The first row is the program that runs everywhere, the others are tiles that were chosen for one chip alone. How
# much does each chip give up for the others, and which of the three bounds is to blame? A second table of tiles, one
# for each chip, gives it back: the program stays, its sizes do not.

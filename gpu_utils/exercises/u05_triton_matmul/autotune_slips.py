"""Lists of configurations for 05.autotune as they are found in real projects, and what is wrong with each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpu_utils.chips.targets import TARGETS
from gpu_utils.grading.exercise import Misconception

Configs = list[dict[str, int]]


def config(rows: int, cols: int, depth: int, warps: int, stages: int, **options: int) -> dict[str, int]:
    tile = {"BLOCK_M": rows, "BLOCK_N": cols, "BLOCK_K": depth}
    return {**tile, "num_warps": warps, "num_stages": stages, **options}


def right(target: str) -> Configs:
    """One answer of many."""
    if TARGETS[target].vendor == "nvidia":
        return [config(128, 256, 64, 8, 3), config(128, 128, 64, 8, 3), config(64, 64, 64, 4, 3)]
    deep = 3 if TARGETS[target].shared_per_block > 65536 else 2
    small = config(64, 32, 64, 4, 2, matrix_instr_nonkdim=16)
    return [config(128, 256, 64, 8, deep), config(128, 128, 64, 8, 2), small]


def _is_amd(target: str) -> bool:
    return TARGETS[target].vendor == "amd"


def _with(which: int, where: Callable[[str], bool], **changes: int) -> Callable[[str], Configs]:
    """The right list, with changes of one configuration on some targets."""

    def wrong(target: str) -> Configs:
        found = right(target)
        if where(target):
            found[which] |= changes
        return found

    return wrong


def _hoppers(target: str) -> Configs:
    return right("sm_90")


def _mi300xs(target: str) -> Configs:
    return right("gfx942")


def _everywhere(target: str) -> bool:
    return True


def _safe(target: str) -> Configs:
    """Fits 64 KiB under every rule."""
    found = right(target)
    found[0] = config(128, 256, 32, 8, 2)
    return found


def _a_grid_of_all(target: str) -> Configs:
    return [config(m, n, 64, 8, 2) for m in (64, 128, 256) for n in (64, 128, 256)]


def _with_a_small_one_for_the_a100(target: str) -> Configs:
    return [*right(target)[:2], config(64, 128, 64, 4, 3 if not _is_amd(target) else 2)]


def _two_warps_for_the_smallest(target: str) -> Configs:
    return [*right(target), config(32, 64, 32, 2, 5)] if not _is_amd(target) else right(target)


def _sixteen_warps_for_the_smallest(target: str) -> Configs:
    return [*right(target), config(32, 32, 32, 16, 3)] if target in ("sm_80", "sm_89") else right(target)


def _five_targets(target: str) -> Configs:
    return [] if target == "gfx90a" else right(target)


def _without_small(target: str) -> Configs:
    return [*right(target)[:2], config(128, 128, 32, 8, 2)]


def _without_large(target: str) -> Configs:
    return [config(128, 128, 32, 8, 2), *right(target)[1:]]


def _four_warps_for_all(target: str) -> Configs:
    return [{**each, "num_warps": 4} for each in right(target)]


def _the_largest_tile(target: str) -> Configs:
    return [config(256, 256, 64, 8, 2), *right(target)[1:]]


def _largest_on_amd(target: str) -> Configs:
    return _the_largest_tile(target) if _is_amd(target) else right(target)


def _twice(target: str) -> Configs:
    return [*right(target), right(target)[0]]


def _one_stage(target: str) -> Configs:
    return [{**each, "num_stages": 1} for each in right(target)]


def _one_stage_on_amd(target: str) -> Configs:
    return _one_stage(target) if _is_amd(target) else right(target)


def _only_one(target: str) -> Configs:
    return right(target)[:1]


def _as_tuples(target: str) -> Any:
    return [tuple(each.values()) for each in right(target)]


def _nested(target: str) -> Any:
    """As triton.Config has it: the constexprs in a dict of their own."""
    return [
        {"kwargs": {name: value for name, value in each.items() if name.startswith("BLOCK")}}
        | {name: value for name, value in each.items() if not name.startswith("BLOCK")}
        for each in right(target)
    ]


MISCONCEPTIONS = (
    Misconception(
        "hoppers_list_for_all",
        _hoppers,
        "An entry asks for more LDS than a block of an MI300X may have. It fits an A100, an H100 and an "
        "MI355X, whose blocks may have more. Decide by TARGETS[target].shared_per_block.",
    ),
    Misconception(
        "amds_list_for_all",
        _mi300xs,
        "matrix_instr_nonkdim, waves_per_eu and kpack are options of AMD's backend; the other one refuses them. A "
        "list for each vendor.",
    ),
    Misconception(
        "depth_of_the_h100_on_the_l40",
        _with(0, lambda target: target in ("sm_80", "sm_89"), num_stages=4),
        "It fits the A100 and not the L40, which runs the same instructions with 99 KiB instead of 163. The name of "
        "the vendor is not enough: compare with TARGETS[target].shared_per_block.",
    ),
    Misconception(
        "four_stages_everywhere",
        _with(0, _everywhere, num_stages=5),
        "The pipeline of the large tile is too deep: five stages of 48 KiB fit no target but one. Work the bytes out "
        "from the stages, by the rule of each kind of target.",
    ),
    Misconception(
        "safe_for_all",
        _safe,
        "Every entry fits, because all of them were made for 64 KiB. A chip with more has it for deeper pipelines; "
        "give the tuner one entry that uses it.",
    ),
    Misconception(
        "depth_of_the_mi300x_on_the_mi355x",
        _with(0, lambda target: target == "gfx950", num_stages=2),
        "gfx950 has more LDS for a block than gfx942, for which this list was made: no entry fills more than half of "
        "it. One more stage does.",
    ),
    Misconception(
        "no_small_tile",
        _without_small,
        "A result of 1,024 x 1,024 in tiles of 128 x 128 makes 64 programs, and the chips have more SMs or CUs "
        "than that. "
        "The tuner needs something smaller to choose.",
    ),
    Misconception(
        "small_enough_for_the_a100",
        _with_a_small_one_for_the_a100,
        "64 x 128 makes 128 programs of a result of 1,024 x 1,024. That is enough for an A100 and for no larger chip: "
        "divide by the units of each.",
    ),
    Misconception(
        "small_enough_for_the_mi355x",
        _with(2, lambda target: target == "gfx942", BLOCK_N=64),
        "64 x 64 makes 256 programs of a result of 1,024 x 1,024: one for each CU of an MI355X. An MI300X has 304.",
    ),
    Misconception(
        "no_large_tile",
        _without_large,
        "All tiles are small. A tile of BLOCK_M x BLOCK_N has BLOCK_M * BLOCK_N / (BLOCK_M + BLOCK_N) FLOPs for each "
        "byte of float16: a large product needs more than 128 x 128 gives.",
    ),
    Misconception(
        "four_warps_for_all",
        _four_warps_for_all,
        "With four warps the sums of 128 x 256 are 256 registers of each lane on NVIDIA, which has 255. A large tile "
        "needs more lanes.",
    ),
    Misconception(
        "the_largest_tile",
        _the_largest_tile,
        "256 x 256 looks best by FLOPs for a byte, and its sums alone take 256 registers of each lane on NVIDIA with "
        "eight warps: it spills.",
    ),
    Misconception(
        "the_largest_tile_on_amd",
        _largest_on_amd,
        "On AMD 256 x 256 in eight waves has room for its sums, and for BLOCK_K = 64 the operands still do not fit "
        "beside them on every chip. Read the spills, not only the LDS.",
    ),
    Misconception(
        "forces_waves",
        _with(0, _is_amd, waves_per_eu=4),
        "waves_per_eu is a promise to the compiler: with 4 waves a lane has 128 registers, and what does not fit is "
        "spilled. More waves are no gain when each of them waits for scratch.",
    ),
    Misconception(
        "kpack_everywhere",
        _with(0, _is_amd, kpack=2),
        "gfx950 ignores kpack, with a warning. An entry that differs in nothing else is timed twice for the same code.",
    ),
    Misconception(
        "two_warps_on_the_h100",
        _two_warps_for_the_smallest,
        "It runs everywhere, and on the H100 without wgmma: 32 rows in two warps compile to mma.sync there. wgmma "
        "takes 64 rows, and groups of four warps.",
    ),
    Misconception(
        "half_of_the_waves_repeat",
        _with(2, _is_amd, matrix_instr_nonkdim=32),
        "64 x 32 has two tiles of 32 x 32, which is what Triton takes by itself, and four waves: two of them compute "
        "what the others do. Smaller matrix instructions, or fewer waves.",
    ),
    Misconception(
        "half_of_the_warps_repeat",
        _sixteen_warps_for_the_smallest,
        "mma.sync gives a warp 16 x 8 sums, and 32 x 32 has eight such pieces for 16 warps: half of them compute what "
        "the others do. Fewer warps, or a larger tile.",
    ),
    Misconception(
        "nothing_for_the_mi250x",
        _five_targets,
        "gfx90a, the MI250X, has no list. Each of the six targets needs one.",
    ),
    Misconception(
        "one_stage",
        _one_stage,
        "num_stages = 1 is no pipeline: load, wait, multiply, and again. The tuner should have what overlaps.",
    ),
    Misconception(
        "one_stage_on_amd",
        _one_stage_on_amd,
        "On AMD nothing is pipelined here: num_stages = 2 is AMD's own advice for a single matrix product.",
    ),
    Misconception(
        "a_grid_of_all",
        _a_grid_of_all,
        "A tuner compiles and times every entry, for every new key. Choose; six are plenty.",
    ),
    Misconception(
        "only_one",
        _only_one,
        "One configuration is a choice already made: the tuner needs three at least, for unlike products.",
    ),
    Misconception(
        "an_entry_twice",
        _twice,
        "The same entry stands in the list twice, and is timed twice.",
    ),
    Misconception(
        "tuples",
        _as_tuples,
        "Each configuration is to be a dict with names, as a launch takes them: BLOCK_M=128, ..., num_stages=3.",
    ),
    Misconception(
        "as_triton_nests_them",
        _nested,
        "triton.Config keeps the blocks in a dict of their own, `kwargs`. Here all names stand side by side, as in a "
        "launch.",
    ),
)

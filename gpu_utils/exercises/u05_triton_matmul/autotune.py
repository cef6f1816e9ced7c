"""05.autotune: a list of configurations for each target: all of them load, none spills, and a tuner has a choice.

What a configuration needs is asked of the compiler (`autotune_compiled`), after the rules that need none.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from gpu_utils.analytic.tolerance import EXACT
from gpu_utils.chips import CHIPS
from gpu_utils.chips.targets import TARGETS
from gpu_utils.errors import CompileFailed
from gpu_utils.exercises.u05_triton_matmul import autotune_slips as slips
from gpu_utils.exercises.u05_triton_matmul.autotune_compiled import Config, needs
from gpu_utils.grading.compare import Difference
from gpu_utils.grading.exercise import Case, Exercise, Inputs

LEAST, MOST = 3, 6
LARGE = 85
"""FLOPs for a byte that a large product asks of a tile in float16: 128 x 256 has 85.3, 128 x 128 has 64."""

SIDE = 1024
"""The small result is SIDE x SIDE."""

SIZES = (16, 32, 64, 128, 256)
WARPS = (1, 2, 4, 8, 16)
NAMES = ("BLOCK_M", "BLOCK_N", "BLOCK_K", "num_warps", "num_stages")
OF_AMD = ("matrix_instr_nonkdim", "waves_per_eu", "kpack")


def units(target: str) -> int:
    """SMs or CUs of the chip that stands for a target."""
    return int(CHIPS[TARGETS[target].chip].units.value or 0)


def _inputs(case: Case, _generator: torch.Generator) -> Inputs:
    return {"target": case["target"]}


def _judge(case: Case, inputs: Inputs, value: Any) -> Difference | None:
    target = inputs["target"]
    found = _of_the_list(value)
    if found is not None:
        return found
    for number, config in enumerate(value, 1):
        for look in (_named, _valued, _pipelined, _on_matrix_units, _fits):
            if found := look(target, config):
                return Difference(found.kind, f"on {target}, configuration {number} {_shown(config)}: {found.detail}")
    return _of_all(target, value)


def _of_the_list(value: Any) -> Difference | None:
    if not isinstance(value, (list, tuple)) or not all(isinstance(config, Mapping) for config in value):
        return Difference("form", "the result is no list of dicts; expected [{'BLOCK_M': 128, ...}, ...]")
    if not LEAST <= len(value) <= MOST:
        kind = "too few" if len(value) < LEAST else "too many"
        return Difference(kind, f"the list has {len(value)} entries, expected {LEAST} to {MOST}")
    for at, config in enumerate(value):
        if config in value[:at]:
            detail = f"configurations {value.index(config) + 1} and {at + 1} are the same: {_shown(config)}"
            return Difference("twice", detail)
    return None


def _named(target: str, config: Config) -> Difference | None:
    amd = TARGETS[target].vendor == "amd"
    if missing := [name for name in NAMES if name not in config]:
        return Difference("names", f"there is no {missing[0]}; each has {', '.join(NAMES)}")
    strange = [name for name in config if name not in (*NAMES, *(OF_AMD if amd else ()))]
    if strange:
        known = f"{', '.join(NAMES)}" + (f", and perhaps {', '.join(OF_AMD)}" if amd else "")
        return Difference("names", f"{strange[0]!r} is not known here; expected {known}")
    if target == "gfx950" and "kpack" in config:
        return Difference(
            "ignored", "kpack is ignored on gfx950: Triton warns, and the tuner times the same code twice"
        )
    return None


def _valued(target: str, config: Config) -> Difference | None:
    for name, value in config.items():
        allowed: Sequence[int] = SIZES if name.startswith("BLOCK") else WARPS if name == "num_warps" else range(9)
        if name == "matrix_instr_nonkdim":
            allowed = (0, 16, 32)
        if isinstance(value, bool) or not isinstance(value, int) or value not in allowed:
            return Difference("values", f"{name} is {value!r}, expected one of {', '.join(map(str, allowed))}")
    return None


def _pipelined(target: str, config: Config) -> Difference | None:
    if config["num_stages"] >= 2:
        return None
    return Difference("stages", "with num_stages below 2 nothing is loaded while the matrix units work")


def _on_matrix_units(target: str, config: Config) -> Difference | None:
    rows, cols, warps = (config[name] for name in ("BLOCK_M", "BLOCK_N", "num_warps"))
    if target == "sm_90" and (rows < 64 or warps % 4):
        return Difference("wgmma", "it compiles to mma.sync; wgmma takes 64 rows of A and the four warps of a group")
    high, wide, waves = 16, 8, "warps"  # mma.sync's; of wgmma, which has 64 rows, each of four warps has 16
    if TARGETS[target].vendor == "amd":
        high = wide = config.get("matrix_instr_nonkdim") or (32 if min(rows, cols) >= 32 else 16)
        waves = "waves"
    pieces = (rows // high) * (cols // wide)
    if pieces >= warps:
        return None
    detail = (
        f"{pieces} pieces of {high} x {wide} for {warps} {waves}: some of the {waves} compute what another one does"
    )
    return Difference("same work", detail)


def _fits(target: str, config: Config) -> Difference | None:
    limits = TARGETS[target]
    nvidia = limits.vendor == "nvidia"
    sums = config["BLOCK_M"] * config["BLOCK_N"] // (config["num_warps"] * limits.lanes)
    if nvidia and sums > 255:
        return Difference("spills", f"it spills: the sums alone are {sums} registers of a lane, which has 255")
    try:
        need = needs(target, config)
    except CompileFailed as problem:
        return Difference("compile", str(problem))
    if need.shared > limits.shared_per_block:
        memory = "shared memory" if nvidia else "LDS"
        detail = f"it asks for {need.shared:,} bytes of {memory}; a block may have {limits.shared_per_block:,}"
        return Difference("shared", f"{detail}: it compiles and does not load")
    if need.spills:
        what = "bytes of a thread" if nvidia else "registers of a lane"
        kind = "forced spills" if config.get("waves_per_eu") else "spills"
        return Difference(kind, f"it spills {need.spills} {what}, beside {need.registers} registers")
    return None


def _of_all(target: str, configs: Sequence[Config]) -> Difference | None:
    sizes = [(config["BLOCK_M"], config["BLOCK_N"]) for config in configs]
    programs = max(SIDE // rows * (SIDE // cols) for rows, cols in sizes)
    if programs < units(target):
        chip = f"{TARGETS[target].chip} has {units(target)} SMs or CUs"
        detail = f"a result of {SIDE} x {SIDE} makes {programs} programs at most; {chip}"
        return Difference("small", f"on {target} no tile is small enough: {detail}")
    best = max(rows * cols / (rows + cols) for rows, cols in sizes)
    if best < LARGE:
        detail = f"the best has {best:.1f} FLOPs for each byte of A and B that it loads, expected {LARGE} or more"
        return Difference("large", f"on {target} no tile is large enough: {detail}")
    half = TARGETS[target].shared_per_block // 2
    deepest = max(needs(target, config).shared for config in configs)
    if deepest <= half:
        detail = (
            f"the deepest pipeline holds {deepest:,} bytes, expected more than {half:,}, half of what a block may have"
        )
        return Difference("deep", f"on {target} {detail}")
    return None


def _shown(config: Config) -> str:
    return "(" + ", ".join(f"{name}={value}" for name, value in config.items()) + ")"


def _fresh(rng: random.Random) -> Case:
    return Case("a chip drawn at random", target=rng.choice(("sm_80", "sm_89", "sm_90", "gfx90a", "gfx942", "gfx950")))


EXERCISE = Exercise(
    id="05.autotune",
    title="A space of configurations for each chip",
    parameters=("target",),
    kind="host",
    inputs=_inputs,
    reference=slips.right,
    judge=_judge,
    tolerance=lambda case, inputs: EXACT,
    dtype=lambda inputs: None,
    seconds=120.0,
    cases=(
        Case("A100: copies that do not wait", target="sm_80"),
        Case("L40: the same instructions, and less shared memory", target="sm_89"),
        Case("H100: wgmma, which has conditions", target="sm_90"),
        Case("MI300X: little LDS and many CUs", target="gfx942"),
        Case("MI355X: more LDS, half of which must be of use", target="gfx950"),
        Case("MI250X: an older die with as little LDS", target="gfx90a"),
    ),
    fresh=_fresh,
    trivial={
        "zeros": lambda target: [],
        "ones": lambda target: [dict.fromkeys(NAMES, 1)] * 3,
        "nan": lambda target: None,
        "the input": lambda target: target,
    },
    misconceptions=slips.MISCONCEPTIONS,
    hints=(
        "Begin with one configuration for each of three jobs: a large tile, a small one, and something between. Make a "
        "table of `needs` of each on each target, and read it: spills, shared KiB, matrix instruction.",
        "Choose by vendor and by TARGETS[target].shared_per_block. A stage of 128 x 256 x 64 in float16 has "
        "48 x 1,024 bytes. S stages take S - 1 of them on sm_80, sm_89 and AMD, and S on sm_90. The sums of 128 "
        "x 256 need "
        "eight warps. The small result has 2 to the 20 elements: divide by the units of the chip.",
        "NVIDIA: (128, 256, 64) with 8 warps and 3 stages, (128, 128, 64) with 8 and 3, (64, 64, 64) with 4 and 3. "
        "AMD: (128, 256, 64) with 8 warps and 2 stages, 3 on gfx950; (128, 128, 64) with 8 and 2; "
        "(64, 32, 64) with 4 and 2, and matrix_instr_nonkdim=16, so that four waves find four tiles.",
    ),
    explanation=(
        "A tuner times what it is given, so the list is the decision. A configuration that asks for too much shared "
        "memory stops the tuner or is silently dropped; one that spills is timed for nothing; a list without a small "
        "tile leaves most of a chip idle on small products, and one without a large tile reads too many bytes on "
        "large ones. None of it carries over: the same 128 x 256 x 64 with three stages keeps two of them in "
        "shared memory "
        "on an A100, three on an H100, and two on an MI300X, where a block has no room for the second. wgmma "
        "wants 64 rows and four warps; an MFMA of 32 x 32 "
        "wants a tile for each wave, and mma.sync a piece of 16 x 8 for each warp. So the list depends on vendor and "
        "chip, and the compiler is asked for every entry."
    ),
)

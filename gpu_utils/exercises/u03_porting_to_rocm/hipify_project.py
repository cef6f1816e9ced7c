"""The CUDA project of 03.hipify_fixups, under other names and sizes, and what hipify makes of it."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from gpu_utils.compiler.hipify import hipify
from gpu_utils.grading.exercise import Case

PROJECT = Path(__file__).parent / "project"
KERNELS = "csrc/kernels_hip.cuh"
"""The translated header with the kernels; the grader compiles it with what it includes."""

TEAMS = ("normq", "lnfuse", "tinyops", "quantkit", "wavekit", "rowops", "fastnorm", "gptops")


@dataclass(frozen=True)
class Variant:
    """The project as another team has it. team: its namespace and the start of its kernels' names.

    hidden: channels of a token. tile: tokens that a block stages. threads: of a block. The original stages more than
    64 KiB in every variant.
    """

    team: str
    hidden: int
    tile: int
    threads: int

    @property
    def kernels(self) -> tuple[str, str, str]:
        """Names of the three kernels: norm and FP8, clip counter, GELU."""
        return f"{self.team}_norm_kernel", f"{self.team}_clip_kernel", f"{self.team}_gelu_kernel"


ORIGINAL = Variant("normq", 768, 32, 256)
"""The project as it stands in its folder."""


def variant_of(case: Case) -> Variant:
    return Variant(case["team"], case["hidden"], case["tile"], case["threads"])


def draw(rng: random.Random) -> dict[str, object]:
    """Parameters of a case with a variant that nobody has seen."""
    hidden = rng.choice((512, 640, 768, 1024))
    over = 64 * 1024 // (4 * hidden)
    return {
        "target": rng.choice(("gfx942", "gfx942", "gfx1100", "gfx950")),
        "team": rng.choice(TEAMS[1:]) + str(rng.randrange(2, 100)),
        "hidden": hidden,
        "tile": rng.randint(over + over // 4, 3 * over),
        "threads": rng.choice((128, 256, 512)),
        "tokens": rng.randint(2, 5),
    }


def cuda_project(variant: Variant = ORIGINAL) -> dict[str, str]:
    """path -> text of the CUDA project."""
    files = {}
    for path in sorted(PROJECT.rglob("*")):
        if path.suffix in (".cu", ".cuh", ".h", ".cpp", ".py") and path.is_file():
            files[path.relative_to(PROJECT).as_posix()] = _renamed(path.read_text(), variant)
    return files


def _renamed(text: str, variant: Variant) -> str:
    text = re.sub(r"\bnormq(?=\b|_)", variant.team, text)
    text = re.sub(r"\bNORMQ_", f"{variant.team.upper()}_", text)
    kib = variant.hidden * variant.tile * 4 / 1024
    text = re.sub(r"// 96 KB\b", f"// {kib:g} KB", text)
    for name, size in (("kHidden", variant.hidden), ("kThreads", variant.threads), ("kTileTokens", variant.tile)):
        text = re.sub(rf"\b{name} = \d+;", f"{name} = {size};", text)
    return text


@lru_cache(maxsize=32)
def _hipified(variant: Variant) -> tuple[tuple[str, str], ...]:
    return tuple(hipify(cuda_project(variant)).files.items())


def hipified_project(variant: Variant = ORIGINAL) -> dict[str, str]:
    """path -> text of the project after hipify: what a learner is given."""
    return dict(_hipified(variant))

"""Two profiles of one program, before and after some commits: drawn rows, one for each launch.

A program is a list of kernels with their figures; a profile is its launches one after the other, with the host's gaps
between them and a little noise on every time. What a commit did is a change of the program.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

Row = dict[str, Any]
SCATTER = 0.01
"""Every time is drawn within this share of its mean: counters of bytes and occupancy too."""

STEPS = 2


@dataclass(frozen=True)
class Kernel:
    """calls: in a step; ns, bytes: of a launch; known: False where bytes and occupancy were not collected."""

    name: str
    before: str
    after: str
    calls: int
    ns: float
    grid: int
    bytes: float
    registers: int
    shared: int
    occupancy: float
    known: bool = True


Program = tuple[Kernel, ...]

_NAMES = {
    "gemm": ("void gemm<float, 64, 64>(float*, int)", "void gemm<float, 128, 64>(float*, int)"),
    "softmax": ("softmax_3", "softmax_5"),
    "layer_norm": ("layer_norm.kd", "layer_norm_2.kd"),
    "gelu": ("gelu [clone .kd]", "gelu"),
    "adam_step": ("adam_step", "adam_step"),
    "transpose": ("void transpose<4>(float*)", "transpose<8>(float*)"),
    "loss": ("loss_0", "loss_12"),
}
"""Kernel -> its name in either profile, of which the base name is the part that stays."""

_MICROSECONDS = {
    "largest": (380, 420),
    "blamed": (170, 200),
    "small": (2, 3),
    "other": (50, 60),
    "moved": (130, 150),
    "rest": (20, 30),
    "more": (30, 40),
}
"""Role -> microseconds of a step."""


def drawn_program(rng: random.Random) -> tuple[Program, dict[str, str]]:
    """A program, and which kernel has which part in it.

    The largest takes most of the time, "blamed" is what a commit may change, "small" takes next to nothing.
    """
    names = list(_NAMES)
    rng.shuffle(names)
    roles = dict(zip(_MICROSECONDS, names, strict=True))
    kernels = []
    for role, name in roles.items():
        calls = rng.randrange(2, 4)
        kernels.append(
            Kernel(
                name,
                *_NAMES[name],
                calls=calls,
                ns=1e3 * rng.uniform(*_MICROSECONDS[role]) / calls,
                grid=rng.randrange(500, 5000),
                bytes=rng.uniform(2e6, 9e7),
                registers=8 * rng.randrange(4, 10),
                shared=1024 * rng.randrange(0, 16),
                occupancy=rng.uniform(55, 95),
            )
        )
    rng.shuffle(kernels)
    return tuple(kernels), roles


def launches(rng: random.Random, program: Program, which: str, gap: float, clock: float = 1.0) -> list[Row]:
    """The rows of a profile; which: "before" or "after"; gap: ns between two launches."""

    def about(mean: float) -> float:
        return mean * rng.uniform(1 - SCATTER, 1 + SCATTER)

    rows: list[Row] = []
    now = rng.randrange(10**12, 10**13)
    for _ in range(STEPS):
        for kernel in program:
            for _ in range(kernel.calls):
                took = round(about(kernel.ns * clock))
                rows.append(
                    {
                        "name": getattr(kernel, which),
                        "start": now,
                        "duration": took,
                        "grid": kernel.grid,
                        "memory_bytes": round(about(kernel.bytes)) if kernel.known else None,
                        "registers": kernel.registers,
                        "shared_bytes": kernel.shared,
                        "occupancy": round(about(kernel.occupancy), 2) if kernel.known else None,
                    }
                )
                now += took + round(about(gap))
    rng.shuffle(rows)
    return rows


# --- what commits do ----------------------------------------------------------------------------------------------

Change = Callable[[random.Random, Kernel], Sequence[Kernel]]


def more_calls(rng: random.Random, kernel: Kernel) -> list[Kernel]:
    return [replace(kernel, calls=kernel.calls + rng.randrange(2, 4))]


def more_bytes(rng: random.Random, kernel: Kernel) -> list[Kernel]:
    factor = rng.uniform(1.6, 2.5)
    return [replace(kernel, bytes=kernel.bytes * factor, ns=kernel.ns * factor)]


def less_resident(rng: random.Random, kernel: Kernel) -> list[Kernel]:
    """More registers or shared memory: fewer waves, and no more work."""
    lost = rng.uniform(0.4, 0.6)
    slow = replace(kernel, occupancy=kernel.occupancy * lost, ns=kernel.ns * rng.uniform(1.5, 2))
    if rng.random() < 0.5:
        return [replace(slow, registers=kernel.registers + 64)]
    return [replace(slow, shared=kernel.shared + 20_480)]


def less_resident_unseen(rng: random.Random, kernel: Kernel) -> list[Kernel]:
    return [replace(kernel, ns=kernel.ns * rng.uniform(1.5, 2), registers=kernel.registers + 64, known=False)]


def only_slower(rng: random.Random, kernel: Kernel) -> list[Kernel]:
    """More registers, and as many waves resident as before: no column says why."""
    return [replace(kernel, ns=kernel.ns * rng.uniform(1.5, 2), registers=kernel.registers + 16)]


def only_slower_unseen(rng: random.Random, kernel: Kernel) -> list[Kernel]:
    return [replace(kernel, ns=kernel.ns * rng.uniform(1.5, 2), known=False)]


def renamed(rng: random.Random, kernel: Kernel) -> list[Kernel]:
    return [replace(kernel, after=f"fused_{kernel.name}<2>(float*)")]


def split(rng: random.Random, kernel: Kernel) -> list[Kernel]:
    """In two kernels that together take as long."""
    share = rng.uniform(0.4, 0.6)
    parts = (("first_half_of", share), ("second_half_of", 1 - share))
    return [replace(kernel, after=f"{part}_{kernel.name}", ns=kernel.ns * of) for part, of in parts]


def halves(rng: random.Random, kernel: Kernel) -> list[Kernel]:
    """Twice as many launches of half the work each."""
    return [replace(kernel, calls=2 * kernel.calls, ns=kernel.ns / 2, bytes=kernel.bytes / 2, grid=kernel.grid // 2)]


def faster(rng: random.Random, kernel: Kernel) -> list[Kernel]:
    return [replace(kernel, ns=kernel.ns * rng.uniform(0.75, 0.85))]


def three_times_as_slow(rng: random.Random, kernel: Kernel) -> list[Kernel]:
    return [replace(kernel, ns=3 * kernel.ns, bytes=3 * kernel.bytes)]


def one_granule_more(rng: random.Random, kernel: Kernel) -> list[Kernel]:
    """More registers, between two steps of occupancy: nothing follows."""
    return [replace(kernel, registers=kernel.registers + 8)]


CAUSES: dict[str, Change] = {
    "calls": more_calls,
    "bytes": more_bytes,
    "occupancy": less_resident,
    "occupancy, not collected": less_resident_unseen,
    "unknown": only_slower,
    "unknown, not collected": only_slower_unseen,
}
HOST = "host"
HARMLESS: dict[str, tuple[str, Change]] = {
    "renamed": ("moved", renamed),
    "split": ("moved", split),
    "halves": ("other", halves),
    "faster": ("other", faster),
    "small": ("small", three_times_as_slow),
    "registers": ("largest", one_granule_more),
}
"""What else a commit did -> (to which kernel, how). HOST: the host is a little slower."""


def drawn_profiles(rng: random.Random, cause: str, harmless: Sequence[str]) -> dict[str, list[Row]]:
    """The two profiles. cause: of CAUSES, or "idle", "clock", "none"."""
    program, roles = drawn_program(rng)
    gap = rng.uniform(4000, 8000)
    changes = {roles[role]: change for role, change in (HARMLESS[name] for name in harmless if name != HOST)}
    if cause in CAUSES:
        changes[roles["blamed"]] = CAUSES[cause]
    if cause.endswith("not collected"):
        program = tuple(replace(one, known=one.name != roles["blamed"]) for one in program)
    after: Program = tuple(
        new for kernel in program for new in (changes[kernel.name](rng, kernel) if kernel.name in changes else [kernel])
    )
    clock = rng.uniform(1.1, 1.25) if cause == "clock" else 1.0
    # the host's time of a step stays as it is, however many launches there are
    later = gap * sum(one.calls for one in program) / sum(one.calls for one in after)
    if cause == "idle" or HOST in harmless:
        later *= rng.uniform(2.5, 4) if cause == "idle" else rng.uniform(1.45, 1.55)
    return {"before": launches(rng, program, "before", gap), "after": launches(rng, after, "after", later, clock)}

"""Where data lies on an SM, a CU and an AI core, and who moves it from one place to the next."""

from __future__ import annotations

from dataclasses import dataclass

from gpu_utils.chips import TARGETS
from gpu_utils.chips.npus import NPUS
from gpu_utils.errors import UnknownName
from gpu_utils.ui.explore.drawing import Picture, beside, box, heading, path, picture, svg, text

_WIDTH, _ROW, _BOX = 400.0, 62.0, 34.0


@dataclass(frozen=True)
class Place:
    """A memory, and how data comes into it from the one above: who moves it, and what says that it is there."""

    name: str
    mover: str = ""
    ready: str = ""


def _kib(size: int) -> str:
    return f"{size / 1024:g} KiB"


def _places(target: str) -> tuple[str, list[Place]]:
    if target in NPUS:
        npu = NPUS[target]
        return f"AI core ({npu.name})", [
            Place("memory (GM), L2"),
            Place(f"L1, {_kib(npu.l1)}, in fractals", "pipe MTE2 copies", "flag MTE2 to MTE1"),
            Place(f"L0A and L0B, {_kib(npu.l0a)} each", "pipe MTE1 copies", "lock, or flag MTE1 to M"),
            Place(f"L0C, {_kib(npu.l0c)}: the sums", "pipe M multiplies", "flag M to FIX"),
            Place(
                f"unified buffer, {_kib(npu.ub)} for each vector core",
                "pipe FIX copies",
                "arrive and wait between cores",
            ),
            Place("vector registers, and out again", "pipe V loads; MTE3 stores", "flag V to MTE3"),
        ]
    unit = TARGETS[target]
    registers = _kib(unit.registers * unit.lanes * 4)
    if unit.vendor == "nvidia":
        bulk = target in ("sm_90", "sm_100")
        shared = Place(
            f"shared memory, {_kib(unit.shared_per_unit)}",
            "the TMA copies a tile" if bulk else "lanes copy (cp.async)",
            "mbarrier" if bulk else "cp.async.wait, bar.sync",
        )
        loaded = Place(f"registers, {registers} for each of 4 partitions", "lanes load (ldmatrix)", "the scoreboard")
        sums = {
            "sm_90": Place("sums in registers", "tensor core multiplies from shared memory", "wgmma.wait_group"),
            "sm_100": Place("sums in tensor memory", "tensor core multiplies from shared memory", "mbarrier"),
        }.get(target, Place("sums in registers", "tensor core multiplies", "the scoreboard"))
        return f"SM ({target})", [Place("memory, L2: a cache"), shared, *([] if bulk else [loaded]), sums]
    return f"CU ({target})", [
        Place("memory, Infinity Cache, L2: caches"),
        Place(f"LDS, {_kib(unit.shared_per_unit)}", "lanes load into registers and store", "s_waitcnt, s_barrier"),
        Place(f"registers, {registers} for each of 4 SIMDs", "lanes load (ds_read)", "s_waitcnt lgkmcnt"),
        Place("sums in registers (AGPRs)", "matrix core multiplies (MFMA)", "the hardware, or s_nop"),
    ]


def movers_figure(*targets: str) -> Picture:
    """Memories under each other, by target, with who moves data into each and what says that it has come.

    targets  of TARGETS, or "ascend950"; sizes are those of the registry. Errors: UnknownName.

    >>> print(movers_figure("ascend950"))  # doctest: +ELLIPSIS
    AI core (Ascend 950PR (957b)): memory (GM), L2; L1, 512 KiB, in fractals (pipe MTE2 copies; flag MTE2 to MTE1); ...
    """
    unknown = next((name for name in targets if name not in NPUS and name not in TARGETS), None)
    if unknown is not None:
        raise UnknownName("target", unknown, (*TARGETS, *NPUS))
    return beside(*(_drawn(*_places(name)) for name in targets))


def _drawn(title: str, places: list[Place]) -> Picture:
    parts: list[str] = []
    for number, place in enumerate(places):
        y = 4 + number * _ROW
        parts.append(box(4, y, _WIDTH - 8, _BOX, "room"))
        parts.append(text(12, y + 21, place.name, size=13, bold=True))
        if number:
            parts.append(path(((24, y - _ROW + _BOX), (24, y - 2)), "edge"))
            parts.append(path(((20, y - 8), (24, y - 1), (28, y - 8)), "edge"))
            parts.append(text(36, y - 15, place.mover, size=12))
            parts.append(text(36, y - 3, f"ready: {place.ready}", size=11))
    words = "; ".join(one.name + (f" ({one.mover}; {one.ready})" if one.mover else "") for one in places)
    words = f"{title}: {words}."
    return picture("", words, heading(title), svg(_WIDTH, 4 + len(places) * _ROW - 20, parts, words), spoken=False)

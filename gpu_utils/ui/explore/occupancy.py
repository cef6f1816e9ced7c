"""Occupancy: the wave slots, registers and shared memory of one SM or CU, and the cliffs as registers grow."""

from __future__ import annotations

from functools import partial
from typing import Any

from gpu_utils.analytic.occupancy import THREADS, Occupancy, has_cu_mode, occupancy
from gpu_utils.chips import TARGETS, Target
from gpu_utils.compiler import Compiled, Resources, resources
from gpu_utils.errors import BadArgument
from gpu_utils.ui.explore.drawing import (
    Picture,
    box,
    count,
    heading,
    path,
    picture,
    small,
    svg,
    table,
    targets_of,
    text,
    wave,
)
from gpu_utils.ui.explore.widget import Explorer, Sides, choice, slider

_WIDTH = 480
_SHARED = max(target.shared_per_unit for target in TARGETS.values())
_REGISTERS = max(target.registers_max for target in TARGETS.values())


def draw(target: str, registers: int, shared: int, threads: int, scalars: int = 0) -> Picture:
    """One SM, CU or WGP filled with as many blocks as fit.

    target: of TARGETS; registers: of a lane; shared: bytes of a block; threads: of a block; scalars: scalar registers
    of a wave.
    """
    limits = TARGETS[target]
    waves = -(-threads // limits.lanes)
    found = occupancy(limits, registers, shared, waves, scalars=scalars)
    fit = curve(limits, shared, waves, scalars)
    words = _words(found, registers, threads, fit)
    drawn = [*_parts(found), *_shared_bar(found)]
    rows = [(row.resource, row.blocks, row.rule) for row in found.rows]
    binding = [number for number, row in enumerate(found.rows) if row.blocks == found.blocks]
    return picture(
        limits.vendor,
        words,
        heading(f"{target}, one {_unit(limits)}: {found.waves} of {found.most} {wave(limits.vendor)} slots filled"),
        svg(_WIDTH, 216, drawn, f"{found.blocks} blocks on one {_unit(limits)}: {found}", least=400),
        svg(_WIDTH, 186, _chart(found, registers, fit), _chart_words(found, registers), least=400),
        table(("resource", "blocks", "what it allows"), rows, binding),
        after=small(f"Limits: {limits.source}. Which part a {wave(limits.vendor)} lands on is the hardware's choice."),
    )


def curve(limits: Target, shared: int, waves: int, scalars: int = 0) -> list[int]:
    """Waves that fit, for 0, 1, 2, ... registers of a lane."""
    whole = range(limits.registers_max + 1)
    return [occupancy(limits, registers, shared, waves, scalars=scalars).waves for registers in whole]


def _words(found: Occupancy, registers: int, threads: int, fit: list[int]) -> str:
    limits, kind = found.target, wave(found.target.vendor)
    idle = found.waves_per_block * limits.lanes - threads
    sentences = [
        f"{count(found.blocks, 'block')} of {count(found.waves_per_block, kind)}: {found}; {found.advice}.",
        f"The last {kind} of a block has {idle} lanes without a thread." if idle else "",
    ]
    if registers < len(fit) and fit[registers]:
        cliff = next((more for more in range(registers, len(fit)) if fit[more] < fit[registers]), None)
        if cliff is not None:
            sentences.append(f"The next cliff is at {cliff} registers: {fit[cliff]} {kind}s.")
    return " ".join(sentence for sentence in sentences if sentence)


def _unit(limits: Target) -> str:
    return "SM" if limits.vendor == "nvidia" else "WGP" if has_cu_mode(limits) else "CU"


def _parts(found: Occupancy) -> list[str]:
    """The parts of the unit: wave slots with the number of the block in each, and the share of the registers."""
    limits = found.target
    part, columns = "part" if limits.vendor == "nvidia" else "SIMD", 4
    width = (_WIDTH - 8) / limits.simds
    slot = (width - 18) / columns
    taken = next(row.taken for row in found.rows if row.resource == "registers")
    drawn = []
    for number in range(limits.simds):
        x, mine = 4 + number * width, list(range(number, found.waves, limits.simds))
        drawn += [box(x, 2, width - 6, 140, "room"), text(x + 6, 17, f"{part} {number}", bold=True)]
        for place in range(limits.waves_per_simd):
            left, top = x + 6 + place % columns * slot, 24 + place // columns * 21
            if place < len(mine):
                block = mine[place] // found.waves_per_block
                drawn += [
                    box(left, top, slot - 3, 18, _shade(block)),
                    text(left + slot / 2 - 1, top + 13, block, size=11, at="middle"),
                ]
            else:
                drawn.append(box(left, top, slot - 3, 18))
        used = len(mine) * taken
        whole = width - 21
        drawn += [
            box(x + 6, 112, whole, 10),
            *(
                box(
                    x + 6 + whole * i * taken / limits.registers,
                    112,
                    whole * taken / limits.registers,
                    10,
                    _shade(wave_ // found.waves_per_block),
                )
                for i, wave_ in enumerate(mine)
            ),
            text(x + 6, 136, f"{used} of {limits.registers} regs", size=11),
        ]
    return drawn


def _shade(block: int) -> str:
    return "odd" if block % 2 else "even"


def _shared_bar(found: Occupancy) -> list[str]:
    """Shared memory of the unit, with the share of each block."""
    row = next((row for row in found.rows if row.resource in ("shared memory", "LDS")), None)
    name = "shared memory" if found.target.vendor == "nvidia" else "LDS"
    whole, has = _WIDTH - 14, found.target.shared_per_unit
    taken = row.taken if row else 0
    drawn = [box(4, 166, whole, 20, "room")]
    for block in range(found.blocks if taken else 0):
        left, width = 4 + whole * block * taken / has, whole * taken / has
        drawn.append(box(left, 166, width, 20, _shade(block)))
        if width > 12:
            drawn.append(text(left + width / 2, 180, block, size=11, at="middle"))
    used = f"{name}: {found.blocks * taken / 1024:.1f} of {has / 1024:g} KiB"
    return [*drawn, text(4, 160, f"{used}, the number is the block" if taken else used)]


def _chart(found: Occupancy, registers: int, fit: list[int]) -> list[str]:
    """Waves that fit against registers of a lane, with the point where the sliders stand."""
    limits = found.target
    right = 256 if registers <= 256 else _REGISTERS
    left, top, width, height = 34.0, 22.0, _WIDTH - 62.0, 130.0

    def at(count_: float, waves: float) -> tuple[float, float]:
        return left + width * count_ / right, top + height * (1 - waves / found.most)

    drawn = [box(left, top, width, height)]
    for share in (0, 0.25, 0.5, 0.75, 1):
        y = at(0, share * found.most)[1]
        drawn += [
            path([(left, y), (left + width, y)], dashes="1 3"),
            text(left - 5, y + 4, f"{share * found.most:g}", size=11, at="end"),
        ]
    for tick in range(0, right + 1, right // 8):
        drawn.append(text(at(tick, 0)[0], top + height + 14, tick, size=11, at="middle"))
    stairs: list[tuple[float, float]] = []
    for count_, waves in enumerate(fit[: right + 1]):
        stairs += [at(max(count_ - 1, 0), waves), at(count_, waves)]
    x, y = at(registers, found.waves)
    room = x < left + width - 130  # above and to the right of a falling curve nothing is drawn
    under_title = y < top + 14 and x < left + 110
    beside_point = (x + 8 if room else left + width, y + 18 if under_title else y - 8)
    label = f"{count(registers, 'register')}: {found.waves}"
    drawn += [
        text(4, 11, f"{wave(limits.vendor)}s that fit", size=11),
        path(stairs, "hue"),
        path([(x, top + height), (x, y)], dashes="3 3"),
        f'<circle class="mark" cx="{x:.1f}" cy="{y:.1f}" r="6"/>',
        text(*beside_point, label, at="start" if room else "end", bold=True),
        text(left + width, top + height + 30, "registers of a lane", size=11, at="end"),
    ]
    if limits.registers_max < right - 100:
        drawn.append(
            text(
                at(limits.registers_max, 0)[0] + 8,
                top + 14,
                f"a lane has at most {limits.registers_max}",
                size=11,
            )
        )
    return drawn


def _chart_words(found: Occupancy, registers: int) -> str:
    kind = wave(found.target.vendor)
    return f"{kind}s that fit, in steps: at {count(registers, 'register')} {found.waves} of {found.most}"


def explorer(
    *kernels: Any,
    nvidia: str = "sm_90",
    amd: str = "gfx942",
    registers: int = 64,
    shared: int = 16384,
    threads: int = 256,
) -> Any:
    """Both vendors side by side.

    kernels      at most one for each vendor, as `compile_for` or `resources` returned it: its figures are where the
                 sliders of that side start
    nvidia, amd  the targets to start with; registers, shared, threads: where the sliders start

    Errors: BadArgument for what is no compiled kernel, two kernels of one vendor or a target on the wrong side;
    UnknownName for a target.
    """
    needs: dict[str, Resources] = {}
    for kernel in kernels:
        if not isinstance(kernel, (Compiled, Resources)):
            raise BadArgument(
                f"{kernel!r} is no compiled kernel; expected what compile_for or resources returned, and targets as "
                "nvidia=... and amd=..."
            )
        found = kernel if isinstance(kernel, Resources) else resources(kernel)
        if found.target.vendor in needs:
            raise BadArgument(
                f"{found.name} is the second kernel for {found.target.vendor}; expected one for each vendor"
            )
        needs[found.target.vendor] = found
    sides = []
    for vendor, name in (("nvidia", nvidia), ("amd", amd)):
        need: Resources | None = needs.get(vendor)
        target = need.target if need else TARGETS[name]
        if target.vendor != vendor:
            raise BadArgument(
                f"{name} is no target of {vendor}; expected one of {', '.join(n for _, n in targets_of(vendor))}"
            )
        controls = {
            "target": choice("target", targets_of(vendor), target.name),
            "registers": slider("registers", need.registers if need else registers, 1, _REGISTERS),
            "shared": slider(
                "shared, bytes" if vendor == "nvidia" else "LDS, bytes",
                need.shared if need else shared,
                0,
                _SHARED,
                512,
            ),
            "threads": slider("threads a block", need.num_warps * target.lanes if need else threads, 32, THREADS, 32),
        }
        sides.append(Explorer(partial(draw, scalars=need.sgprs if need else 0), controls))
    left, right = sides
    return Sides(left, right, above=[_together(left, right, on=not needs)])


def _together(left: Explorer, right: Explorer, on: bool) -> Any:
    """A check box; while it is on, a slider that is moved takes its twin on the other side along."""
    import ipywidgets as widgets

    both = widgets.Checkbox(value=on, description="move both sides together", indent=False)

    def follow(twin: Any, change: Any) -> None:
        if both.value:
            twin.value = change["new"]

    for name in ("registers", "shared", "threads"):
        for mine, other in ((left, right), (right, left)):
            mine.controls[name].observe(partial(follow, other.controls[name]), names="value")
    return both

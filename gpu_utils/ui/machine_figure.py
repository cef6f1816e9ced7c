"""What one SM, CU or WGP holds, and how chips are made of them, drawn from the registry."""

from __future__ import annotations

from gpu_utils.chips import CHIPS, TARGETS, Chip, Target
from gpu_utils.chips.caches import L2_OF_TARGET
from gpu_utils.errors import UnknownFigure
from gpu_utils.ui.explore.drawing import Picture, beside, box, heading, picture, small, svg, text, wave

_KIB = 1024
_WIDTH, _PART, _GAP = 480.0, 108.0, 12.0
_MOST_REGISTERS = max(target.registers * target.lanes * 4 for target in TARGETS.values())
_MOST_SHARED = max(target.shared_per_unit for target in TARGETS.values())
"""Bytes of a part and of a unit that fill their boxes: the most of any target, so that figures side by side compare."""


def unit_figure(*targets: str) -> Picture:
    """The compute units of some targets side by side: parts, wave slots, registers, shared memory.

    Errors: UnknownName for a target that is not in TARGETS.

    >>> print(unit_figure("gfx942"))  # doctest: +ELLIPSIS
    A CU of gfx942 has 4 SIMDs. Each has 8 slots for wavefronts of 64 lanes and 128 KiB of registers ...
    """
    return beside(*(_unit(TARGETS[name]) for name in targets))


def chip_figure(*chips: str) -> Picture:
    """Chips side by side: dies with their compute units and L2, what stands behind, and the memory.

    Errors: UnknownName for a chip that is not in CHIPS; UnknownFigure where the registry lacks what is drawn.

    >>> print(chip_figure("MI300X"))
    Instinct MI300X: 8 dies with 38 CUs and 4 MB of L2 each; Infinity Cache of 256 MB; memory of 192 GB at 5.3 TB/s.
    """
    return beside(*(_chip(CHIPS[name]) for name in chips))


def _words(target: Target) -> tuple[str, str, str]:
    """What the vendor calls the unit, its parts and the memory that they share."""
    if target.vendor == "nvidia":
        return "SM", "partition", "shared memory"
    return ("WGP (two CUs)" if target.lanes == 32 else "CU"), "SIMD", "LDS"


def _unit(target: Target) -> Picture:
    unit, part, shared = _words(target)
    waves = f"{wave(target.vendor)}s"
    registers = target.registers * target.lanes * 4
    words = (
        f"{'An' if unit == 'SM' else 'A'} {unit} of {target.name} has {target.simds} {part}s. Each has "
        f"{target.waves_per_simd} slots for {waves} of {target.lanes} lanes and {registers // _KIB} KiB of registers "
        f"({target.registers} for each lane). They share {target.shared_per_unit // _KIB} KiB of {shared}."
    )
    parts = []
    for number in range(target.simds):
        left = 6 + number * (_PART + _GAP)
        parts += [box(left, 6, _PART, 214), text(left + _PART / 2, 24, f"{part} {number}", at="middle", bold=True)]
        parts.append(text(left + _PART / 2, 42, f"{target.waves_per_simd} {waves}", at="middle", size=11))
        for slot in range(target.waves_per_simd):
            parts.append(box(left + 8 + slot % 8 * 11.6, 50 + slot // 8 * 17, 10, 14, "even"))
        parts += [
            box(left + 8, 92, _PART - 16, 48 * registers / _MOST_REGISTERS, "room"),
            text(left + _PART / 2, 158, f"registers: {registers // _KIB} KiB", at="middle", size=10, bold=True),
            text(left + _PART / 2, 172, f"{target.registers} a lane", at="middle", size=11),
        ]
        cell = (_PART - 16) / target.lanes
        for lane in range(target.lanes):
            parts.append(box(left + 8 + lane * cell, 182, cell, 14, "odd"))
        parts.append(text(left + _PART / 2, 211, f"a wave: {target.lanes} lanes", at="middle", size=10))
    whole = target.simds * (_PART + _GAP) - _GAP
    parts.append(box(6, 232, whole * target.shared_per_unit / _MOST_SHARED, 22, "room"))
    of_block = f"{target.shared_per_block // _KIB} of them for one block"
    parts.append(text(6, 271, f"{target.shared_per_unit // _KIB} KiB of {shared}, at most {of_block}"))
    drawing = svg(_WIDTH + 6, 278, parts, words)
    return picture(
        target.vendor, words, heading(f"{unit}, {target.name}"), drawing, after=small(f"Source: {target.source}")
    )


def _chip(chip: Chip) -> Picture:
    needed = {"units": chip.units, "L2": chip.l2_mb, "memory": chip.memory_gb, "bandwidth": chip.bandwidth_tb}
    unknown = [name for name, figure in needed.items() if figure.value is None]
    if unknown:
        raise UnknownFigure(f"the registry has no figure for {' and '.join(unknown)} of {chip.name}; draw another chip")
    unit = "SMs" if chip.vendor == "nvidia" else "CUs"
    dies = int(L2_OF_TARGET[chip.target].sizes.parts)
    units = int(chip.units.value or 0) // dies
    l2 = f"{(chip.l2_mb.value or 0) / dies:g} MB of L2"
    behind = f" Infinity Cache of {chip.mall_mb.value:g} MB;" if chip.mall_mb.value else ""
    memory = f"memory of {chip.memory_gb.value:g} GB at {chip.bandwidth_tb.value:g} TB/s"
    made_of = f"{dies} dies with {units} {unit} and {l2} each" if dies > 1 else f"{units} {unit} and {l2}"
    words = f"{chip.name}: {made_of};{behind} {memory}."
    columns = min(dies, 4)
    wide = (_WIDTH - _GAP * (columns - 1)) / columns
    across = 8 if dies > 1 else 22
    side = (wide - 16) / across
    high = 26 + -(-units // across) * side + 34
    parts = []
    for die in range(dies):
        left, top = 6 + die % 4 * (wide + _GAP), 6 + die // 4 * (high + _GAP)
        parts += [box(left, top, wide, high), text(left + 8, top + 18, f"{units} {unit}", bold=True)]
        for at in range(units):
            x, y = left + 8 + at % across * side, top + 26 + at // across * side
            parts.append(box(x, y, side - 2, side - 2, "even"))
        parts.append(box(left + 8, top + high - 30, wide - 16, 22, "room"))
        parts.append(text(left + wide / 2, top + high - 14, l2, at="middle", size=11))
    low = 6 + -(-dies // 4) * (high + _GAP)
    if behind:
        parts += [box(6, low, _WIDTH, 24, "room"), text(_WIDTH / 2, low + 16, behind.strip(" ;"), at="middle")]
        low += 24 + _GAP
    parts += [box(6, low, _WIDTH, 24, "room"), text(_WIDTH / 2, low + 16, memory, at="middle")]
    drawing = svg(_WIDTH + 12, low + 30, parts, words)
    sources = dict.fromkeys(figure.source for figure in needed.values())
    if dies > 1:
        sources[L2_OF_TARGET[chip.target].parts.source] = None
    note = small(f"Sources: {'; '.join(sources)}")
    return picture(chip.vendor, words, heading(f"{chip.name} ({chip.target})"), drawing, after=note)

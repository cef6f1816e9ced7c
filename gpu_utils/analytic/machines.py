"""Chips of three vendors in one form: units, two rates and the way to memory, for comparing a tile program on them."""

from __future__ import annotations

from dataclasses import dataclass

from gpu_utils.chips import CHIPS
from gpu_utils.chips.figure import Figure
from gpu_utils.chips.npus import NPUS
from gpu_utils.errors import UnknownName

MACHINES = {"sm_90": "H100", "gfx942": "MI300X", "ascend950": "ascend950"}
"""Target -> the chip that stands for it: of CHIPS, or of NPUS."""


@dataclass(frozen=True)
class Machine:
    """What a whole chip does in a second, each figure with its source.

    name    of the chip
    units   SMs, CUs or AI cores
    matrix  TFLOP/s of the matrix units on 16-bit inputs
    other   TFLOP/s in float32 of everything else
    memory  TB/s between the chip and its memory
    """

    name: str
    units: Figure
    matrix: Figure
    other: Figure
    memory: Figure


def machine(target: str) -> Machine:
    """The chip of a target: "sm_90" an H100, "gfx942" an MI300X, "ascend950" an Ascend 950PR.

    The rates of the Ascend follow from the sizes and clock that CANN's file has; each shows its formula. Raises
    UnknownName for another target.

    >>> machine("gfx942").units.value, machine("ascend950").units.value
    (304, 28)
    """
    if target not in MACHINES:
        raise UnknownName("target", target, MACHINES)
    if target in NPUS:
        return _npu(target)
    chip = CHIPS[MACHINES[target]]
    return Machine(chip.name, chip.units, chip.peak_figure("bf16"), chip.peak_figure("fp32"), chip.bandwidth_tb)


def _npu(target: str) -> Machine:
    npu, tera = NPUS[target], 1e12
    m, n, k = npu.cube
    clock = npu.mhz * 1e6
    lanes = npu.vector_bytes // 4
    return Machine(
        npu.name,
        npu.source.figure(npu.cores, "AI cores"),
        npu.source.figure(
            round(2 * m * n * k * npu.cores * clock / tera, 1),
            "TFLOP/s",
            f"derived: 2 x {m} x {n} x {k} FLOP of a cycle x {npu.cores} cores x {npu.mhz} MHz",
        ),
        npu.source.figure(
            round(lanes * npu.vectors * npu.cores * clock / tera, 1),
            "TFLOP/s",
            f"derived: {lanes} float32 of a vector register x {npu.vectors} vector cores x {npu.cores} cores x "
            f"{npu.mhz} MHz, if a vector core does one operation on a register in a cycle",
        ),
        npu.source.figure(
            round(npu.ddr_rate * npu.cores * clock / tera, 2),
            "TB/s",
            f"derived: {npu.ddr_rate} bytes of a cycle x {npu.cores} cores x {npu.mhz} MHz",
        ),
    )

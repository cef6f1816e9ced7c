"""A chip: one product, its figures and what follows from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gpu_utils.chips.figure import Figure, unknown
from gpu_utils.chips.targets import TARGETS, Target
from gpu_utils.errors import UnknownName

FORMATS = ("fp32", "tf32", "xf32", "fp32_matrix", "bf16", "fp8")
"""Number formats that have a column of peaks. fp32 is the vector units; fp32_matrix and xf32 are AMD's matrix units."""

_NO_COLUMN = ("fp16", "fp64", "fp4", "int8")
_ALIASES = {
    "float32": "fp32",
    "float16": "fp16",
    "float64": "fp64",
    "bfloat16": "bf16",
    "float8_e4m3fn": "fp8",
    "float8_e4m3fnuz": "fp8",
    "float8_e5m2": "fp8",
}


@dataclass(frozen=True, kw_only=True)
class Chip:
    """One product.

    name         as the vendor writes it
    target       what a compiler builds for: "sm_90", "gfx942"
    units        SMs (NVIDIA) or CUs (AMD)
    memory_gb    device memory
    bandwidth_tb memory bandwidth
    l2_mb        level-2 cache of the whole chip
    mall_mb      AMD's Infinity Cache behind the L2; None on NVIDIA
    link_gb      NVLink to other GPUs, both directions together; None where no source gives one figure
    peaks        number format -> dense TFLOP/s
    known_as     words that must all be in the name that a driver reports
    note         what else a reader should know
    """

    name: str
    target: str
    units: Figure
    memory_gb: Figure
    bandwidth_tb: Figure
    l2_mb: Figure
    mall_mb: Figure
    link_gb: Figure
    peaks: Mapping[str, Figure]
    known_as: tuple[str, ...]
    note: str = ""

    @property
    def limits(self) -> Target:
        """Lanes of a warp or wavefront, registers, shared memory: the limits of its target."""
        return TARGETS[self.target]

    @property
    def vendor(self) -> str:
        """ "nvidia" or "amd"."""
        return self.limits.vendor

    def peak(self, dtype: object) -> float | None:
        """Dense TFLOP/s for a format ("bf16", "tf32", torch.bfloat16); None when unknown or when there is none.

        Errors: UnknownName for a word that is no number format.

        >>> from gpu_utils.chips import CHIPS
        >>> CHIPS["H100"].peak("bf16"), CHIPS["A100"].peak("fp8")
        (989.4, None)
        """
        return self.peak_figure(dtype).value

    def peak_figure(self, dtype: object) -> Figure:
        """The same with its source, or with the reason why there is none."""
        name = str(dtype).removeprefix("torch.")
        name = _ALIASES.get(name, name)
        if name not in FORMATS and name not in _NO_COLUMN:
            raise UnknownName("number format", str(dtype), [*FORMATS, *_NO_COLUMN])
        return self.peaks.get(name, unknown("TFLOP/s", "no source in this registry gives it"))

    @property
    def bandwidth(self) -> float | None:
        """TB/s of the memory; None when unknown.

        >>> from gpu_utils.chips import CHIPS
        >>> CHIPS["MI300X"].bandwidth
        5.3
        """
        return self.bandwidth_tb.value

    def ridge(self, dtype: object) -> float | None:
        """FLOP per byte at which the roofline's two lines meet; None when either figure is unknown.

        >>> from gpu_utils.chips import CHIPS
        >>> round(CHIPS["H100"].ridge("bf16"))
        295
        """
        peak, bandwidth = self.peak(dtype), self.bandwidth
        return None if peak is None or bandwidth is None else peak / bandwidth

    def __str__(self) -> str:
        unit = "SMs" if self.vendor == "nvidia" else "CUs"
        units = f"{self.units.value:g}" if self.units.value else "an unknown number of"
        return f"{self.name} ({self.target}): {units} {unit}, memory {self.memory_gb}, {self.bandwidth_tb}"

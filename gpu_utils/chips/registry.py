"""The registry of chips: every figure with its source, and None where no source confirms one.

Peaks are dense: many tables on the web print the sparse numbers of NVIDIA's chips, twice as high, as if they were
dense. One GCD of an MI250X is what torch shows as one device. The MI300X is a discrete accelerator; the part with one
memory for CPU and GPU is the MI300A, which is not in this table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from gpu_utils.chips.targets import TARGETS, Target
from gpu_utils.errors import UnknownName


@dataclass(frozen=True)
class Figure:
    """One number with its unit and its source; value None with the reason in `note` when it is not known.

    >>> print(Figure(3.35, "TB/s", "a data sheet"))
    3.35 TB/s (source: a data sheet)
    """

    value: float | None
    unit: str
    source: str
    note: str = ""

    def __str__(self) -> str:
        if self.value is None:
            return f"unknown ({self.note})"
        note = f"; {self.note}" if self.note else ""
        return f"{self.value:g} {self.unit} (source: {self.source}{note})"


FORMATS = ("fp32", "tf32", "xf32", "fp32_matrix", "bf16", "fp8")
"""Number formats that have a column of peaks. fp32 is the vector units; fp32_matrix and xf32 are AMD's matrix units."""

_ALIASES = {
    "float32": "fp32",
    "float16": "fp16",
    "float64": "fp64",
    "bfloat16": "bf16",
    "float8_e4m3fn": "fp8",
    "float8_e4m3fnuz": "fp8",
    "float8_e5m2": "fp8",
}


@dataclass(frozen=True)
class Chip:
    """One product.

    name         as the vendor writes it
    vendor       "nvidia" or "amd"
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
    vendor: str
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

    def peak(self, dtype: object) -> float | None:
        """Dense TFLOP/s for a format ("bf16", "tf32", torch.bfloat16); None when unknown or when there is none.

        Errors: UnknownName for a word that is no number format.

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
        return self.peaks.get(name, Figure(None, "TFLOP/s", "", "no source in this registry gives it"))

    @property
    def bandwidth(self) -> float | None:
        """TB/s of the memory; None when unknown.

        >>> CHIPS["MI300X"].bandwidth
        5.3
        """
        return self.bandwidth_tb.value

    def ridge(self, dtype: object) -> float | None:
        """FLOP per byte at which the roofline's two lines meet; None when either figure is unknown.

        >>> round(CHIPS["H100"].ridge("bf16"))
        295
        """
        peak, bandwidth = self.peak(dtype), self.bandwidth
        return None if peak is None or bandwidth is None else peak / bandwidth

    def __str__(self) -> str:
        unit = "SMs" if self.vendor == "nvidia" else "CUs"
        units = f"{self.units.value:g}" if self.units.value else "an unknown number of"
        return f"{self.name} ({self.target}): {units} {unit}, memory {self.memory_gb}, {self.bandwidth_tb}"


_NO_COLUMN = ("fp16", "fp64", "fp4", "int8")

LOCKWOOD_A100 = "glennklockwood.com/garden/processors/A100, which cites NVIDIA's data sheet"
LOCKWOOD_H100 = "glennklockwood.com/garden/processors/h100"
ROOFLINE = "feifeibear/LLMRoofline hardware_dict.py"
ZEROBAND = "samsja/zeroband src/zeroband/utils.py, which cites NVIDIA's data sheet"
DEEPSEEK = "DeepSeek-V3 report, arXiv 2412.19437"
WILLITRUN = "willitrunai.com/gpus/h20-96gb"
H20_ARTICLE = "zangshuxian.com article on the H20, which quotes Geekbench 6 and the data sheet"
PHILISUN = "philisun.com, comparison of H800 and H100"
DEVICE_QUERY = "device query printed by the PC2 centre for its A100 (41943040 bytes)"
ROCM_SPECS = "ROCm docs/reference/gpu-arch-specs.rst"
ROCM_MI250 = "ROCm docs/conceptual/gpu-arch/mi250.md"
ROCM_MI300 = "ROCm docs/conceptual/gpu-arch/mi300.md"
ROCM_MI350 = "rocm.docs.amd.com gpu-specs, MI350 series"

_UNCONFIRMED = "no confirmed source"


def _no(unit: str, reason: str = _UNCONFIRMED) -> Figure:
    return Figure(None, unit, "", reason)


def _peaks(source: str, note: str = "", **values: float | str) -> dict[str, Figure]:
    """Format -> figure; a string says why there is none."""
    return {
        name: _no("TFLOP/s", value) if isinstance(value, str) else Figure(value, "TFLOP/s", source, note)
        for name, value in values.items()
    }


_NO_MALL = _no("MB", "NVIDIA has no cache of this kind")
_NO_LINK = _no("GB/s", "no source gives one figure for the chip")
_NO_FP8 = "no FP8 matrix instructions"
_NO_XF32 = "no XF32 matrix instructions"

_H100_PEAKS = _peaks(LOCKWOOD_H100, fp32=66.9, tf32=494.7, bf16=989.4, fp8=1978.9)
_MI300X_PEAKS = _peaks(ROCM_MI300, fp32=163.4, fp32_matrix=163.4, xf32=653.7, bf16=1307.4, fp8=2614.9)

_ROWS = {
    "A100": Chip(
        "A100 80GB SXM",
        "nvidia",
        "sm_80",
        Figure(108, "SMs", LOCKWOOD_A100),
        Figure(80, "GB", LOCKWOOD_A100),
        Figure(2.039, "TB/s", ROOFLINE),
        Figure(40, "MB", DEVICE_QUERY),
        _NO_MALL,
        Figure(600, "GB/s", LOCKWOOD_A100, "300 each way"),
        _peaks(LOCKWOOD_A100, fp32=19.5, tf32=156, bf16=312, fp8=_NO_FP8),
        ("A100",),
        "there is a smaller model with less bandwidth",
    ),
    "H100": Chip(
        "H100 SXM",
        "nvidia",
        "sm_90",
        Figure(132, "SMs", LOCKWOOD_H100),
        Figure(80, "GB", LOCKWOOD_H100),
        Figure(3.35, "TB/s", LOCKWOOD_H100),
        Figure(50, "MB", LOCKWOOD_H100),
        _NO_MALL,
        Figure(900, "GB/s", LOCKWOOD_H100),
        _H100_PEAKS,
        ("H100",),
        "the PCIe model has fewer SMs and less bandwidth",
    ),
    "H200": Chip(
        "H200",
        "nvidia",
        "sm_90",
        Figure(132, "SMs", LOCKWOOD_H100, "the same die as H100"),
        Figure(141, "GB", ROOFLINE),
        Figure(4.8, "TB/s", ROOFLINE),
        _no("MB"),
        _NO_MALL,
        Figure(900, "GB/s", LOCKWOOD_H100, "as H100"),
        _peaks(
            LOCKWOOD_H100,
            "as H100; web tables often print the sparse figure",
            fp32=66.9,
            tf32=494.7,
            bf16=989.4,
            fp8=1978.9,
        ),
        ("H200",),
    ),
    "H800": Chip(
        "H800",
        "nvidia",
        "sm_90",
        Figure(132, "SMs", DEEPSEEK),
        _no("GB"),
        Figure(3.35, "TB/s", ROOFLINE),
        _no("MB"),
        _NO_MALL,
        Figure(400, "GB/s", PHILISUN),
        _peaks(ROOFLINE, bf16=989.5),
        ("H800",),
    ),
    "H20": Chip(
        "H20",
        "nvidia",
        "sm_90",
        Figure(78, "SMs", H20_ARTICLE),
        Figure(96, "GB", WILLITRUN),
        Figure(4.0, "TB/s", ROOFLINE),
        _no("MB"),
        _NO_MALL,
        Figure(900, "GB/s", WILLITRUN),
        {
            **_peaks(H20_ARTICLE, fp32=44, tf32=74),
            **_peaks(ROOFLINE, bf16=148),
            **_peaks(ROOFLINE, "derived: twice BF16, as on H100", fp8=296),
        },
        ("H20",),
    ),
    "B200": Chip(
        "B200",
        "nvidia",
        "sm_100",
        _no("SMs"),
        Figure(192, "GB", ZEROBAND),
        _no("TB/s"),
        _no("MB"),
        _NO_MALL,
        _no("GB/s"),
        _peaks(ZEROBAND, bf16=2250, fp8=_UNCONFIRMED),
        ("B200",),
    ),
    "MI210": Chip(
        "Instinct MI210",
        "amd",
        "gfx90a",
        Figure(104, "CUs", ROCM_SPECS),
        Figure(64, "GB", ROCM_SPECS),
        _no("TB/s"),
        Figure(8, "MB", ROCM_SPECS),
        _no("MB", "the chip has none"),
        _NO_LINK,
        _peaks(ROCM_MI250, "derived: half of MI250", fp32=22.6, fp32_matrix=45.3, xf32=_NO_XF32, bf16=181, fp8=_NO_FP8),
        ("MI210",),
    ),
    "MI250X": Chip(
        "Instinct MI250X, one GCD",
        "amd",
        "gfx90a",
        Figure(110, "CUs", ROCM_SPECS, "of one GCD"),
        Figure(64, "GB", ROCM_SPECS, "of one GCD"),
        Figure(1.6, "TB/s", ROCM_MI250, "of one GCD"),
        Figure(8, "MB", ROCM_SPECS),
        _no("MB", "the chip has none"),
        _NO_LINK,
        _peaks(ROCM_MI250, "of one GCD", fp32=23.9, fp32_matrix=47.9, xf32=_NO_XF32, bf16=191.5, fp8=_NO_FP8),
        ("MI250X",),
        f"Infinity Fabric: 50 GB/s per direction and link (source: {ROCM_MI250})",
    ),
    "MI300X": Chip(
        "Instinct MI300X",
        "amd",
        "gfx942",
        Figure(304, "CUs", ROCM_SPECS, "8 XCDs of 38"),
        Figure(192, "GB", ROCM_SPECS),
        Figure(5.3, "TB/s", ROCM_MI300),
        Figure(32, "MB", ROCM_SPECS, "4 for each XCD"),
        Figure(256, "MB", ROCM_SPECS),
        _NO_LINK,
        _MI300X_PEAKS,
        ("MI300X",),
        "a discrete accelerator: MI300A is the part with one memory for CPU and GPU; 8 GPUs are fully meshed",
    ),
    "MI325X": Chip(
        "Instinct MI325X",
        "amd",
        "gfx942",
        Figure(304, "CUs", ROCM_SPECS, "8 XCDs of 38"),
        Figure(256, "GB", ROCM_SPECS),
        _no("TB/s"),
        Figure(32, "MB", ROCM_SPECS, "4 for each XCD"),
        Figure(256, "MB", ROCM_SPECS),
        _NO_LINK,
        _peaks(ROCM_MI300, "as MI300X", fp32=163.4, fp32_matrix=163.4, xf32=653.7, bf16=1307.4, fp8=2614.9),
        ("MI325X",),
    ),
    "MI350X": Chip(
        "Instinct MI350X",
        "amd",
        "gfx950",
        Figure(256, "CUs", ROCM_MI350),
        Figure(288, "GB", ROCM_MI350),
        Figure(8, "TB/s", ROCM_MI350),
        Figure(32, "MB", ROCM_MI350),
        Figure(256, "MB", ROCM_MI350),
        _NO_LINK,
        _peaks(ROCM_MI350, "derived at 2.2 GHz", bf16=2307, fp8=4614, xf32=_NO_XF32),
        ("MI350X",),
    ),
    "MI355X": Chip(
        "Instinct MI355X",
        "amd",
        "gfx950",
        Figure(256, "CUs", ROCM_MI350),
        Figure(288, "GB", ROCM_MI350),
        Figure(8, "TB/s", ROCM_MI350),
        Figure(32, "MB", ROCM_MI350),
        Figure(256, "MB", ROCM_MI350),
        _NO_LINK,
        _peaks(ROCM_MI350, fp32=157.3, fp32_matrix=_UNCONFIRMED, xf32=_NO_XF32, bf16=2516.6, fp8=5033),
        ("MI355X",),
    ),
    "RX 7900 XTX": Chip(
        "Radeon RX 7900 XTX",
        "amd",
        "gfx1100",
        Figure(96, "CUs", ROCM_SPECS),
        Figure(24, "GB", ROCM_SPECS),
        Figure(0.96, "TB/s", ROCM_SPECS),
        Figure(6, "MB", ROCM_SPECS),
        Figure(96, "MB", ROCM_SPECS),
        _NO_LINK,
        _peaks(
            ROCM_SPECS, fp32=61.4, fp32_matrix="no FP32 matrix instructions", xf32=_NO_XF32, bf16=122.9, fp8=_NO_FP8
        ),
        ("7900", "XTX"),
    ),
    "RX 9070 XT": Chip(
        "Radeon RX 9070 XT",
        "amd",
        "gfx1201",
        Figure(64, "CUs", ROCM_SPECS),
        Figure(16, "GB", ROCM_SPECS),
        _no("TB/s"),
        _no("MB"),
        _no("MB"),
        _NO_LINK,
        _peaks(ROCM_SPECS, fp32=48.7, fp32_matrix="no FP32 matrix instructions", xf32=_NO_XF32, bf16=194.6, fp8=389),
        ("9070", "XT"),
    ),
}


class _Registry(Mapping[str, Chip]):
    def __getitem__(self, name: str) -> Chip:
        if name not in _ROWS:
            raise UnknownName("chip", name, _ROWS)
        return _ROWS[name]

    def __contains__(self, name: object) -> bool:
        return name in _ROWS

    def __iter__(self) -> Iterator[str]:
        return iter(_ROWS)

    def __len__(self) -> int:
        return len(_ROWS)

    def __repr__(self) -> str:
        return "\n".join(str(chip) for chip in _ROWS.values())


CHIPS: Mapping[str, Chip] = _Registry()
"""Every chip by a short name. An unknown name raises UnknownName with the nearest ones."""


def chip_of_device(name: str) -> Chip | None:
    """The chip for the name that a driver reports ("NVIDIA H100 80GB HBM3"); None when it is in no row.

    >>> chip_of_device("AMD Instinct MI300X").name
    'Instinct MI300X'
    >>> chip_of_device("NVIDIA GeForce RTX 4090") is None
    True
    """
    words = name.upper().replace("-", " ").split()
    if "PCIE" in words or "NVL" in words:  # other clocks, fewer SMs and another memory than the rows here
        return None
    for chip in _ROWS.values():
        if all(word in words for word in chip.known_as):
            return chip
    return None

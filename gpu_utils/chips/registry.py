"""The registry of chips: every figure with its source, and None where no source confirms one.

Peaks are dense: many tables on the web print the sparse numbers of NVIDIA's chips, twice as high, as if they were
dense. One GCD of an MI250X is what torch shows as one device. The MI300X is a discrete accelerator; the part with one
memory for CPU and GPU is the MI300A, which is not in this table.
"""

from __future__ import annotations

from gpu_utils.chips.chip import Chip
from gpu_utils.chips.figure import UNCONFIRMED, Figure, unknown
from gpu_utils.chips.table import Table

LOCKWOOD_A100 = "glennklockwood.com/garden/processors/A100, which cites NVIDIA's data sheet"
LOCKWOOD_H100 = "glennklockwood.com/garden/processors/h100"
ROOFLINE = "feifeibear/LLMRoofline hardware_dict.py"
ZEROBAND = "samsja/zeroband src/zeroband/utils.py, which cites NVIDIA's data sheet"
DEEPSEEK = "DeepSeek-V3 report, arXiv 2412.19437"
WILLITRUN = "willitrunai.com/gpus/h20-96gb"
H20_ARTICLE = "zangshuxian.com article on the H20, which quotes Geekbench 6 and the data sheet"
PHILISUN = "philisun.com, comparison of H800 and H100"
L40_TABLE = "mullet.se product page of L40 and L40S, which quotes NVIDIA's data sheet"
L40_PAPER = "arXiv 2606.22588, measurements of an L40"
RTX_5090_QUERY = "device query printed in aikitoria/open-gpu-kernel-modules, issue 1"
RTX_5090_PAGE = "spheron.network, RTX 5090 specs"
DEVICE_QUERY = "device query printed by the PC2 centre for its A100 (41943040 bytes)"
ROCM_SPECS = "ROCm docs/reference/gpu-arch-specs.rst"
ROCM_MI250 = "ROCm docs/conceptual/gpu-arch/mi250.md"
ROCM_MI300 = "ROCm docs/conceptual/gpu-arch/mi300.md"
ROCM_MI350 = "rocm.docs.amd.com gpu-specs, MI350 series"


def _peaks(source: str, note: str = "", **values: float | str) -> dict[str, Figure]:
    """Format -> figure; a string says why there is none."""
    return {
        name: unknown("TFLOP/s", value) if isinstance(value, str) else Figure(value, "TFLOP/s", source, note)
        for name, value in values.items()
    }


_NO_MALL = unknown("MB", "NVIDIA has no cache of this kind")
_NO_LINK = unknown("GB/s", "no source gives one figure for the chip")
_NO_FP8 = "no FP8 matrix instructions"
_NO_XF32 = "no XF32 matrix instructions"

_H100_PEAKS = _peaks(LOCKWOOD_H100, fp32=66.9, tf32=494.7, bf16=989.4, fp8=1978.9)
_MI300X_PEAKS = _peaks(ROCM_MI300, fp32=163.4, fp32_matrix=163.4, xf32=653.7, bf16=1307.4, fp8=2614.9)

_ROWS: dict[str, Chip] = {
    "A100": Chip(
        name="A100 80GB SXM",
        target="sm_80",
        units=Figure(108, "SMs", LOCKWOOD_A100),
        memory_gb=Figure(80, "GB", LOCKWOOD_A100),
        bandwidth_tb=Figure(2.039, "TB/s", ROOFLINE),
        l2_mb=Figure(40, "MB", DEVICE_QUERY),
        mall_mb=_NO_MALL,
        link_gb=Figure(600, "GB/s", LOCKWOOD_A100, "300 each way"),
        peaks=_peaks(LOCKWOOD_A100, fp32=19.5, tf32=156, bf16=312, fp8=_NO_FP8),
        known_as=("A100",),
        note="there is a smaller model with less bandwidth",
    ),
    "L40": Chip(
        name="L40",
        target="sm_89",
        units=Figure(142, "SMs", L40_PAPER),
        memory_gb=Figure(48, "GB", L40_TABLE),
        bandwidth_tb=Figure(0.864, "TB/s", L40_TABLE),
        l2_mb=Figure(96, "MB", L40_PAPER),
        mall_mb=_NO_MALL,
        link_gb=unknown("GB/s", "the card has no NVLink"),
        peaks=_peaks(L40_TABLE, fp32=90.5, tf32=90.5, bf16=181.05, fp8=362),
        known_as=("L40",),
    ),
    "H100": Chip(
        name="H100 SXM",
        target="sm_90",
        units=Figure(132, "SMs", LOCKWOOD_H100),
        memory_gb=Figure(80, "GB", LOCKWOOD_H100),
        bandwidth_tb=Figure(3.35, "TB/s", LOCKWOOD_H100),
        l2_mb=Figure(50, "MB", LOCKWOOD_H100),
        mall_mb=_NO_MALL,
        link_gb=Figure(900, "GB/s", LOCKWOOD_H100),
        peaks=_H100_PEAKS,
        known_as=("H100",),
        note="the PCIe model has fewer SMs and less bandwidth",
    ),
    "H200": Chip(
        name="H200",
        target="sm_90",
        units=Figure(132, "SMs", LOCKWOOD_H100, "the same die as H100"),
        memory_gb=Figure(141, "GB", ROOFLINE),
        bandwidth_tb=Figure(4.8, "TB/s", ROOFLINE),
        l2_mb=unknown("MB"),
        mall_mb=_NO_MALL,
        link_gb=Figure(900, "GB/s", LOCKWOOD_H100, "as H100"),
        peaks=_peaks(
            LOCKWOOD_H100,
            "as H100; web tables often print the sparse figure",
            fp32=66.9,
            tf32=494.7,
            bf16=989.4,
            fp8=1978.9,
        ),
        known_as=("H200",),
    ),
    "H800": Chip(
        name="H800",
        target="sm_90",
        units=Figure(132, "SMs", DEEPSEEK),
        memory_gb=unknown("GB"),
        bandwidth_tb=Figure(3.35, "TB/s", ROOFLINE),
        l2_mb=unknown("MB"),
        mall_mb=_NO_MALL,
        link_gb=Figure(400, "GB/s", PHILISUN),
        peaks=_peaks(ROOFLINE, bf16=989.5),
        known_as=("H800",),
    ),
    "H20": Chip(
        name="H20",
        target="sm_90",
        units=Figure(78, "SMs", H20_ARTICLE),
        memory_gb=Figure(96, "GB", WILLITRUN),
        bandwidth_tb=Figure(4.0, "TB/s", ROOFLINE),
        l2_mb=unknown("MB"),
        mall_mb=_NO_MALL,
        link_gb=Figure(900, "GB/s", WILLITRUN),
        peaks={
            **_peaks(H20_ARTICLE, fp32=44, tf32=74),
            **_peaks(ROOFLINE, bf16=148),
            **_peaks(ROOFLINE, "derived: twice BF16, as on H100", fp8=296),
        },
        known_as=("H20",),
    ),
    "RTX 5090": Chip(
        name="GeForce RTX 5090",
        target="sm_120",
        units=Figure(170, "SMs", RTX_5090_QUERY),
        memory_gb=Figure(32, "GB", RTX_5090_PAGE),
        bandwidth_tb=Figure(1.792, "TB/s", RTX_5090_PAGE),
        l2_mb=Figure(96, "MB", RTX_5090_QUERY),
        mall_mb=_NO_MALL,
        link_gb=unknown("GB/s"),
        peaks=_peaks(RTX_5090_PAGE, fp32="sources differ: 104 to 105.2", bf16=UNCONFIRMED, fp8=UNCONFIRMED),
        known_as=("RTX", "5090"),
    ),
    "B200": Chip(
        name="B200",
        target="sm_100",
        units=unknown("SMs"),
        memory_gb=Figure(192, "GB", ZEROBAND),
        bandwidth_tb=unknown("TB/s"),
        l2_mb=unknown("MB"),
        mall_mb=_NO_MALL,
        link_gb=unknown("GB/s"),
        peaks=_peaks(ZEROBAND, bf16=2250, fp8=UNCONFIRMED),
        known_as=("B200",),
    ),
    "MI210": Chip(
        name="Instinct MI210",
        target="gfx90a",
        units=Figure(104, "CUs", ROCM_SPECS),
        memory_gb=Figure(64, "GB", ROCM_SPECS),
        bandwidth_tb=unknown("TB/s"),
        l2_mb=Figure(8, "MB", ROCM_SPECS),
        mall_mb=unknown("MB", "the chip has none"),
        link_gb=_NO_LINK,
        peaks=_peaks(
            ROCM_MI250, "derived: half of MI250", fp32=22.6, fp32_matrix=45.3, xf32=_NO_XF32, bf16=181, fp8=_NO_FP8
        ),
        known_as=("MI210",),
    ),
    "MI250X": Chip(
        name="Instinct MI250X, one GCD",
        target="gfx90a",
        units=Figure(110, "CUs", ROCM_SPECS, "of one GCD"),
        memory_gb=Figure(64, "GB", ROCM_SPECS, "of one GCD"),
        bandwidth_tb=Figure(1.6, "TB/s", ROCM_MI250, "of one GCD"),
        l2_mb=Figure(8, "MB", ROCM_SPECS),
        mall_mb=unknown("MB", "the chip has none"),
        link_gb=_NO_LINK,
        peaks=_peaks(ROCM_MI250, "of one GCD", fp32=23.9, fp32_matrix=47.9, xf32=_NO_XF32, bf16=191.5, fp8=_NO_FP8),
        known_as=("MI250X",),
        note=f"Infinity Fabric: 50 GB/s per direction and link (source: {ROCM_MI250})",
    ),
    "MI300X": Chip(
        name="Instinct MI300X",
        target="gfx942",
        units=Figure(304, "CUs", ROCM_SPECS, "8 XCDs of 38"),
        memory_gb=Figure(192, "GB", ROCM_SPECS),
        bandwidth_tb=Figure(5.3, "TB/s", ROCM_MI300),
        l2_mb=Figure(32, "MB", ROCM_SPECS, "4 for each XCD"),
        mall_mb=Figure(256, "MB", ROCM_SPECS),
        link_gb=_NO_LINK,
        peaks=_MI300X_PEAKS,
        known_as=("MI300X",),
        note="a discrete accelerator: MI300A is the part with one memory for CPU and GPU; 8 GPUs are fully meshed",
    ),
    "MI325X": Chip(
        name="Instinct MI325X",
        target="gfx942",
        units=Figure(304, "CUs", ROCM_SPECS, "8 XCDs of 38"),
        memory_gb=Figure(256, "GB", ROCM_SPECS),
        bandwidth_tb=unknown("TB/s"),
        l2_mb=Figure(32, "MB", ROCM_SPECS, "4 for each XCD"),
        mall_mb=Figure(256, "MB", ROCM_SPECS),
        link_gb=_NO_LINK,
        peaks=_peaks(ROCM_MI300, "as MI300X", fp32=163.4, fp32_matrix=163.4, xf32=653.7, bf16=1307.4, fp8=2614.9),
        known_as=("MI325X",),
    ),
    "MI350X": Chip(
        name="Instinct MI350X",
        target="gfx950",
        units=Figure(256, "CUs", ROCM_MI350),
        memory_gb=Figure(288, "GB", ROCM_MI350),
        bandwidth_tb=Figure(8, "TB/s", ROCM_MI350),
        l2_mb=Figure(32, "MB", ROCM_MI350),
        mall_mb=Figure(256, "MB", ROCM_MI350),
        link_gb=_NO_LINK,
        peaks=_peaks(ROCM_MI350, "derived at 2.2 GHz", bf16=2307, fp8=4614, xf32=_NO_XF32),
        known_as=("MI350X",),
    ),
    "MI355X": Chip(
        name="Instinct MI355X",
        target="gfx950",
        units=Figure(256, "CUs", ROCM_MI350),
        memory_gb=Figure(288, "GB", ROCM_MI350),
        bandwidth_tb=Figure(8, "TB/s", ROCM_MI350),
        l2_mb=Figure(32, "MB", ROCM_MI350),
        mall_mb=Figure(256, "MB", ROCM_MI350),
        link_gb=_NO_LINK,
        peaks=_peaks(ROCM_MI350, fp32=157.3, fp32_matrix=UNCONFIRMED, xf32=_NO_XF32, bf16=2516.6, fp8=5033),
        known_as=("MI355X",),
    ),
    "RX 7900 XTX": Chip(
        name="Radeon RX 7900 XTX",
        target="gfx1100",
        units=Figure(96, "CUs", ROCM_SPECS),
        memory_gb=Figure(24, "GB", ROCM_SPECS),
        bandwidth_tb=Figure(0.96, "TB/s", ROCM_SPECS),
        l2_mb=Figure(6, "MB", ROCM_SPECS),
        mall_mb=Figure(96, "MB", ROCM_SPECS),
        link_gb=_NO_LINK,
        peaks=_peaks(
            ROCM_SPECS, fp32=61.4, fp32_matrix="no FP32 matrix instructions", xf32=_NO_XF32, bf16=122.9, fp8=_NO_FP8
        ),
        known_as=("7900", "XTX"),
    ),
    "RX 9070 XT": Chip(
        name="Radeon RX 9070 XT",
        target="gfx1201",
        units=Figure(64, "CUs", ROCM_SPECS),
        memory_gb=Figure(16, "GB", ROCM_SPECS),
        bandwidth_tb=unknown("TB/s"),
        l2_mb=unknown("MB"),
        mall_mb=unknown("MB"),
        link_gb=_NO_LINK,
        peaks=_peaks(
            ROCM_SPECS, fp32=48.7, fp32_matrix="no FP32 matrix instructions", xf32=_NO_XF32, bf16=194.6, fp8=389
        ),
        known_as=("9070", "XT"),
    ),
}


CHIPS: Table[Chip] = Table("chip", _ROWS)
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
    for chip in CHIPS.values():
        if all(word in words for word in chip.known_as):
            return chip
    return None

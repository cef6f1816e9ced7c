"""The registry of chips: every figure with its source, and None where no source confirms one.

Each figure has one source, looked up on one day, and the part of it that was read: the page itself, a passage, or only
its name. What follows from other figures carries its formula. fp32 says whether it counts plain, packed or dual-issued
instructions, because chips are sold by different ones. Over 400 lines because it is a table.

Peaks are dense: many tables on the web print the sparse numbers of NVIDIA's chips, twice as high, as if they were
dense. One GCD of an MI250X is what torch shows as one device. The MI300X is a discrete accelerator; the part with one
memory for CPU and GPU is the MI300A, which is not in this table.
"""

from __future__ import annotations

from gpu_utils.chips.chip import Chip
from gpu_utils.chips.figure import UNCONFIRMED, Figure, unknown
from gpu_utils.chips.source import Source
from gpu_utils.chips.table import Table

_DAY = "2026-11-22"


def _read(where: str) -> Source:
    return Source(where, _DAY)


def _excerpt(where: str) -> Source:
    return Source(where, _DAY, "excerpt")


def _named(where: str) -> Source:
    """A source that could not be opened on that day."""
    return Source(where, _DAY, "not opened")


# Vendors' own words come first; PyTorch's table copies data sheets and names each, and every reader has it installed.
TORCH_A100 = _read("NVIDIA's A100 data sheet, as PyTorch 2.13 copies it in torch/_inductor/analysis/device_info.py")
TORCH_H100 = _read(
    "nvidia.com/en-us/data-center/h100, as PyTorch 2.13 copies it in torch/_inductor/analysis/device_info.py"
)
TORCH_MI210 = _read("AMD's MI210 brochure, as PyTorch 2.13 copies it in torch/_inductor/analysis/device_info.py")
TORCH_MI350X = _read("AMD's MI350X brochure, as PyTorch 2.13 copies it in torch/_inductor/analysis/device_info.py")
MLPERF_H200 = _excerpt("NVIDIA's description of its H200 system, github.com/mlcommons/inference_results_v4.1")
MLPERF_B200 = _read("NVIDIA's description of its DGX B200 for MLPerf, closed/NVIDIA/systems/B200-SXM-180GBx8_TRT.json")
ROCM_SPECS = _read("ROCm docs/reference/gpu-arch-specs.rst")
ROCM_SPECS_NEW = _excerpt("rocm.docs.amd.com/en/7.13.0-preview/reference/gpu-specs.html")
ROCM_MI250 = _read("ROCm docs/conceptual/gpu-arch/mi250.md")
ROCM_MI300 = _read("ROCm docs/conceptual/gpu-arch/mi300.md")
ROCPROF_950 = _read(
    "AMD's rocprofiler-compute, analysis_configs/gfx950/0200_system_speed_of_light.yaml in ROCm/rocm-systems"
)
ROCMINFO_9070 = _excerpt("rocminfo of a gfx1201 with 64 CUs in github.com/ROCm/amdgpu issue 220")
MI455X_TRIED = Source(
    "Hugging Face's blog, transformers on AMD MI455: first runs on four of them", "2026-11-27", "excerpt"
)
DEEPSEEK = _excerpt("DeepSeek-V3 report, arXiv 2412.19437")
TORCHAO = _read("NVIDIA's papers, as pytorch/ao copies them in torchao/testing/training/roofline_utils.py")
TORCHAO_B200 = _excerpt("device query of a B200 in github.com/pytorch/ao pull 4002")
TORCH_B200 = _excerpt("NVIDIA's Blackwell data sheet, as github.com/pytorch/pytorch pull 193471 copies it")
ROOFLINE = _read("feifeibear/LLMRoofline hardware_dict.py")
H100_PAPER = _excerpt("NVIDIA's white paper H100 Tensor Core GPU Architecture, V1.04, tables 1 and 3")
HF_A100 = _excerpt("huggingface.co/hf-skills/h100-diffusers-kernel-builder, h100-optimization-guide.md")
HF_H20 = _excerpt("huggingface.co/hardware/h20")
L40_TABLE = _excerpt("mullet.se product page of L40 and L40S, which quotes NVIDIA's data sheet")
HOPPER = _excerpt("NVIDIA's description of Hopper, developer.nvidia.com/blog/nvidia-hopper-architecture-in-depth")
H200_TABLE = _excerpt("saulelectric.com/nvidia-h200.html")
H200_PAGE = _excerpt("aiwiki.ai/wiki/nvidia_h200")
MI355X_PAGE = _excerpt("aiwiki.ai/wiki/amd_instinct_mi355x")
RADEONS = _excerpt("hmc-tech.com, RX 9070 XT against RX 7900 XTX")
RX_7900_REVIEW = _excerpt("guru3d.com review of a Radeon RX 7900 XTX, page 4")
LOCKWOOD_A100 = _named("glennklockwood.com/garden/processors/A100, which cites NVIDIA's data sheet")
LOCKWOOD_H100 = _excerpt("glennklockwood.com/garden/processors/h100")
TUMGAG = _excerpt("tumgag.com, NVIDIA H800 vs H100")
WILLITRUN = _excerpt("willitrunai.com/gpus/h20-96gb")
L40_PAPER = _named("arXiv 2606.22588, measurements of an L40")
RTX_5090_QUERY = _named("device query printed in aikitoria/open-gpu-kernel-modules, issue 1")
RTX_5090_PAGE = _named("spheron.network, RTX 5090 specs")
DEVICE_QUERY = _named("device query printed by the PC2 centre for its A100 (41943040 bytes)")


def _peaks(source: Source, note: str = "", **values: float | str) -> dict[str, Figure]:
    """Format -> figure; a string says why there is none."""
    return {
        name: unknown("TFLOP/s", value) if isinstance(value, str) else source.figure(value, "TFLOP/s", note)
        for name, value in values.items()
    }


def _derived(source: Source, units: int, ghz: float, **flops: tuple[int, str]) -> dict[str, Figure]:
    """Peaks of an AMD chip: CUs x FLOP of a clock and CU x clock, with the formula. flops: (FLOP, what they are)."""
    return {
        name: source.figure(
            round(units * each * ghz / 1000, 1),
            "TFLOP/s",
            f"derived: {units} CUs x {each:,} FLOP of a clock and CU x {ghz:g} GHz{said and f'; {said}'}",
        )
        for name, (each, said) in flops.items()
    }


_NO_MALL = unknown("MB", "NVIDIA has no cache of this kind")
_NO_LINK = unknown("GB/s", "no source gives one figure for the chip")
_NO_FP8 = "no FP8 matrix instructions"
_NO_XF32 = "no XF32 matrix instructions"
_NO_FP32_MATRIX = "no FP32 matrix instructions"
_PLAIN = "plain FMA; packed FP32 instructions do twice as much"
_PACKED = "packed FP32 instructions; plain FMA does half of it"
_DUAL = "dual-issued FMA; one FMA at a time does half of it"
_HOT_CHIPS = "pudn.club, report of Hot Chips 2025"

_H100_PEAKS = _peaks(H100_PAPER, "without sparsity", tf32=494.7, bf16=989.4, fp8=1978.9)
_H100_PEAKS |= _peaks(H100_PAPER, "132 SMs x 128 lanes x 2 FLOP x 1.98 GHz", fp32=66.9)

_ROWS: dict[str, Chip] = {
    "A100": Chip(
        name="A100 80GB SXM",
        target="sm_80",
        units=HF_A100.figure(108, "SMs"),
        memory_gb=TORCH_A100.figure(80, "GB"),
        bandwidth_tb=TORCH_A100.figure(2.039, "TB/s"),
        l2_mb=DEVICE_QUERY.figure(40, "MB"),
        mall_mb=_NO_MALL,
        link_gb=LOCKWOOD_A100.figure(600, "GB/s", "300 each way"),
        peaks={
            **_peaks(TORCH_A100, fp32=19.5, tf32=156, fp8=_NO_FP8),
            **_peaks(ROOFLINE, "PyTorch's copy of the data sheet has 312.5", bf16=312),
        },
        known_as=("A100",),
        note="there is a smaller model with less bandwidth",
    ),
    "L40": Chip(
        name="L40",
        target="sm_89",
        units=L40_TABLE.figure(142, "SMs", "18,176 CUDA cores, 128 of an SM"),
        memory_gb=L40_TABLE.figure(48, "GB"),
        bandwidth_tb=L40_TABLE.figure(0.864, "TB/s"),
        l2_mb=L40_PAPER.figure(96, "MB", "sources differ: a shop's page of the L40S, of the same die, says 48"),
        mall_mb=_NO_MALL,
        link_gb=unknown("GB/s", "the card has no NVLink"),
        peaks=_peaks(L40_TABLE, fp32=90.5, tf32=90.5, bf16=181.05, fp8=362),
        known_as=("L40",),
    ),
    "H100": Chip(
        name="H100 SXM",
        target="sm_90",
        units=HOPPER.figure(132, "SMs"),
        memory_gb=TORCH_H100.figure(80, "GB"),
        bandwidth_tb=TORCH_H100.figure(3.35, "TB/s"),
        l2_mb=HOPPER.figure(50, "MB"),
        mall_mb=_NO_MALL,
        link_gb=LOCKWOOD_H100.figure(900, "GB/s"),
        peaks=_H100_PEAKS,
        known_as=("H100",),
        note="the PCIe model has fewer SMs and less bandwidth",
    ),
    "H200": Chip(
        name="H200",
        target="sm_90",
        units=H200_TABLE.figure(132, "SMs"),
        memory_gb=MLPERF_H200.figure(141, "GB"),
        bandwidth_tb=ROOFLINE.figure(4.8, "TB/s"),
        l2_mb=unknown("MB"),
        mall_mb=_NO_MALL,
        link_gb=MLPERF_H200.figure(900, "GB/s"),
        peaks=_peaks(
            H200_PAGE,
            "as H100: the page says the same silicon; web tables often print the sparse figure",
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
        units=DEEPSEEK.figure(132, "SMs"),
        memory_gb=unknown("GB"),
        bandwidth_tb=ROOFLINE.figure(3.35, "TB/s"),
        l2_mb=unknown("MB"),
        mall_mb=_NO_MALL,
        link_gb=TUMGAG.figure(400, "GB/s"),
        peaks=_peaks(ROOFLINE, bf16=989.5),
        known_as=("H800",),
    ),
    "H20": Chip(
        name="H20",
        target="sm_90",
        units=unknown("SMs"),
        memory_gb=HF_H20.figure(96, "GB"),
        bandwidth_tb=ROOFLINE.figure(4.0, "TB/s"),
        l2_mb=unknown("MB"),
        mall_mb=_NO_MALL,
        link_gb=WILLITRUN.figure(900, "GB/s"),
        peaks={
            **_peaks(ROOFLINE, bf16=148, fp32=UNCONFIRMED, tf32=UNCONFIRMED),
            **_peaks(ROOFLINE, "derived: twice BF16, as on H100", fp8=296),
        },
        known_as=("H20",),
    ),
    "RTX 5090": Chip(
        name="GeForce RTX 5090",
        target="sm_120",
        units=RTX_5090_QUERY.figure(170, "SMs"),
        memory_gb=RTX_5090_PAGE.figure(32, "GB"),
        bandwidth_tb=TORCHAO.figure(1.792, "TB/s", "the file writes 1.792e15 bytes/s, three digits too many"),
        l2_mb=RTX_5090_QUERY.figure(96, "MB"),
        mall_mb=_NO_MALL,
        link_gb=unknown("GB/s"),
        peaks=_peaks(TORCHAO, fp32="sources differ: 104 to 105.2", bf16=209.5, fp8=419),
        known_as=("RTX", "5090"),
    ),
    "B200": Chip(
        name="B200",
        target="sm_100",
        units=TORCHAO_B200.figure(148, "SMs"),
        memory_gb=MLPERF_B200.figure(180, "GB", "glennklockwood.com and early data say 192; CUDA reports 178.35"),
        bandwidth_tb=TORCH_B200.figure(7.7, "TB/s", "early data say 8, for a bus of 8,192 bits; CUDA reports 7,680"),
        l2_mb=TORCHAO_B200.figure(126.5, "MB"),
        mall_mb=_NO_MALL,
        link_gb=MLPERF_B200.figure(1800, "GB/s", "14.4 TB/s for 8 GPUs"),
        peaks=_peaks(TORCHAO, "half of the figure with sparsity", bf16=2250, fp8=4500),
        known_as=("B200",),
    ),
    "MI210": Chip(
        name="Instinct MI210",
        target="gfx90a",
        units=ROCM_SPECS.figure(104, "CUs"),
        memory_gb=ROCM_SPECS.figure(64, "GB"),
        bandwidth_tb=TORCH_MI210.figure(1.6, "TB/s"),
        l2_mb=ROCM_SPECS.figure(8, "MB"),
        mall_mb=unknown("MB", "the chip has none"),
        link_gb=_NO_LINK,
        peaks={
            **_derived(ROCM_MI250, 104, 1.7, fp32=(128, _PLAIN), fp32_matrix=(256, ""), bf16=(1024, "")),
            **_peaks(ROCM_MI250, xf32=_NO_XF32, fp8=_NO_FP8),
        },
        known_as=("MI210",),
    ),
    "MI250X": Chip(
        name="Instinct MI250X, one GCD",
        target="gfx90a",
        units=ROCM_SPECS.figure(110, "CUs", "of one GCD"),
        memory_gb=ROCM_SPECS.figure(64, "GB", "half of the module's 128"),
        bandwidth_tb=ROCM_MI250.figure(1.6, "TB/s", "of one GCD; the page names the MI250"),
        l2_mb=ROCM_SPECS.figure(8, "MB", "of one GCD"),
        mall_mb=unknown("MB", "the chip has none"),
        link_gb=_NO_LINK,
        peaks={
            **_derived(
                ROCM_MI250,
                110,
                1.7,
                fp32=(128, f"{_PLAIN}; FLOP and clock are those of the MI250"),
                fp32_matrix=(256, "FLOP and clock are those of the MI250"),
                bf16=(1024, "FLOP and clock are those of the MI250"),
            ),
            **_peaks(ROCM_MI250, xf32=_NO_XF32, fp8=_NO_FP8),
        },
        known_as=("MI250X",),
        note=f"Infinity Fabric of the MI250: 50 GB/s per direction and link (source: {ROCM_MI250.where})",
    ),
    "MI300X": Chip(
        name="Instinct MI300X",
        target="gfx942",
        units=ROCM_SPECS.figure(304, "CUs", "8 XCDs of 38"),
        memory_gb=ROCM_SPECS.figure(192, "GB"),
        bandwidth_tb=ROCM_MI300.figure(5.3, "TB/s"),
        l2_mb=ROCM_SPECS.figure(32, "MB", "4 for each XCD"),
        mall_mb=ROCM_SPECS.figure(256, "MB"),
        link_gb=_NO_LINK,
        peaks={
            **_peaks(ROCM_MI300, f"256 FLOP of a clock and CU: {_PACKED}", fp32=163.4),
            **_peaks(ROCM_MI300, "256 FLOP of a clock and CU", fp32_matrix=163.4),
            **_peaks(ROCM_MI300, "the page calls it TF32", xf32=653.7),
            **_peaks(ROCM_MI300, bf16=1307.4, fp8=2614.9),
        },
        known_as=("MI300X",),
        note="a discrete accelerator: MI300A is the part with one memory for CPU and GPU; 8 GPUs are fully meshed",
    ),
    "MI325X": Chip(
        name="Instinct MI325X",
        target="gfx942",
        units=ROCM_SPECS.figure(304, "CUs", "8 XCDs of 38"),
        memory_gb=ROCM_SPECS.figure(256, "GB"),
        bandwidth_tb=unknown("TB/s"),
        l2_mb=ROCM_SPECS.figure(32, "MB", "4 for each XCD"),
        mall_mb=ROCM_SPECS.figure(256, "MB"),
        link_gb=_NO_LINK,
        peaks=_peaks(
            ROCM_MI300,
            "derived: MI300X's, which has as many CUs; the clock is taken as the same",
            fp32=163.4,
            fp32_matrix=163.4,
            xf32=653.7,
            bf16=1307.4,
            fp8=2614.9,
        ),
        known_as=("MI325X",),
    ),
    "MI350X": Chip(
        name="Instinct MI350X",
        target="gfx950",
        units=ROCM_SPECS_NEW.figure(256, "CUs", "8 XCDs of 32"),
        memory_gb=ROCM_SPECS_NEW.figure(288, "GB"),
        bandwidth_tb=TORCH_MI350X.figure(8, "TB/s"),
        l2_mb=ROCM_SPECS_NEW.figure(32, "MB", "4 for each XCD"),
        mall_mb=ROCM_SPECS_NEW.figure(256, "MB"),
        link_gb=_NO_LINK,
        peaks={
            **_peaks(TORCH_MI350X, "256 FLOP of a clock and CU at 2.2 GHz", fp32=144.2),
            **_peaks(TORCH_MI350X, "256 CUs x 4,096 FLOP x 2.2 GHz would be 2,306.9", bf16=2309.6),
            **_peaks(TORCH_MI350X, fp8=4614, xf32=_NO_XF32),
        },
        known_as=("MI350X",),
    ),
    "MI355X": Chip(
        name="Instinct MI355X",
        target="gfx950",
        units=ROCM_SPECS_NEW.figure(256, "CUs", "8 XCDs of 32"),
        memory_gb=ROCM_SPECS_NEW.figure(288, "GB"),
        bandwidth_tb=MI355X_PAGE.figure(8, "TB/s"),
        l2_mb=ROCM_SPECS_NEW.figure(32, "MB", "4 for each XCD"),
        mall_mb=ROCM_SPECS_NEW.figure(256, "MB"),
        link_gb=_NO_LINK,
        peaks={
            **_derived(
                ROCPROF_950,
                256,
                2.4,
                fp32=(256, f"{_PACKED}; clock: {_HOT_CHIPS}"),
                fp32_matrix=(256, f"clock: {_HOT_CHIPS}"),
                bf16=(4096, f"clock: {_HOT_CHIPS}"),
                fp8=(8192, f"clock: {_HOT_CHIPS}"),
            ),
            **_peaks(ROCPROF_950, xf32=_NO_XF32),
        },
        known_as=("MI355X",),
    ),
    "MI455X": Chip(
        name="Instinct MI455X",
        target="gfx1250",
        units=unknown("CUs"),
        memory_gb=MI455X_TRIED.figure(432, "GB"),
        bandwidth_tb=MI455X_TRIED.figure(23.3, "TB/s", "at most; 19.6 were announced before"),
        l2_mb=unknown("MB"),
        mall_mb=unknown("MB"),
        link_gb=_NO_LINK,
        peaks={},
        known_as=("MI455X",),
        note="stands for gfx1250, which AMD's FlyDSL (github.com/ROCm/FlyDSL pull 384) names MI450",
    ),
    "RX 7900 XTX": Chip(
        name="Radeon RX 7900 XTX",
        target="gfx1100",
        units=ROCM_SPECS.figure(96, "CUs"),
        memory_gb=ROCM_SPECS.figure(24, "GB"),
        bandwidth_tb=RX_7900_REVIEW.figure(0.96, "TB/s"),
        l2_mb=ROCM_SPECS.figure(6, "MB"),
        mall_mb=ROCM_SPECS.figure(96, "MB"),
        link_gb=_NO_LINK,
        peaks={
            **_peaks(RADEONS, f"96 CUs x 256 FLOP of a clock and CU x 2.5 GHz: {_DUAL}", fp32=61.4),
            **_peaks(RADEONS, "the page's FP16; WMMA takes BF16 at the same rate", bf16=122.9),
            **_peaks(RADEONS, fp32_matrix=_NO_FP32_MATRIX, xf32=_NO_XF32, fp8=_NO_FP8),
        },
        known_as=("7900", "XTX"),
    ),
    "RX 9070 XT": Chip(
        name="Radeon RX 9070 XT",
        target="gfx1201",
        units=ROCMINFO_9070.figure(64, "CUs"),
        memory_gb=RADEONS.figure(16, "GB"),
        bandwidth_tb=unknown("TB/s", "sources differ: 624 to 640 GB/s"),
        l2_mb=ROCMINFO_9070.figure(8, "MB"),
        mall_mb=ROCMINFO_9070.figure(64, "MB"),
        link_gb=_NO_LINK,
        peaks={
            **_peaks(RADEONS, f"64 CUs x 256 FLOP of a clock and CU x 2.97 GHz: {_DUAL}", fp32=48.7),
            **_peaks(RADEONS, "derived: an eighth of the page's 1,557 TOPS of sparse INT4", bf16=194.6),
            **_peaks(RADEONS, "derived: a quarter of the page's 1,557 TOPS of sparse INT4", fp8=389),
            **_peaks(RADEONS, fp32_matrix=_NO_FP32_MATRIX, xf32=_NO_XF32),
        },
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

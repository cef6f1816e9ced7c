"""Statements about hardware and vendors' software that a lesson prints, each with its one source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gpu_utils.chips.source import Source
from gpu_utils.chips.table import Table

_DAY = "2026-11-22"
_HIP = Source("HIP documentation, docs/understand/hardware_implementation.rst in ROCm/rocm-systems", _DAY)
_PROFILER = Source("ROCm Compute Profiler docs/conceptual/pipeline-descriptions.rst", _DAY)
_SYNC = Source("ROCm/rocm-systems projects/clr/hipamd/include/hip/amd_detail/amd_warp_sync_functions.h", _DAY)
_SYNC_62 = Source(
    "ROCm/clr at rocm-6.2.2, hipamd/include/hip/amd_detail/amd_warp_sync_functions.h and hip_assert.h", _DAY
)
_HIP_70 = Source("HIP C++ language extensions, as quoted in github.com/ORNL/HeCBench pull 221", _DAY, "excerpt")
_ISA = Source("AMD's ISA manuals, the pseudo-code of DS_BPERMUTE_B32 in the wheel tinygrad 0.14", _DAY)
_CUDA = Source("NVIDIA's CUDA C++ guidelines for safety-critical programming 3.0.1, rule 2.3", _DAY, "excerpt")


@dataclass(frozen=True)
class Fact:
    """One statement. note: what other sources say, and which one the course follows.

    >>> print(FACTS["agprs"].source.where)
    ROCm Compute Profiler docs/conceptual/pipeline-descriptions.rst
    """

    text: str
    source: Source
    note: str = ""

    def __str__(self) -> str:
        return f"{self.text} (source: {self.source.where}{f'; {self.note}' if self.note else ''})"


FACTS: Mapping[str, Fact] = Table(
    "fact",
    {
        "simd_cdna": Fact(
            "A SIMD of CDNA is 16 lanes wide, so one vector instruction of a wavefront of 64 takes four cycles. "
            "The four SIMDs of a CU have 64 lanes together.",
            _HIP,
            "the same page says of CDNA3 that its pipelines do 256 operations a cycle and CU",
        ),
        "simd_rdna": Fact("A SIMD of RDNA is 32 lanes wide: a wave of 32 takes one cycle.", _HIP),
        "agprs": Fact(
            "VGPRs and AGPRs share one register file since CDNA2 (gfx90a): 512 KiB a CU, of which a wave asks for up "
            "to 256 VGPRs and 256 AGPRs a lane. On MI100 (CDNA, gfx908) they are two files of 256 KiB.",
            _PROFILER,
        ),
        "sync_mask": Fact(
            "On AMD the mask of a *_sync function must name exactly the active lanes that call with it: the header "
            "asserts MASK == __ballot(true), and __ballot_sync returns the ballot and the mask.",
            _SYNC,
        ),
        "sync_mask_width": Fact(
            "The mask has 64 bits on every AMD chip but gfx1250; a wave of 32 lanes ignores its upper half.", _SYNC
        ),
        "sync_mask_assert": Fact("The assertion ends in a trap, and is left out where NDEBUG is defined.", _SYNC_62),
        "sync_since": Fact(
            "These functions came with ROCm 6.2 as a preview, switched on by HIP_ENABLE_WARP_SYNC_BUILTINS.", _SYNC_62
        ),
        "sync_default": Fact(
            "Since ROCm 7.0 they are on by default; HIP_DISABLE_WARP_SYNC_BUILTINS switches them off.", _HIP_70
        ),
        "absent_lane_amd": Fact(
            "ds_bpermute_b32, AMD's shuffle, gives 0 for a source lane that EXEC has switched off.",
            _ISA,
            "an instruction's rule: HIP promises nothing for __shfl",
        ),
        "absent_lane_nvidia": Fact(
            "In CUDA a shuffle from a lane that does not take part gives an undefined value.", _CUDA
        ),
    },
)
"""Short name -> Fact. An unknown name raises UnknownName with the nearest."""

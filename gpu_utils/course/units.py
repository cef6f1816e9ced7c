"""The sixteen units: one number, one name, everywhere."""

from __future__ import annotations

from dataclasses import dataclass

from gpu_utils.errors import UnknownName


@dataclass(frozen=True)
class Unit:
    """One unit of the course. `name` is also the name of its folder and of its notebooks.

    >>> Unit("04", "triton_reductions", "Memory-bound kernels in Triton").name
    '04_triton_reductions'
    """

    number: str
    topic: str
    title: str

    @property
    def name(self) -> str:
        return f"{self.number}_{self.topic}"


UNITS = (
    Unit("00", "start", "Your machine, and three ways to run one kernel"),
    Unit("01", "gpt2_baseline", "GPT-2, trained and measured"),
    Unit("02", "gpu_machine", "Warps, wavefronts, memory, occupancy, roofline"),
    Unit("03", "porting_to_rocm", "From CUDA to ROCm"),
    Unit("04", "triton_reductions", "Memory-bound kernels in Triton"),
    Unit("05", "triton_matmul", "Matrix multiplication in Triton"),
    Unit("06", "flash_attention", "FlashAttention, forward, backward and decoding"),
    Unit("07", "ptx_and_amdgcn", "PTX and AMDGCN: the layer under Triton"),
    Unit("08", "fp8", "FP8: formats, scaling, training"),
    Unit("09", "operator_alignment", "The same answer on two chips"),
    Unit("10", "mla_moe", "Multi-head latent attention and mixture of experts"),
    Unit("11", "expert_parallelism", "Collectives, dispatch, combine"),
    Unit("12", "pipeline_schedules", "Pipeline schedules"),
    Unit("13", "profiling", "Profiling on both vendors"),
    Unit("14", "tilelang", "TileLang: one source, three vendors"),
    Unit("15", "capstone", "Capstone: the baseline, transformed"),
)


def find_unit(text: str) -> Unit:
    """The unit that `text` names: "4", "04", "triton_reductions" or "04_triton_reductions".

    Raises UnknownName with the nearest names.

    >>> find_unit("4").name
    '04_triton_reductions'
    """
    wanted = str(text).strip().lower()
    if wanted.isdecimal():
        wanted = f"{int(wanted):02d}"
    for unit in UNITS:
        if wanted in (unit.number, unit.topic, unit.name):
            return unit
    raise UnknownName("unit", str(text), [unit.name for unit in UNITS])

"""A virtual Ascend AI core: AscendC as TileLang lowers it, compiled for the host and run with its pipes and flags."""

from gpu_utils.npu.run import NpuFault, NpuRun, NpuStopped, run_ascendc

__all__ = ["NpuFault", "NpuRun", "NpuStopped", "run_ascendc"]

"""A virtual Ascend AI core: AscendC as TileLang lowers it, compiled for the host and run with its pipes and flags."""

from gpu_utils.lazy import lazily

_HOME = "gpu_utils.virtual.npu.run"
__getattr__, __dir__ = lazily(__name__, dict.fromkeys(("NpuFault", "NpuRun", "NpuStopped", "run_ascendc"), _HOME))

"""Virtual GPUs: the compiled machine code of both vendors, executed lane by lane on a CPU, with exact counters."""

from gpu_utils.virtual.gpu import VirtualGpu
from gpu_utils.virtual.models import MODELS
from gpu_utils.virtual.triton_driver import active_gpu, virtual_gpu

__all__ = ["MODELS", "VirtualGpu", "active_gpu", "virtual_gpu"]

"""CUDA sources that TileLang lowers, compiled to PTX by NVRTC with NVIDIA's headers and TileLang's own.

A lowered source includes TileLang's templates (src/tl_templates/cuda of its wheel) and, through them, CUTLASS's.
"""

from __future__ import annotations

from gpu_utils.compiler import nvrtc
from gpu_utils.compiler.cpp_module import CppModule
from gpu_utils.compiler.tilelang import Lowered, folder
from gpu_utils.errors import BadArgument

_PROLOGUE = "#include <tl_templates/cuda/nvrtc_std.h>\n"


def compile_cuda(lowered: Lowered) -> CppModule:
    """Compile a lowered CUDA source for its target: "sm_80", "sm_90", ...

    Returns a CppModule as `compile_cpp` does, from the cache folder where it was compiled before.
    Errors: BadArgument for another vendor's source; CompilerMissing without NVRTC (extra `nvrtc`) or TileLang (extra
    `tilelang`); CompileFailed with NVRTC's first error and its line.
    """
    if lowered.vendor != "nvidia":
        raise BadArgument(
            f"compile_cuda takes CUDA that was lowered for an NVIDIA target, not {lowered.target}'s source"
        )
    wheel = folder()
    return nvrtc.compile_cpp(
        _PROLOGUE + lowered.source,
        lowered.target,
        include=[wheel / "src", wheel / "3rdparty" / "cutlass" / "include"],
        options=["-default-device", "-std=c++17"],
    )

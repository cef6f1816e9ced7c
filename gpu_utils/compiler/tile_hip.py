"""HIP sources that TileLang lowers, compiled to AMDGCN by the course's clang without ROCm.

A lowered source includes TileLang's own templates (src/tl_templates/hip of its wheel) as they are, and these use names
of HIP's headers and of the standard library: include/tile has what they need.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

from gpu_utils.command import script
from gpu_utils.compiler import clang
from gpu_utils.compiler.cpp_module import CppModule
from gpu_utils.compiler.tilelang import Lowered
from gpu_utils.errors import BadArgument, CompilerMissing

HEADERS = clang.INCLUDE / "tile"


def compile_hip(lowered: Lowered) -> CppModule:
    """Compile a lowered HIP source for its target: "gfx942", "gfx1100", ...

    Returns a CppModule as `compile_cpp` does, from the cache folder where it was compiled before. Shared memory (LDS)
    of a lowered kernel is dynamic: a launch says its bytes.
    Errors: BadArgument for another vendor's source; CompilerMissing without clang (extra `hip`) or TileLang (extra
    `tilelang`); CompileFailed with clang's first error and its line.
    """
    if lowered.vendor != "amd":
        raise BadArgument(f"compile_hip takes HIP that was lowered for an AMD target, not {lowered.target}'s source")
    templates = _templates()
    if not clang.installed() or templates is None:
        absent = "TileLang, whose templates it includes," if clang.installed() else "clang (the wheel ziglang)"
        raise CompilerMissing(
            f"compiling a lowered HIP source needs {absent} and it is not installed; run "
            f"`W2W_EXTRAS=hip,tilelang {script()} study`, or `pip install warp-to-wavefront[hip,tilelang]`"
        )
    options = ("-include", "w2w_tile.h")
    return clang.compiled(lowered.source, lowered.target, (HEADERS, templates), options, ("tilelang",))


def _templates() -> Path | None:
    """Where a lowered source finds <tl_templates/hip/...>: a folder of TileLang's wheel."""
    found = importlib.util.find_spec("tilelang")
    places = found.submodule_search_locations if found else None
    return Path(places[0]) / "src" if places else None

"""TileLang programs lowered for three vendors with no GPU: to CUDA C++, to HIP C++ and to AscendC.

A *tile program* is a Python function `program(T, vendor, **sizes)` that returns a `T.prim_func`. `T` is the language
of the target (`tilelang.language`, or `tilelang.ascend.language`), so that a module with tile programs imports nothing
and can be read where TileLang is not installed. Needs the extra `tilelang`.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gpu_utils.chips.npus import NPUS
from gpu_utils.chips.targets import TARGETS
from gpu_utils.command import script
from gpu_utils.errors import CompileFailed, CompilerMissing, UnknownName

Program = Callable[..., Any]


@dataclass(frozen=True)
class Lowered:
    """A tile program as TileLang hands it to a vendor's compiler.

    target  "sm_90", "gfx942", "ascend950"
    vendor  "nvidia", "amd" or "ascend"
    source  CUDA C++, HIP C++ or AscendC
    kernel  name of the kernel in it
    """

    target: str
    vendor: str
    source: str
    kernel: str


def lower(program: Program, target: str, **sizes: Any) -> Lowered:
    """Lower a tile program for a target with these sizes.

    Errors: UnknownName for the target; CompilerMissing without TileLang; CompileFailed with what TileLang says.
    """
    vendor = vendor_of(target)
    if not installed():
        raise CompilerMissing(
            "lowering tile programs needs TileLang, which is not installed; run "
            f"`W2W_EXTRAS=hip,nvrtc,tilelang {script()} study`, or `pip install warp-to-wavefront[tilelang]`"
        )
    language = importlib.import_module("tilelang.ascend.language" if vendor == "ascend" else "tilelang.language")
    tilelang = importlib.import_module("tilelang")
    into = importlib.import_module("tvm.target").Target(_KINDS[vendor](target))
    try:
        with into:
            made = tilelang.lower(
                program(language, vendor, **sizes), target=into, enable_host_codegen=False, enable_device_compile=False
            )
    except Exception as problem:  # TVM's own errors have many types
        raise CompileFailed(f"{program.__name__} for {target}: {problem}") from problem
    return Lowered(target, vendor, made.kernel_source, "main_kernel")


def vendor_of(target: str) -> str:
    """The name: "nvidia", "amd" or "ascend". Raises UnknownName.

    >>> vendor_of("gfx942"), vendor_of("ascend950")
    ('amd', 'ascend')
    """
    if target in NPUS:
        return "ascend"
    if target in TARGETS:
        return TARGETS[target].vendor
    raise UnknownName("target", target, (*TARGETS, *NPUS))


def installed() -> bool:
    """Whether TileLang is there."""
    return importlib.util.find_spec("tilelang") is not None


_KINDS: dict[str, Callable[[str], dict[str, Any]]] = {
    # from sm_90 on the instructions of the chip itself, as `compile_cpp` does with NVRTC
    "nvidia": lambda target: {"kind": "cuda", "arch": f"{target}a" if int(target[3:]) >= 90 else target},
    "amd": lambda target: {"kind": "hip", "mcpu": target},
    "ascend": lambda target: {"kind": "ascend"},
}

"""TileLang programs lowered for three vendors with no GPU: to CUDA C++, to HIP C++ and to AscendC.

A *tile program* is a Python function `program(T, vendor, **sizes)` that returns a `T.prim_func`. `T` is the language
of the target (`tilelang.language`, or `tilelang.ascend.language`), so that a module with tile programs imports nothing
and can be read where TileLang is not installed. Needs the extra `tilelang`.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from gpu_utils.chips.npus import NPUS
from gpu_utils.chips.targets import TARGETS
from gpu_utils.command import script
from gpu_utils.compiler import stored_tiles
from gpu_utils.compiler.quiet import kept_output
from gpu_utils.errors import BadArgument, CompileFailed, CompilerMissing, UnknownName
from gpu_utils.folders import cache_folder

Program = Callable[..., Any]


@dataclass(frozen=True)
class TileMap:
    """A tensor map (TMA) that a launch makes on the host.

    tensor   name of the tensor that it maps
    element  code of the element type in CUDA's CUtensorMapDataType
    sizes, box  in elements from the fastest dimension; strides: bytes, without dimension 0's
    swizzle  code of CUtensorMapSwizzle
    """

    tensor: str
    element: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: int


@dataclass(frozen=True)
class Lowered:
    """A tile program as TileLang hands it to a vendor's compiler. All fields are plain data.

    target   "sm_90", "gfx942", "ascend950"
    vendor   "nvidia", "amd" or "ascend"
    source   CUDA C++, HIP C++ or AscendC
    kernel   name of the kernel in it
    tensors  names of the program's tensors, in the program's order
    parameters  names of the kernel's parameters, in the kernel's order, which may be another one; a tensor map has the
             name of its parameter
    grid     blocks in x, y, z; block: threads in x, y, z (on an AI core 1, 1, 1: vector functions have their own)
    shared   bytes of dynamic shared memory (LDS) of a block
    maps     name of a parameter -> the tensor map that it is
    """

    target: str
    vendor: str
    source: str
    kernel: str
    tensors: tuple[str, ...] = ()
    parameters: tuple[str, ...] = ()
    grid: tuple[int, int, int] = (1, 1, 1)
    block: tuple[int, int, int] = (1, 1, 1)
    shared: int = 0
    maps: Mapping[str, TileMap] = field(default_factory=dict)

    def as_data(self) -> dict[str, Any]:
        """Everything as dicts, tuples, numbers and text."""
        return asdict(self)

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Lowered:
        """What `as_data` gave, also where tuples have become lists."""
        plain: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in data.items()
        }
        maps = {name: TileMap(**_tuples(each)) for name, each in data["maps"].items()}
        plain["maps"] = maps
        return cls(**plain)


def _tuples(data: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in data.items()}


def lower(program: Program, target: str, **sizes: Any) -> Lowered:
    """Lower a tile program for a target with these sizes.

    Without TileLang the course's own programs have stored sources, with the sizes that it uses.
    Errors: UnknownName for the target; CompilerMissing without TileLang for other programs; BadArgument where the
    program returns no kernel; CompileFailed with what TileLang says.
    """
    vendor = vendor_of(target)
    if not installed() and (stored := stored_tiles.find(program, target, sizes)):
        if "refused" in stored:
            raise CompileFailed(stored["refused"])
        return Lowered.from_data(stored)
    folder()
    with _silence():
        found = _lowered(program, target, vendor, sizes)
        if isinstance(found, Exception):
            raise found  # it says what TileLang printed, too
    return found


def _lowered(program: Program, target: str, vendor: str, sizes: Mapping[str, Any]) -> Lowered | Exception:
    """What `lower` returns or raises. No object of TVM leaves this function, not even in a traceback: those that live
    until the interpreter ends make it crash."""
    language = importlib.import_module("tilelang.ascend.language" if vendor == "ascend" else "tilelang.language")
    tilelang = importlib.import_module("tilelang")
    tvm = importlib.import_module("tvm")
    name = getattr(program, "__name__", "the program")
    try:
        with tvm.target.Target(_KINDS[vendor](target)) as into:
            kernel = program(language, vendor, **sizes)
            if not isinstance(kernel, tvm.tirx.PrimFunc):
                what = type(kernel).__name__
                return BadArgument(f"{name} returned {what}; a tile program returns what is under @T.prim_func")
            made = tilelang.lower(kernel, target=into, enable_host_codegen=False, enable_device_compile=False)
        return _described(target, vendor, kernel, made)
    except CompileFailed as problem:
        return problem.with_traceback(None)
    except Exception as problem:  # TVM's own errors have many types, and so have an answer's
        return CompileFailed(f"{name} for {target}: {_said(problem)}")


def refusal(program: Program, target: str, **sizes: Any) -> str:
    """What TileLang says when it refuses a program, in its own words; "lowered" where it does not."""
    try:
        lower(program, target, **sizes)
    except CompileFailed as problem:
        return str(problem).partition(": ")[2]
    return "lowered"


def _described(target: str, vendor: str, kernel: Any, made: Any) -> Lowered:
    """The source with all that a launch needs, from the two halves of what TileLang made."""
    (device,) = made.device_mod.functions.values()
    extents = {str(key): int(value) for key, value in device.attrs["thread_extent"].items()}
    grid, block = ([extents.get(f"{what}Idx.{axis}", 1) for axis in "xyz"] for what in ("block", "thread"))
    tensors = tuple(_text(kernel.buffer_map[each].name) for each in kernel.params if each in kernel.buffer_map)
    return Lowered(
        target=target,
        vendor=vendor,
        source=_text(made.kernel_source),
        kernel=_text(device.attrs["global_symbol"]),
        tensors=tensors,
        parameters=tuple(_text(each.name) for each in device.params),
        grid=(grid[0], grid[1], grid[2]),
        block=(block[0], block[1], block[2]),
        shared=int(device.attrs["dyn_shared_memory_buf"]) if "dyn_shared_memory_buf" in device.attrs else 0,
        maps=_maps(made.host_mod) if vendor == "nvidia" else {},
    )


def _maps(host: Any) -> dict[str, TileMap]:
    """Tensor maps from the host's part: of each its kind, type, rank, tensor, sizes, strides, box, and codes."""
    maps = {}
    for function in host.functions.values():
        described = function.attrs.get("tma_descriptor_args", {})
        for parameter, (kind, _, element, rank, tensor, *rest) in described.items():
            if str(kind).strip('"') != "__tvm_tensormap_create_tiled":
                raise CompileFailed(f"the launch makes a tensor map by {kind}, which is not supported here")
            n, values = int(rank), [int(each) for each in rest]
            sizes, strides, box = (tuple(values[n * part : n * part + n]) for part in range(3))
            maps[_text(parameter)] = TileMap(_text(tensor), int(element), sizes, strides[1:], box, values[4 * n + 1])
    return maps


def _text(value: Any) -> str:
    """As a plain str: TVM's own strings are a kind of str, and outlive TVM badly."""
    return "".join((str(value), ""))


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


def folder() -> Path:
    """The folder of TileLang's wheel, whose headers a lowered source includes. Raises CompilerMissing."""
    found = importlib.util.find_spec("tilelang")
    if found is None or not found.submodule_search_locations:
        raise CompilerMissing(
            "tile programs need TileLang, which is not installed; run "
            f"`W2W_EXTRAS=hip,nvrtc,tilelang {script()} study`, or `pip install warp-to-wavefront[hip,nvrtc,tilelang]` "
            "(about 83 MB beside the compilers)"
        )
    return Path(next(iter(found.submodule_search_locations)))


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """TileLang looks for toolkits that nobody needs here, and says so; its own cache goes into ours."""
    os.environ.setdefault("TILELANG_CACHE_DIR", str(cache_folder() / "tilelang"))
    with kept_output("Unable to detect"):
        yield


def _said(problem: Exception) -> str:
    """TileLang's own words without a traceback: the first paragraph that is a message, in one line."""
    text = str(problem).strip() or type(problem).__name__
    return " ".join(text.split())[:600]


_KINDS: dict[str, Callable[[str], dict[str, Any]]] = {
    # from sm_90 on the instructions of the chip itself, as `compile_cpp` does with NVRTC
    "nvidia": lambda target: {"kind": "cuda", "arch": f"{target}a" if int(target[3:]) >= 90 else target},
    "amd": lambda target: {"kind": "hip", "mcpu": target},
    "ascend": lambda target: {"kind": "ascend"},
}

"""CUDA-style C++ compiled for both vendors without CUDA or ROCm: clang from the wheel `ziglang`, and a header of ours.

The header (include/w2w_gpu.h) is included by itself, as nvcc does with its own. A source holds kernels and device
functions, no host code. `compile_cpp(source, "sm_80")` gives PTX, `compile_cpp(source, "gfx942")` AMDGCN.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import os
import re
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

from gpu_utils.chips.targets import TARGETS, Target
from gpu_utils.command import script
from gpu_utils.compiler import nvrtc, stored
from gpu_utils.compiler.cpp_cache import keep, kept
from gpu_utils.compiler.cpp_module import (
    CppModule,
    assembled,
    of_amdgcn,
    of_ptx,
    signatures,
    source_name,
)
from gpu_utils.compiler.triton import ptxas
from gpu_utils.errors import BadArgument, CompileFailed, CompilerMissing, UnknownName
from gpu_utils.folders import cache_folder

INCLUDE = Path(__file__).parent / "include"
SECONDS = 120
SOURCE_NAME = "kernel.cu"
"""The file that a source is in its listings and in errors."""


def compile_cpp(
    source: str,
    target: str,
    compiler: str = "clang",
    *,
    include: Sequence[str | os.PathLike[str]] = (),
    defines: Sequence[str] = (),
    options: Sequence[str] = (),
    names: Sequence[str] = (),
) -> CppModule:
    """Compile CUDA-style C++ to the assembly text of a target.

    source    kernels (`__global__`) and device functions. With clang the names that exist are those of
              include/w2w_gpu.h; with NVRTC those of CUDA's own headers, cooperative groups and libcu++ among them
    target    of gpu_utils.chips.TARGETS: "sm_80", "gfx942"
    compiler  "clang" for both vendors (the extra `hip`), or "nvrtc": NVIDIA's, for its targets (the extra `nvrtc`),
              from sm_90 on with the instructions of the chip itself (sm_90a), as Triton compiles
    include, defines, options, names   for NVRTC: folders of headers; macros ("N=4"); further options of NVRTC
              ("-default-device", "-std=c++20", "--use_fast_math"); instances of templates ("copy<float, 4>"), by which
              names they are launched

    Returns a CppModule, kept in the cache folder by the content of everything that went into it. The text has passed an
    assembler: ptxas for NVIDIA, LLVM's own for AMD. Without the wheel ziglang it is the listing that the course has
    stored of its own sources, marked as such.
    Errors: UnknownName for a target or a compiler; BadArgument for NVRTC and a target of AMD, and for arguments that
    clang does not take; CompilerMissing where the compiler is not installed (with clang: for other sources);
    CompileFailed with the first error of the compiler or of the assembler and its line, also when static shared memory
    (LDS) is larger than the target allows.
    """
    if compiler == "nvrtc":
        return nvrtc.compile_cpp(source, target, include=include, defines=defines, options=options, names=names)
    if compiler != "clang":
        raise UnknownName("compiler", compiler, ("clang", "nvrtc"))
    if include or defines or options or names:
        raise BadArgument('include, defines, options and names are for compiler="nvrtc"; write #define into the source')
    TARGETS[target]  # UnknownName
    if wheel_folder() is None:
        return _from_storage(source, target)
    return compiled(source, target)


def compiled(
    source: str,
    target: str,
    folders: Sequence[Path] = (),
    options: Sequence[str] = (),
    wheels: Sequence[str] = (),
) -> CppModule:
    """What clang makes of a source, with folders of headers before the course's own and further options.

    For `compile_cpp`, and for sources that another compiler wrote. wheels: what the folders come from. Kept in the
    cache folder by the content of all that went into it, of wheels by their versions. Errors as there.
    """
    limits, wheel = TARGETS[target], wheel_folder()
    if wheel is None:
        raise CompilerMissing("clang, the wheel ziglang, is not installed")
    clang = _command(wheel, folders)
    place = cache_folder() / "clang" / f"{_fingerprint(source, target, [*options, *_versions(wheels)])}.json"
    if module := kept(place):
        return module
    with tempfile.TemporaryDirectory(prefix="w2w-clang-") as folder:
        (Path(folder) / SOURCE_NAME).write_text(source)
        asm = _run(clang, limits, Path(folder), [*options], source)
        _refuse_directives(asm, limits)
        declared = dict(signatures(_run(clang, limits, Path(folder), [*options, *_IR], source)))
        if limits.vendor == "nvidia":
            described = of_ptx(asm, _assemble_ptx(asm, limits, Path(folder)))
        else:
            _assemble_amdgcn(clang, asm, limits, Path(folder))
            described = of_amdgcn(asm)
    module = assembled(target, asm, declared, described)
    keep(place, module)
    return module


def installed() -> bool:
    """Whether there is a compiler; without one, only the course's own sources have listings, which are stored."""
    return wheel_folder() is not None


def wheel_folder() -> Path | None:
    """The folder of the wheel ziglang; None where it is not installed."""
    found = importlib.util.find_spec("ziglang")
    return Path(found.submodule_search_locations[0]) if found and found.submodule_search_locations else None


def _from_storage(source: str, target: str) -> CppModule:
    if found := stored.find(source, target):
        return found
    raise CompilerMissing(
        "compiling C++ kernels needs clang from the wheel ziglang, which is not installed, and the course has no "
        f"stored listing of this source; run `W2W_EXTRAS=hip {script()} study`, or "
        "`pip install warp-to-wavefront[hip]` (about 411 MB)"
    )


def _command(wheel: Path, folders: Sequence[Path]) -> list[str]:
    """clang inside the wheel, with headers of these folders, ours and its own freestanding ones, in this order."""
    places = (*folders, INCLUDE, wheel / "lib/include")
    return [str(wheel / "zig"), "clang", "-nostdinc", *(word for place in places for word in ("-isystem", str(place)))]


_IR = ["-emit-llvm", "-Xclang", "-disable-llvm-passes", "-fno-discard-value-names"]
_OPTIONS = ["--cuda-device-only", "-std=c++17", "-O3", "-g1", "-S", "-ffreestanding", "-include", "w2w_gpu.h"]
_READS = ["-H", "-Werror=c23-extensions"]
"""clang names every header that it opens, and refuses #embed: see `_without_headers`."""
_VENDOR = {
    "nvidia": ["-x", "cuda", "-nocudalib", "-nocudainc", "-Wno-unknown-cuda-version"],
    "amd": ["-x", "hip", "-nogpulib", "-nogpuinc", "-mcode-object-version=5", "-fuse-cuid=none"],
}


def _options(limits: Target) -> list[str]:
    if limits.vendor == "amd":
        return [*_VENDOR["amd"], f"--offload-arch={limits.name}", *_OPTIONS]
    # clang 22 would write PTX 8.8, which the ptxas that comes with Triton 3.7 cannot read for targets before sm_100;
    # 8.6 knows sm_100, 8.7 sm_120 (PTX ISA, target directives)
    features = ("-ptx88", "+ptx87" if limits.capability >= 120 else "+ptx86")
    version = [word for feature in features for word in ("-Xclang", "-target-feature", "-Xclang", feature)]
    return [*_VENDOR["nvidia"], *version, f"--cuda-gpu-arch={limits.name}", *_OPTIONS]


def _fingerprint(source: str, target: str, more: Sequence[str]) -> str:
    parts = [source, *_options(TARGETS[target]), *_IR, *_ours(), *more]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


def _versions(wheels: Sequence[str]) -> list[str]:
    return [importlib.metadata.version(name) for name in wheels]


@cache
def _ours() -> tuple[str, ...]:
    """What beside the source decides what comes out: our own code and headers, and the versions of the compilers."""
    code = [*sorted(Path(__file__).parent.glob("c*.py")), *sorted(INCLUDE.rglob("*"))]
    return *(path.read_text() for path in code if path.is_file()), *_versions(("ziglang", "triton"))


def _run(clang: list[str], limits: Target, folder: Path, more: list[str], source: str) -> str:
    maps = [f"-ffile-prefix-map={INCLUDE}=w2w", f"-ffile-prefix-map={folder}=."]
    log = _call([*clang, *_options(limits), *_READS, *more, *maps, SOURCE_NAME, "-o", "out"], limits, folder)
    log = _without_headers(log, clang, folder, limits)
    if not (folder / "out").exists():
        raise CompileFailed(f"C++ for {limits.name}: {_first_error(log, source)}")
    text = (folder / "out").read_text()
    (folder / "out").unlink()
    return text


def _without_headers(log: str, clang: list[str], folder: Path, limits: Target) -> str:
    """The log without clang's list of headers. A source that opens any file but the headers here is refused.

    Results are kept by the source and these headers alone, and a grader compiles sources that others have written:
    what stands in its other files must not get into a message.
    """
    allowed = [folder.resolve(), *(Path(word).resolve() for word in clang if word.startswith("/"))]
    for name in re.findall(r"^\.+ (.+)$", log, re.MULTILINE):
        if not any((folder / name).resolve().is_relative_to(place) for place in allowed):
            raise CompileFailed(
                f"C++ for {limits.name}: the source includes {name}; expected only headers of CUDA's and HIP's runtime "
                "and clang's own, such as stdint.h, by their names"
            )
    return re.sub(r"^\.+ .+\n", "", log, flags=re.MULTILINE)


_DIRECTIVE = re.compile(r"\.\s*(?:include|incbin|macro|irpc?|rept|altmacro)\b", re.IGNORECASE)
"""What makes an assembler read a file, or write such a line; clang itself writes none of them."""


def _refuse_directives(asm: str, limits: Target) -> None:
    if found := _DIRECTIVE.search(re.sub(r"^\s*\.(?:file|ident|ascii|asciz|string)\b.*", "", asm, flags=re.MULTILINE)):
        raise CompileFailed(
            f"C++ for {limits.name}: inline assembly with the directive {found[0]}; expected instructions only"
        )


Around = Callable[[Sequence[str], Path], list[str]]
_around: Around | None = None


def run_tools(around: Around) -> None:
    """From now on clang and the assemblers run by the command that `around` makes of theirs and of their folder.

    For whoever compiles what others wrote: inside of a sandbox in which they can write to nothing but that folder.
    """
    global _around
    _around = around


def _call(command: list[str], limits: Target, folder: Path) -> str:
    """Run a tool; returns what it printed, "" only when it found nothing to say."""
    command = _around(command, folder) if _around else command
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        name = Path(command[0]).name
        raise CompileFailed(f"C++ for {limits.name}: {name} took longer than {SECONDS} s and was stopped") from None
    return done.stdout + done.stderr


_HOST = "a source holds kernels and device functions only; launch the kernel from Python: gpu.load(...).launch(...)"
_ADVICE = {
    "file not found": "{}; the headers here are those of CUDA's and HIP's runtime and clang's own, such as stdint.h",
    "cudaConfigureCall": _HOST,
    "__hipPushCallConfiguration": _HOST,
}


def _first_error(log: str, source: str) -> str:
    """clang's first error, with the line of the learner's source that led to it."""
    lines = log.splitlines()
    at = next((i for i, line in enumerate(lines) if "error:" in line), None)
    if at is None:
        return next((line for line in lines if line.strip()), "clang failed without a message")
    message = lines[at].partition("error:")[2].strip()
    message = next((advice for found, advice in _ADVICE.items() if found in message), "{}").format(message)
    places = [re.match(rf"(?:\./)?{re.escape(SOURCE_NAME)}:(\d+):", line) for line in lines[at:]]
    number = next((int(place[1]) for place in places if place), None)
    text = source.split("\n")
    if number is None or number > len(text):
        return message
    return f"line {number}, `{text[number - 1].strip()}`: {message}"


def _assemble_amdgcn(clang: list[str], asm: str, limits: Target, folder: Path) -> None:
    """Refuse text that LLVM cannot assemble (inline assembly), and calls of functions that are declared only."""
    (folder / "kernel.s").write_text(asm)
    command = [*clang[:2], "-x", "assembler", "-target", "amdgcn-amd-amdhsa", f"-mcpu={limits.name}", "-c", "kernel.s"]
    log = _call([*command, "-o", "kernel.o"], limits, folder)
    if not (folder / "kernel.o").exists():
        raise CompileFailed(f"C++ for {limits.name}: the assembler refused the AMDGCN: {_first_error(log, '')}")
    defined = set(re.findall(r"^([\w.$]+):", asm, re.MULTILINE))
    for symbol in re.findall(r"([\w.$]+)@(?:rel32|gotpcrel32)", asm):
        if symbol not in defined:
            raise CompileFailed(f"C++ for {limits.name}: {source_name(symbol)} is declared and used, but not defined")


def _assemble_ptx(asm: str, limits: Target, folder: Path) -> str:
    """What `ptxas -v` says about the kernels; CompileFailed when it refuses them."""
    (folder / "kernel.ptx").write_text(asm)
    command = [ptxas(limits), "-v", f"--gpu-name={limits.name}", "kernel.ptx", "-o", "kernel.cubin"]
    log = _call(command, limits, folder)
    if not (folder / "kernel.cubin").exists():
        errors = [line.partition(":")[2].strip() for line in log.splitlines() if "error" in line or "fatal" in line]
        raise CompileFailed(f"C++ for {limits.name}: ptxas refused the PTX: {(errors or [log.strip()])[0]}")
    return log

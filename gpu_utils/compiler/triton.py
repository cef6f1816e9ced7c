"""Triton kernels compiled for any target, on a machine with no GPU and no driver."""

from __future__ import annotations

import inspect
import linecache
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from gpu_utils.chips.targets import TARGETS, Target
from gpu_utils.compiler.constraints import checked_constraints
from gpu_utils.compiler.quiet import ToolOutput, kept_output
from gpu_utils.errors import CompileFailed, CompilerMissing

INTERPRETED = "TRITON_INTERPRET=1 is set, so Triton compiles no kernel: unset it and restart Python"


@dataclass(frozen=True)
class Compiled:
    """One kernel compiled for one target.

    target    "sm_90", "gfx942"
    name      of the kernel
    asm       the assembly text: PTX or AMDGCN
    stages    every stage by name: "ttir", "ttgir", "llir", then "ptx" and "cubin", or "amdgcn" and "hsaco" (bytes)
    metadata  what Triton recorded: num_warps, num_stages, shared, ...
    shared    bytes of shared memory (LDS) that a launch asks for
    kernel    the jitted function
    """

    target: str
    name: str
    asm: str
    stages: Mapping[str, str | bytes]
    metadata: Mapping[str, Any]
    shared: int
    kernel: Any

    @property
    def limits(self) -> Target:
        return TARGETS[self.target]

    @property
    def num_warps(self) -> int:
        """Warps or wavefronts of one block."""
        return int(self.metadata["num_warps"])

    @property
    def binary(self) -> bytes:
        """The loadable binary: a cubin or a code object."""
        binary = self.stages["cubin" if self.limits.vendor == "nvidia" else "hsaco"]
        assert isinstance(binary, bytes)
        return binary

    def __repr__(self) -> str:
        lines = self.asm.count("\n")
        return f"Compiled({self.name} for {self.target}: {lines} lines, {self.shared} bytes shared)"


def compile_for(
    kernel: Any,
    target: str,
    args: Sequence[Any] | None = None,
    *,
    signature: Mapping[str, str] | None = None,
    constexprs: Mapping[str, Any] | None = None,
    num_warps: int | None = None,
    num_stages: int | None = None,
    options: Mapping[str, Any] | None = None,
    **kwargs: Any,
) -> Compiled:
    """Compile a `@triton.jit` function for a target, as a launch would, with no GPU.

    kernel      jitted function; under an autotuner its first configuration is taken, under heuristics their values
    target      of gpu_utils.chips.TARGETS: "sm_90", "gfx942"
    args        example arguments as in a launch: tensors on any device (only dtype and alignment matter), torch dtypes
                for pointers, numbers; integers specialise as in a launch (equal to 1, divisible by 16)
    signature   instead of args: {"x_ptr": "*fp32:16", "n": "i32"}; ":16" promises that 16 divides it, ":1" that it is 1
    constexprs  values of tl.constexpr parameters; they may also be plain keywords
    num_warps   warps or wavefronts of a block; num_stages: depth of the software pipeline
    options     further options of that target's backend, {"waves_per_eu": 2}; those of the other vendor are refused
    kwargs      keyword arguments as in a launch: BLOCK=1024, num_warps=8

    Returns Compiled. Errors: UnknownName for a target that does not exist; CompileFailed with the first error and the
    kernel's line; CompilerMissing under TRITON_INTERPRET=1. More shared memory than the target has is no error here, as
    in Triton: `resources` reports it.
    """
    limits = TARGETS[target]
    launch = {**(constexprs or {}), **kwargs, **(options or {})}
    launch |= {k: v for k, v in {"num_warps": num_warps, "num_stages": num_stages}.items() if v is not None}
    function, launch = _jitted(kernel, tuple(args or ()), launch)
    where = f"{function.__name__} for {target}"
    backend, gpu = _backend(limits)
    output = ToolOutput()
    try:
        source, chosen = _source(function, backend, tuple(args or ()), signature, launch)
        with kept_output() as output, checked_constraints():
            built = _compile(source, gpu, chosen)
    except Exception as problem:
        raise CompileFailed(f"{where}: {first_error(problem, output.text)}") from problem
    stages = {name: built.asm[name] for name in built.asm if name not in ("source", "sass")}
    return Compiled(
        target=target,
        name=built.metadata.name,
        asm=stages["ptx" if limits.vendor == "nvidia" else "amdgcn"],
        stages=MappingProxyType(stages),
        metadata=MappingProxyType(built.metadata._asdict()),
        shared=int(built.metadata.shared),
        kernel=function,
    )


def _jitted(kernel: Any, args: tuple[Any, ...], launch: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The JITFunction inside autotuners and heuristics, and the arguments with what these would have added."""
    from triton import knobs
    from triton.runtime.autotuner import Autotuner, Heuristics
    from triton.runtime.jit import JITFunction

    while not isinstance(kernel, JITFunction):
        if isinstance(kernel, Autotuner):
            launch = {**kernel.configs[0].all_kwargs(), **launch}
        elif isinstance(kernel, Heuristics):
            for name, value in kernel.values.items():
                launch.setdefault(name, value({**dict(zip(kernel.arg_names, args, strict=False)), **launch}))
        elif knobs.runtime.interpret:
            raise CompilerMissing(INTERPRETED)
        if not hasattr(kernel, "fn"):
            found = type(kernel).__name__
            raise CompileFailed(f"a {found} is no kernel; expected a function with @triton.jit above it")
        kernel = kernel.fn
    return kernel, launch


def _backend(limits: Target) -> tuple[Any, Any]:
    from triton.backends.compiler import GPUTarget
    from triton.compiler import make_backend

    gpu = GPUTarget(*limits.for_triton)
    return make_backend(gpu), gpu


def ptxas(limits: Target) -> str:
    """The path of NVIDIA's assembler for a target, of the two that come with Triton."""
    from triton import knobs

    return (knobs.nvidia.ptxas_blackwell if limits.capability >= 100 else knobs.nvidia.ptxas).path


def _source(
    function: Any, backend: Any, args: tuple[Any, ...], signature: Mapping[str, str] | None, launch: dict[str, Any]
) -> tuple[Any, Any]:
    """What Triton's launch path makes of the arguments: an ASTSource and the backend's options."""
    from triton.compiler import ASTSource
    from triton.runtime.jit import MockTensor, create_function_from_signature

    launch = {"debug": function.debug, **launch}
    if signature is not None:
        return _explicit_source(function, backend, signature, launch)
    bind = create_function_from_signature(function.signature, function.params, backend)
    given = [MockTensor.wrap_dtype(value) for value in args]
    launch = {name: MockTensor.wrap_dtype(value) for name, value in launch.items()}
    bound, specialization, options = bind(*given, **launch)
    options, types, constants, attributes = function._pack_args(backend, launch, bound, specialization, options)
    return ASTSource(function, types, constants, attributes), options


def _explicit_source(function: Any, backend: Any, signature: Mapping[str, str], launch: dict[str, Any]) -> Any:
    from triton.compiler import ASTSource

    types, constants, attributes = {}, {}, {}
    for index, parameter in enumerate(function.params):
        name = parameter.name
        kind, _, promise = signature.get(name, "").partition(":")
        if parameter.is_constexpr or promise == "1":
            default = parameter.default if parameter.has_default else inspect.Parameter.empty
            value = 1 if promise == "1" else launch.pop(name, default)
            if value is inspect.Parameter.empty:
                raise TypeError(f"missing a value for the tl.constexpr parameter '{name}'")
            types[name], constants[(index,)] = "constexpr", value
        elif not kind:
            raise TypeError(f'the signature lacks a type for \'{name}\', for example "*fp32" or "i32"')
        else:
            types[name] = kind
            if promise == "16":
                attributes[(index,)] = [["tt.divisibility", 16]]
    options = backend.parse_options(launch)
    for name in launch:
        if name not in options.__dict__:
            raise KeyError(f"Keyword argument {name} was specified but unrecognised")
    return ASTSource(function, types, constants, attributes), options


def _compile(source: Any, gpu: Any, options: Any) -> Any:
    import triton

    return triton.compile(source, target=gpu, options=options.__dict__)


def first_error(problem: BaseException, printed: str) -> str:
    """One sentence: the learner's innermost line with the error there, or the first line of what a tool said."""
    from triton.compiler.errors import CompilationError

    found, reason = None, None
    chain: BaseException | None = problem
    while chain is not None:
        if isinstance(chain, CompilationError):
            if found is None or not _is_tritons_own(chain.src):
                found = chain
            reason = chain.error_message
        innermost, chain = chain, chain.__cause__
    if found is None:
        said = re.search(r"^(?!PTXAS error).*?\b(?:error|fatal)\s*:\s*(.+)$", f"{printed}\n{problem}", re.MULTILINE)
        return f"{_tool(problem)}: {_without_echo(said.group(1))[:300]}" if said else _first_line(problem)
    if not reason:
        reason = type(found).__name__ if isinstance(innermost, CompilationError) else _first_line(innermost)
    line = getattr(found.node, "lineno", None)
    if line is None or found.src is None:
        return _first_sentence(reason)
    lines = found.src.split("\n")
    text = lines[line - 1].strip() if line <= len(lines) else ""
    named = re.search(r"^\s*def\s+(\w+)", found.src, re.MULTILINE)
    where = f"line {_line_in_cell(found.src, line)} of {named[1] if named else 'its source'}"
    return f"{where}, `{text}`: {_first_sentence(reason)}"


def _without_echo(said: str) -> str:
    """What ptxas says of a text that it cannot parse, without the words that all such complaints end with.

    >>> _without_echo("Parsing error near 'ex2': syntax error")
    "Parsing error near 'ex2'"
    """
    return said.strip().removesuffix(": syntax error")


def _line_in_cell(function: str, line: int) -> int:
    """A line of a function's text, counted in the cell or file that holds it where that is known, as in a traceback."""
    for entry in tuple(linecache.cache.values()):
        text = "".join(entry[2]) if len(entry) == 4 else ""
        if function in text:
            return text.count("\n", 0, text.index(function)) + line
    return line


def _tool(problem: BaseException) -> str:
    return "ptxas refused the PTX" if type(problem).__name__ == "PTXASError" else "the backend refused it"


def _is_tritons_own(source: str | None) -> bool:
    """Whether the text of a function belongs to Triton's library: tl.zeros, tl.softmax and their like."""
    from triton.language import random, standard
    from triton.runtime.jit import JITCallable

    functions = (found for module in (standard, random) for found in vars(module).values())
    return any(isinstance(found, JITCallable) and found.src == source for found in functions)


def _first_line(problem: BaseException) -> str:
    if isinstance(problem, KeyError):
        return _first_sentence(str(problem.args[0]))
    text = str(problem).replace("dynamic_func()", "the kernel")
    return f"{_first_sentence(text) or 'no message'} ({type(problem).__name__})"


def _first_sentence(text: str) -> str:
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    wanted = [line for line in lines if "error" in line.lower()] if len(lines) > 1 else lines
    first = (wanted or lines or [""])[0]
    wrapped = re.fullmatch(r"""\w+\((['"])(.*)\1\)""", first)
    return (wrapped.group(2) if wrapped else first)[:300]

"""Plain `@triton.jit` kernels on CPU tensors, with no GPU and no driver, in Triton's interpreter.

Triton interprets a kernel only when TRITON_INTERPRET=1 was set before the kernel was defined. Here any kernel can be
interpreted, for the length of a block. What Triton's interpreter gets wrong is refused, and memory is guarded: each
tensor is run on a copy with space around it, so that an access outside is an error instead of a crash.
"""

from __future__ import annotations
import __future__

import ast
import contextlib
import inspect
import re
import textwrap
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import triton.compiler.code_generator  # noqa: F401  (it binds tl.minimum at import: that must not be a patched one)
import triton.language as tl
from triton.runtime import interpreter as engine
from triton.runtime.autotuner import Autotuner
from triton.runtime.jit import JITFunction

from gpu_utils.backends.guarded import GuardedMemory
from gpu_utils.backends.recording import replaced, resolve_grid
from gpu_utils.errors import BackendUnavailable

_REFUSED_TYPES = {"bf16": "get_bf16_ty", **{f"fp8{kind}": f"get_fp8{kind}_ty" for kind in ("e4nv", "e4b15", "e4b8")}}
_REFUSED_TYPES |= {"fp8e5": "get_fp8e5_ty", "fp8e5b16": "get_fp8e5b16_ty"}

_depth = 0


@dataclass
class _Launch:
    """What the running kernel needs: its memory, and the functions that were rewritten for it so far."""

    memory: GuardedMemory
    functions: dict[Any, Callable[..., Any]] = field(default_factory=dict)


_running: list[_Launch] = []


@contextlib.contextmanager
def interpreter() -> Iterator[None]:
    """A block in which `kernel[grid](...)` runs on CPU tensors, whichever way the kernel was defined.

    Device functions, `tl.constexpr`, heuristics and autotuned kernels work; an autotuner takes its first configuration,
    because times of an interpreter mean nothing. Programs run one after the other, so races are not seen.
    When the block ends, also by an error, Triton is as it was before. Blocks may be nested. The change is global:
    kernels that another thread launches meanwhile are interpreted too.

    Errors: BackendUnavailable for bf16 and fp8 (Triton's interpreter stores them as integers and computes wrong
    numbers), fp16 atomics, libdevice and inline assembly; OutOfBounds for an access outside every tensor argument,
    with the tensor, the element and the program. After an error the tensors are as they were before the launch.
    Pointers that are stored in tensors cannot be followed.
    """
    global _depth
    if _depth:
        yield
        return
    _depth += 1
    try:
        with contextlib.ExitStack() as stack:
            for kernels in (JITFunction, engine.InterpretedFunction):
                stack.enter_context(replaced(kernels, "run", _run))
                stack.enter_context(replaced(kernels, "__call__", _call_device_function))
            stack.enter_context(replaced(Autotuner, "run", _without_tuning(Autotuner.run)))
            stack.enter_context(replaced(Autotuner, "_bench", lambda tuner, *args, **kwargs: [1.0, 1.0, 1.0]))
            for name, method in _builder_methods(engine.InterpreterBuilder).items():
                stack.enter_context(replaced(engine.InterpreterBuilder, name, method))
            yield
    finally:
        _depth -= 1


def _run(kernel: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> None:
    """What `kernel[grid](...)` calls inside the block."""
    if warmup:
        return
    parameters = inspect.signature(kernel.fn).parameters
    _reject_unknown(kwargs, parameters)
    for hook in kernel.pre_run_hooks:
        hook(*args, **kwargs)
    given = {name: value for name, value in kwargs.items() if name in parameters}
    arguments = inspect.getcallargs(kernel.fn, *args, **given)
    sizes = (*resolve_grid(kernel, grid, args, kwargs), 1, 1)[:3]
    memory = GuardedMemory(kernel.__name__)
    guarded = {name: memory.guard(name, value) for name, value in arguments.items()}
    if refused := memory.narrow_dtypes():
        raise BackendUnavailable(
            f"{kernel.__name__} is given {refused}, and Triton's interpreter computes with its raw bits as integers; "
            "use the gpu backend, or float32 or float16 tensors"
        )
    with _patched_language(), np.errstate(all="ignore"):
        values = {
            name: value if _is_constexpr(kernel, parameters[name]) else _converted(value)
            for name, value in guarded.items()
        }
        builder = engine.interpreter_builder
        _running.append(_Launch(memory))
        try:
            body = _python_function(kernel)
            builder.set_grid_dim(*sizes)
            for index in np.ndindex(*sizes):
                memory.program = tuple(map(int, index))
                builder.set_grid_idx(*memory.program)
                body(**values)
        finally:
            _running.pop()
    memory.copy_back()


def _converted(value: Any) -> Any:
    if isinstance(value, bool):  # before Triton 3.9 its own conversion fails
        return tl.tensor(engine.TensorHandle(np.array([value]), tl.int1), tl.int1)
    return engine._implicit_cvt(value)


def _call_device_function(kernel: Any, *args: Any, **kwargs: Any) -> Any:
    """What calling a jitted function does inside the block: only from within a running kernel."""
    if not _running:
        raise RuntimeError("Cannot call @triton.jit'd outside of the scope of a kernel")
    return _python_function(kernel)(*args, **kwargs)


def _without_tuning(run: Callable[..., Any]) -> Callable[..., Any]:
    """Autotuner.run with an empty cache of its own, so that no choice made here outlives the block."""

    def run_first_configuration(tuner: Autotuner, *args: Any, **kwargs: Any) -> Any:
        cache, tuner.cache = tuner.cache, {}
        on_disk, tuner.cache_results = tuner.cache_results, False
        try:
            return run(tuner, *args, **kwargs)
        finally:
            tuner.cache, tuner.cache_results = cache, on_disk

    return run_first_configuration


def _reject_unknown(kwargs: dict[str, Any], parameters: Any) -> None:
    from triton.backends.amd.compiler import HIPOptions
    from triton.backends.nvidia.compiler import CUDAOptions

    options = {"debug", "instrumentation_mode", *CUDAOptions.__dataclass_fields__, *HIPOptions.__dataclass_fields__}
    for name in kwargs:
        if name not in parameters and name not in options:
            raise KeyError(f"Keyword argument {name} was specified but unrecognised")


def _is_constexpr(kernel: Any, parameter: inspect.Parameter) -> bool:
    annotation = parameter.annotation
    return annotation is tl.constexpr or (isinstance(annotation, str) and "constexpr" in annotation)


# --- the kernel as a Python function -------------------------------------------------------------------------------

_code: dict[Any, types.CodeType] = {}


def _python_function(kernel: Any) -> Callable[..., Any]:
    """The kernel rewritten for the interpreter, with the globals and closure that it has at this launch."""
    fn, known = kernel.fn, _running[-1].functions
    if fn in known:
        return known[fn]
    if fn not in _code:
        _code[fn] = _rewritten(kernel)
    names = {**fn.__globals__}
    if fn.__closure__:
        names |= {name: cell.cell_contents for name, cell in zip(fn.__code__.co_freevars, fn.__closure__, strict=True)}
    for name, value in names.items():
        if inspect.ismodule(value) and value.__name__.endswith("libdevice"):
            names[name] = _NoLibdevice()
    names["interpreter_semantic"] = engine.interpreter_semantic
    exec(_code[fn], names)
    known[fn] = names[fn.__name__]
    return known[fn]


def _rewritten(kernel: Any) -> types.CodeType:
    fn = kernel.fn
    source, first = (
        inspect.getsourcelines(fn) if not hasattr(kernel, "raw_src") else (kernel.raw_src, kernel.starting_line_number)
    )
    text = textwrap.dedent("".join(source))
    found = re.search(r"^def\s+\w+\s*\(", text, re.MULTILINE)
    assert found is not None
    first += text[: found.start()].count("\n")
    tree = engine.ASTTransformer().visit(ast.parse(text[found.start() :]))
    ast.fix_missing_locations(tree)
    ast.increment_lineno(tree, first - 1)
    return compile(tree, fn.__code__.co_filename, "exec", flags=__future__.annotations.compiler_flag, dont_inherit=True)


class _NoLibdevice:
    def __getattr__(self, name: str) -> Any:
        raise BackendUnavailable(f"libdevice.{name} is vendor code, which Triton's interpreter cannot run; use a GPU")


# --- the language ---------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _patched_language() -> Iterator[None]:
    """Triton's own patches of `tl` and `tl.core`, and those that it lacks."""
    modules = types.SimpleNamespace(__globals__={"tl": tl, "core": tl.core})
    scope = engine._patch_lang(modules)
    try:
        for name, member in list(vars(tl.tensor).items()):
            if isinstance(member, JITFunction):  # not a method: x.sum() would lose x
                scope.set_attr(tl.tensor, name, _bound(member))
        scope.set_attr(tl.tensor, "__index__", lambda self: int(self.handle.data.item()))  # Triton 3.6 wants old NumPy
        scope.set_attr(tl.core, "_unwrap_shape", _shape_of_numbers(tl.core._unwrap_shape))
        semantic = type(engine.interpreter_semantic)
        scope.set_attr(semantic, "arange", _arange_of_numbers(semantic.arange))
        yield
    finally:
        scope.restore()


def _bound(function: JITFunction) -> Callable[..., Any]:
    return lambda self, *args, **kwargs: function(self, *args, **kwargs)


def _number(value: Any) -> Any:
    """An integer held in a tensor, such as HALF in `HALF = BLOCK // 2`, which compiled code knows as a constant."""
    is_scalar = isinstance(value, tl.tensor) and not value.type.is_block() and value.dtype.is_int()
    return int(value.handle.data.item()) if is_scalar else value


def _shape_of_numbers(unwrap: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda shape: [_number(size) for size in unwrap(shape)]


def _arange_of_numbers(arange: Callable[..., Any]) -> Callable[..., Any]:
    def arange_of_numbers(semantic: Any, start: Any, end: Any, **kwargs: Any) -> Any:
        return arange(semantic, _number(start), _number(end), **kwargs)

    return arange_of_numbers


def _builder_methods(builder: Any) -> dict[str, Callable[..., Any]]:
    """Methods of Triton's builder with a bounds check, and refusals for what it gets wrong."""
    load, store = builder.create_masked_load, builder.create_masked_store
    swap, change = builder.create_atomic_cas, builder.create_atomic_rmw

    def checked_load(self: Any, ptrs: Any, mask: Any, *rest: Any, **options: Any) -> Any:
        _running[-1].memory.check("load", ptrs, mask.data)
        return load(self, ptrs, mask, *rest, **options)

    def checked_store(self: Any, ptrs: Any, value: Any, mask: Any, *rest: Any, **options: Any) -> Any:
        _running[-1].memory.check("store", ptrs, mask.data)
        return store(self, ptrs, value, mask, *rest, **options)

    def checked_swap(self: Any, ptrs: Any, *rest: Any) -> Any:
        _running[-1].memory.check("atomic_cas", ptrs, True)
        return swap(self, ptrs, *rest)

    def checked_change(self: Any, operation: Any, ptrs: Any, value: Any, mask: Any, *rest: Any) -> Any:
        if value.dtype.scalar == tl.float16:
            raise BackendUnavailable("Triton's interpreter has no float16 atomics; use the gpu backend, or float32")
        _running[-1].memory.check("atomic", ptrs, mask.data)
        return change(self, operation, ptrs, value, mask, *rest)

    methods: dict[str, Callable[..., Any]] = {
        "create_masked_load": checked_load,
        "create_masked_store": checked_store,
        "create_atomic_cas": checked_swap,
        "create_atomic_rmw": checked_change,
        "create_inline_asm": _refusing("inline assembly is vendor code, which Triton's interpreter cannot run"),
        "create_extern_elementwise": _refusing("libdevice is vendor code, which Triton's interpreter cannot run"),
    }
    for kind, method in _REFUSED_TYPES.items():
        methods[method] = _refusing(
            f"the kernel makes {kind} values, and Triton's interpreter computes with their raw bits as integers"
        )
    return methods


def _refusing(reason: str) -> Callable[..., Any]:
    def refuse(*_args: Any, **_kwargs: Any) -> Any:
        raise BackendUnavailable(f"{reason}; use the gpu backend")

    return refuse

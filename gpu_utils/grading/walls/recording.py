"""A record of what an answer has the GPU do, made where the answer runs, from which it can be done again elsewhere.

The answer gets inputs of the right shapes with other numbers, and its kernels are not run: a launch becomes a line of
the record, with the machine code and with what each pointer points into. What torch does to an input, or to memory that
a kernel was given, becomes a line too. So whatever an answer does with numbers by itself, with torch, in a thread, or
in another process, it does with the wrong ones: only what stands in the record is done with the right ones. Where an
answer looks at what its kernels have written, or fails, it is called once more, and they are run, with the wrong ones.

Storages have numbers: first those of the inputs, in order, then others as they come up, with their bytes at that time.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import torch
from torch.utils import _pytree

from gpu_utils.backends.recording import record_launches, replaced, trials_inside
from gpu_utils.grading import apart
from gpu_utils.grading.apart import rows_apart
from gpu_utils.grading.exercise import Inputs
from gpu_utils.grading.plain import plain
from gpu_utils.grading.watch import Watch

TENSOR = "tensor"
_LOOKS = ("aten::_local_scalar_dense", "aten::equal", "aten::is_nonzero")
NO_BYTES = -1  # the number of a storage that has none: all of them lie at address 0
MOST_LINES = 20_000
_META = ("global_scratch_size", "global_scratch_align")


class Record:
    """What is written down. `lines` are plain data; `value` is the answer's result with references for tensors.

    runs    whether launches are run here, too, with the numbers that are here
    looked  whether the answer asked for a number that a kernel may have written, and can do one thing or another by it
    """

    def __init__(self, runs: bool = False) -> None:
        self.runs, self.looked = runs, False
        self.lines: list[dict[str, Any]] = []
        self.texts: dict[str, int] = {}
        self.value: Any = None
        self.launched = 0
        self.away = 0
        self._numbers: dict[int, int] = {}
        self._gpus: list[Any] = []
        self._kept: list[torch.Tensor] = []  # so that no memory is given out twice
        self.has_launched = False

    def begin(self, inputs: Inputs) -> None:
        """Give the storages of the inputs their numbers."""
        for tensor in tensors_of(inputs):
            self._number(tensor)

    def as_data(self) -> dict[str, Any]:
        return {"lines": self.lines, "texts": list(self.texts), "value": self.value, "launched": self.launched}

    def _number(self, tensor: torch.Tensor) -> int:
        start = tensor.untyped_storage().data_ptr()
        number = self._numbers[start] = len(self._numbers)
        self._kept.append(tensor)
        return number

    def knows(self, tensor: torch.Tensor) -> bool:
        return tensor.device.type == "cpu" and tensor.untyped_storage().data_ptr() in self._numbers

    def made(self, tensor: torch.Tensor) -> None:
        """Give a storage that torch has made a number, without its bytes: torch makes it again."""
        if tensor.untyped_storage().nbytes() and not self.knows(tensor):
            self._number(tensor)

    def ref(self, tensor: torch.Tensor) -> dict[str, Any]:
        """What stands for a tensor: the number of its storage, and which view of it."""
        storage = tensor.untyped_storage()
        if storage.nbytes() and storage.data_ptr() not in self._numbers:
            number = self._number(tensor)
            raw = bytearray(ctypes.string_at(storage.data_ptr(), storage.nbytes()))
            self.write({"do": "memory", "storage": number, "bytes": torch.frombuffer(raw, dtype=torch.uint8)})
        number = self._numbers[storage.data_ptr()] if storage.nbytes() else NO_BYTES
        view = [tensor.dtype, list(tensor.shape), list(tensor.stride()), tensor.storage_offset()]
        return {TENSOR: number, "view": view}

    def write(self, line: dict[str, Any]) -> None:
        if len(self.lines) >= MOST_LINES:
            raise RuntimeError(f"more than {MOST_LINES:,} launches and copies in one call")
        self.lines.append(line)

    def rows_apart(self, rows: torch.Tensor, stride: int) -> torch.Tensor:
        """In place of `apart.rows_apart`: what it makes is far too large to be written down."""
        far = rows_apart(rows, stride)
        if far is not rows:
            of = self.ref(rows)
            self.write({"do": "apart", "storage": self._number(far), "of": of, "stride": stride})
        return far

    # --- launches ---

    def launch(
        self,
        gpu: Any,
        text: str,
        name: str | None,
        grid: tuple[int, ...],
        threads: tuple[int, ...],
        values: list[tuple[str, str, Any]],
        shared: int = 0,
        metadata: Any = None,
    ) -> Any:
        """In place of `VirtualGpu.launch`."""
        if gpu not in self._gpus:
            self._gpus.append(gpu)
        line = {
            "do": "launch",
            "gpu": self._gpus.index(gpu),
            "order": [gpu.target, gpu.order],
            "text": self.texts.setdefault(text, len(self.texts)),
            "name": name,
            "grid": list(grid),
            "threads": list(threads),
            "values": [[label, kind, self._value(value, kind)] for label, kind, value in values],
            "shared": shared,
            "meta": {each: int(getattr(metadata, each, 0) or 0) for each in _META},
            "source": self.source,
        }
        self.write(line)
        self.has_launched = True
        return SimpleNamespace(registers=0)

    source: Any = None

    def _value(self, value: Any, kind: str) -> Any:
        from gpu_utils.virtual.tensors import tensor_behind

        if kind == "tensor map":
            raw, base = value
            return {"map": raw.tobytes(), **self._pointer(base, base)}
        if hasattr(value, "data_ptr"):
            behind = tensor_behind("an argument", value)
            return None if behind is None else self._pointer(behind, value)
        return value if isinstance(value, (int, float, bytes, type(None))) else float(value)

    def _pointer(self, behind: torch.Tensor, pointer: Any) -> dict[str, Any]:
        ref = self.ref(behind)
        return {**ref, "at": int(pointer.data_ptr()) - int(behind.data_ptr())}


class _Operations(Watch):
    """Writes down what torch does to memory that the record knows."""

    def __init__(self, record: Record) -> None:
        super().__init__()
        self._record = record

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = function(*args, **kwargs)
        record = self._record
        touched = not record.away and any(map(record.knows, tensors_of((args, kwargs))))
        record.looked |= touched and record.has_launched and function._schema.name in _LOOKS
        if touched and not _only_a_view(function):
            line = {"do": "torch", "op": str(function), "args": _shown(record, args), "kwargs": _shown(record, kwargs)}
            record.write({**line, "out": _shown(record, result, made_here=True)})
        return result


def _only_a_view(function: Any) -> bool:
    return any(found.alias_info is not None and not found.alias_info.is_write for found in function._schema.returns)


def _shown(record: Record, tree: Any, made_here: bool = False) -> Any:
    def show(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            if made_here:
                record.made(value)
            return record.ref(value)
        if value is None or isinstance(value, (bool, int, float, str, torch.dtype)):
            return value
        return {"other": str(value)[:40]}  # a device, a layout, a memory format

    return _pytree.tree_map(show, tree)


def tensors_of(tree: Any) -> list[torch.Tensor]:
    """Those that are on the CPU, have elements and a storage, in order."""
    leaves = _pytree.tree_leaves(tree)
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.device.type == "cpu" and leaf.numel()]


@contextlib.contextmanager
def recording(record: Record) -> Iterator[None]:
    """A block in which launches on virtual GPUs are written down, and run where the record says so.

    An autotuner's trials are run, with the numbers that are there, and not written down.
    """
    from triton.runtime.interpreter import InterpretedFunction
    from triton.runtime.jit import JITFunction

    from gpu_utils.virtual.gpu import VirtualGpu

    truly = VirtualGpu.launch
    trying = 0

    @contextlib.contextmanager
    def trial() -> Iterator[None]:
        nonlocal trying
        trying += 1
        try:
            yield
        finally:
            trying -= 1

    def launch(gpu: Any, *args: Any, **kwargs: Any) -> Any:
        if trying:
            return truly(gpu, *args, **kwargs)
        found = record.launch(gpu, *args, **kwargs)
        return truly(gpu, *args, **kwargs) if record.runs else found

    def beside(run: Callable[..., Any]) -> Callable[..., Any]:
        def run_beside(kernel: Any, *args: Any, **kwargs: Any) -> Any:
            record.away += 1
            before, record.source = record.source, _source_of(kernel)
            try:
                return run(kernel, *args, **kwargs)
            finally:
                record.source = before
                record.away -= 1

        return run_beside

    with contextlib.ExitStack() as stack:
        launches = stack.enter_context(record_launches())
        for kernels in (JITFunction, InterpretedFunction):
            stack.enter_context(replaced(kernels, "run", beside(kernels.run)))
        stack.enter_context(replaced(VirtualGpu, "launch", launch))
        stack.enter_context(replaced(apart, "rows_apart", record.rows_apart))
        stack.enter_context(trials_inside(trial))
        stack.enter_context(_Operations(record))
        try:
            yield
        finally:
            record.launched = len(launches)


def _source_of(kernel: Any) -> Any:
    lines, first = getattr(kernel, "raw_src", None), getattr(kernel, "starting_line_number", None)
    return [list(lines), first] if isinstance(lines, (list, tuple)) and isinstance(first, int) else None


def recorded_call(call: Callable[..., Any], record: Record) -> Callable[..., Any]:
    """`Exercise.call` with a record: the result stays in the record, as references."""

    def called(answer: Callable[..., Any], inputs: Inputs) -> None:
        record.begin(inputs)
        with recording(record):
            value = call(answer, inputs)
        record.value = plain(
            value,
            lambda tensor: (
                record.ref(tensor.detach()) if tensor.device.type == "cpu" else {"stray": str(tensor.device)}
            ),
        )

    return called

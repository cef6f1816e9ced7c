"""`virtual_gpu(target)`: inside the block Triton compiles for a GPU that is not there, and its machine code runs here.

The block makes a Triton driver of our own active. A plain `kernel[grid](cpu_tensors...)` then compiles for
the target; the launcher takes the assembly text of the compiled kernel, decodes it once and executes it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import import_module
from typing import Any

import numpy as np

from gpu_utils.analytic.access import SHAPES, MemoryShape
from gpu_utils.chips.targets import TARGETS
from gpu_utils.compiler.constraints import checked_constraints
from gpu_utils.errors import BackendUnavailable, ResourceLimit, UnknownName, UnwrittenOutput
from gpu_utils.virtual.counters import Counters
from gpu_utils.virtual.machine import Program, State, run_batches
from gpu_utils.virtual.memory import Memory, Region
from gpu_utils.virtual.trace import Trace


@dataclass(frozen=True)
class Model:
    """What the executor needs to know of a target: its instruction set, limits, and the sizes of transactions.

    shared_limit: bytes of shared memory (LDS) that one block may have (TARGETS). shape: banks of shared memory and
    bytes of one global transaction as the counters report it (SHAPES, with sources).
    """

    isa: str
    lanes: int
    shared_limit: int
    shape: MemoryShape


def _model(name: str) -> Model:
    limits = TARGETS[name]
    isa = "ptx" if limits.vendor == "nvidia" else "amdgcn"
    return Model(isa, limits.lanes, limits.shared_per_block, SHAPES[name])


MODELS: dict[str, Model] = {
    name: _model(name) for name in ("sm_80", "sm_89", "sm_90", "gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201")
}
# Bytes of registers of one batch: what keeps the working rows in the caches of one core (docs/virtual-gpu.md).
BATCH_BYTES = 8 << 20
# Of all batches that are alive because they wait for each other.
MOST_BYTES = 1 << 30
MAX_WAVES = 256


@lru_cache(maxsize=256)
def decode(text: str, target: str, name: str | None) -> Program:
    """The decoded kernel; the same text is decoded once."""
    return import_module(f"gpu_utils.virtual.{MODELS[target].isa}").decode(text, target, name)


@dataclass(eq=False)
class Launch:
    """One launch: what the instruction sets read, and what it left behind.

    grid, block: (x, y, z). args: the packed parameter buffer, uint8. shared_bytes: shared memory per block.
    packet: the AMD dispatch packet (64 bytes). fresh: start from registers of zero, for a trace.
    """

    name: str
    target: str
    program: Program
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    args: np.ndarray
    memory: Memory
    counters: Counters
    shared_bytes: int
    chip: Model
    packet: np.ndarray = field(default_factory=lambda: np.zeros(64, np.uint8))
    metadata: Any = None
    text: str = ""
    fresh: bool = False


class VirtualGpu:
    """A GPU that executes compiled machine code on CPU tensors; made by `virtual_gpu`.

    target: "gfx942", "sm_80", ... order: "program" (blocks in order) or "shuffled" (by `seed`).
    races: report two programs that write different values to one address without atomics. l2: record the accesses for
    `cache.l2_traffic` (slower, and memory grows with the launch).
    launches: every Launch since the block was entered; counters: those of the last one.
    """

    def __init__(
        self, target: str, order: str = "program", seed: int = 0, races: bool = True, l2: bool = False
    ) -> None:
        if target not in MODELS:
            raise UnknownName("virtual GPU", target, list(MODELS))
        if order not in ("program", "shuffled"):
            raise UnknownName("order", order, ["program", "shuffled"])
        self.target, self.model, self.order, self.races, self.l2 = target, MODELS[target], order, races, l2
        self.random = np.random.default_rng(seed)
        self.launches: list[Launch] = []
        self.registered: list[tuple[str, Any]] = []
        self.tracer: Trace | None = None

    @property
    def counters(self) -> Counters:
        """Counters of the last launch."""
        return self.last.counters

    @property
    def last(self) -> Launch:
        if not self.launches:
            raise BackendUnavailable("nothing was launched on this virtual GPU yet; launch a kernel first")
        return self.launches[-1]

    @property
    def listing(self) -> list[tuple[tuple[str, int] | None, str, int]]:
        """Of the last launch, in program order: (source line, instruction text, how often a wave executed it)."""
        per_op = self.counters.per_op()
        return [(op.line, op.text, per_op[op.index][0]) for op in self.last.program.ops]

    @contextmanager
    def trace(self, program: tuple[int, int, int] = (0, 0, 0), wave: int = 0, limit: int = 20_000) -> Iterator[Trace]:
        """Record every instruction that one wave of one program executes in the launches inside the block."""
        before, self.tracer = self.tracer, Trace(program, wave, limit)
        try:
            yield self.tracer
        finally:
            self.tracer = before

    def register(self, name: str, tensor: Any) -> None:
        """Make a tensor's memory accessible that a kernel reaches through stored pointers."""
        self.registered.append((name, tensor))

    def expect_written(self, tensor: Any, name: str = "the output") -> None:
        """Raise UnwrittenOutput when the last launch left an element of a contiguous tensor unwritten."""
        missing = self.unwritten(tensor)
        if missing.size:
            raise UnwrittenOutput(
                f"the launch of {self.last.name} left {missing.size} of {tensor.numel()} elements of {name} unwritten, "
                f"the first at flat index {int(missing[0])}; is the grid large enough and the mask right?"
            )

    def unwritten(self, tensor: Any) -> np.ndarray:
        """Flat indices of a contiguous tensor that no store of the last launch wrote. Needs races=True."""
        start, size = tensor.data_ptr(), tensor.element_size()
        for region in self.last.memory.regions:
            if region.start <= start < region.start + max(region.size, 1):
                if region.writer is None:
                    return np.arange(tensor.numel())
                first = (start - region.start) // region.grain
                per = max(1, size // region.grain)
                if size < region.grain:
                    marks = np.repeat(region.writer, region.grain // size)[(start - region.start) // size :]
                else:
                    marks = region.writer[first:]
                return np.flatnonzero(marks[: tensor.numel() * per].reshape(-1, per).min(axis=1) == 0)
        return np.arange(tensor.numel())

    def load(self, text: Any) -> Any:
        """Assembly text (PTX or AMDGCN), or what `compile_cpp` returned, as a LoadedModule with kernels to launch."""
        from gpu_utils.virtual.asm import LoadedModule

        return LoadedModule(self, text)

    def launch(
        self,
        text: str,
        name: str | None,
        grid: tuple[int, ...],
        threads: tuple[int, ...],
        values: list[tuple[str, str, Any]],
        shared: int = 0,
        metadata: Any = None,
    ) -> Launch:
        """Execute a kernel of an assembly text to its end.

        grid: blocks in x, y, z. threads: threads of a block in x, y, z. values: (name, type, value) per argument, the
        type Triton's ("*fp32", "i32", "fp32", ...), a tensor stands for a pointer. shared: bytes of dynamic shared
        memory.
        """
        program = decode(text, self.target, name)
        shape: Any = (*grid, 1, 1)[:3]
        block: Any = (*threads, 1, 1)[:3]
        shared_bytes = shared + program.info.get("static_shared", 0)
        if shared_bytes > self.model.shared_limit:
            raise ResourceLimit(
                f"kernel {program.name} needs {shared_bytes} bytes of shared memory (LDS) per block; {self.target} has "
                f"{self.model.shared_limit}; take smaller tiles or fewer stages"
            )
        memory = Memory(self.races)
        for label, tensor in self.registered:
            _add_tensor(memory, label, tensor)
        args = _pack(program, values, memory)
        _scratch(program, len(values), metadata, shape, args, memory)
        memory.add_array("the kernel's arguments", args, "args")
        constants = program.info.get("data")
        if isinstance(constants, np.ndarray) and constants.size:
            memory.add_array("the constants of the kernel", constants, "constant")
        launch = Launch(
            program.name, self.target, program, shape, block, args, memory,
            Counters(program, self.model.shape, self.l2), shared_bytes, self.model, metadata=metadata, text=text,
            fresh=self.tracer is not None,
        )  # fmt: skip
        _dispatch_packet(launch)
        memory.add_array("the dispatch packet", launch.packet, "args")
        _hidden_arguments(launch)
        self.launches.append(launch)
        self._run(launch)
        return launch

    def _run(self, launch: Launch) -> None:
        program, (x, y, z) = launch.program, launch.grid
        total = x * y * z
        threads = launch.block[0] * launch.block[1] * launch.block[2]
        waves = -(-threads // program.lanes)
        order = np.arange(total)
        if self.order == "shuffled":
            self.random.shuffle(order)
        traced_lock = self.tracer is not None and program.locks
        step = 1 if traced_lock else blocks_per_batch(program, waves, launch.shared_bytes)
        new_state = import_module(f"gpu_utils.virtual.{self.model.isa}").new_state

        def states() -> Iterator[State]:
            for start in range(0, total, step):
                linear = order[start : start + step]
                ids = np.stack([linear % x, linear // x % y, linear // (x * y)], axis=1).astype(np.int64)
                state = new_state(program, launch, ids, waves)
                state.first_block = start
                if threads % program.lanes:
                    _drop_idle_lanes(state, threads)
                if self.tracer is not None:
                    self.tracer.begin(state)
                launch.counters.launched_blocks += len(linear)
                launch.counters.launched_waves += len(linear) * waves
                yield state

        batch_bytes = step * waves * bytes_per_wave(program, waves, launch.shared_bytes)
        run_batches(states(), self.tracer, MOST_BYTES // batch_bytes)


def blocks_per_batch(program: Program, waves: int, shared_bytes: int) -> int:
    """How many blocks run side by side: as many as keep registers and shared memory in cache."""
    fit = min(MAX_WAVES, max(1, BATCH_BYTES // bytes_per_wave(program, waves, shared_bytes)))
    return max(1, fit // waves)


def bytes_per_wave(program: Program, waves: int, shared_bytes: int) -> int:
    return max(1, program.info["registers"]) * program.lanes * 4 + shared_bytes // waves


def _drop_idle_lanes(state: State, threads: int) -> None:
    """A block whose threads do not fill its last wave: those lanes never run."""
    thread = state.wave_in_block[:, None] * state.lanes + np.arange(state.lanes)
    state.disable(thread >= threads)


def _add_tensor(memory: Memory, name: str, tensor: Any) -> Region | None:
    storage = tensor.untyped_storage()
    if storage.nbytes() == 0:
        return None
    return memory.add(Region(name, storage.data_ptr(), storage.nbytes(), "tensor", tensor))


_CODES = {
    "i1": "<B", "u1": "<B", "i8": "<b", "u8": "<B", "i16": "<h", "u16": "<H", "i32": "<i", "u32": "<I", "i64": "<q",
    "u64": "<Q", "fp16": "<e", "fp32": "<f", "f32": "<f", "fp64": "<d",
}  # fmt: skip


def _bytes(kind: str, value: Any, size: int, name: str, memory: Memory) -> bytes:
    """One argument as it lies in the parameter buffer."""
    if hasattr(value, "data_ptr"):
        if hasattr(value, "untyped_storage"):
            _add_tensor(memory, name, value)
        return int(value.data_ptr()).to_bytes(8, "little")
    if kind == "bytes":
        return value
    if kind == "tensor map":
        _add_tensor(memory, name, value[1])
        return value[0].tobytes()
    if kind.startswith("*") or value is None:
        return int(value or 0).to_bytes(8, "little")
    if kind == "bf16":
        return struct.pack("<f", float(value))[2:]
    code = _CODES.get(kind)
    if code is None:
        raise UnknownName("argument type", kind, list(_CODES))
    if code[1] in "efd":
        return struct.pack(code, float(value))
    bits = 8 * struct.calcsize(code)
    return (int(value) & ((1 << bits) - 1)).to_bytes(bits // 8, "little")


def _pack(program: Program, values: list[tuple[str, str, Any]], memory: Memory) -> np.ndarray:
    """The parameter buffer; parameters that the caller does not know (scratch pointers) are zero."""
    params = program.info["params"]
    buffer = np.zeros(-(-max(program.info["param_bytes"], 8) // 16) * 16 + 256, np.uint8)
    if len(values) > len(params):
        raise ResourceLimit(f"kernel {program.name} takes {len(params)} arguments, {len(values)} were given")
    for (offset, size), (name, kind, value) in zip(params, values, strict=False):
        raw = _bytes(kind, value, size, name, memory)[:size]
        buffer[offset : offset + len(raw)] = np.frombuffer(raw, np.uint8)
    return buffer


def _scratch(
    program: Program, given: int, metadata: Any, grid: tuple[int, ...], args: np.ndarray, memory: Memory
) -> None:
    """The workspace that Triton's compiler asks for: its pointer is the parameter after those of the source."""
    size = int(getattr(metadata, "global_scratch_size", 0) or 0) * int(np.prod(grid))
    if size:
        align = int(getattr(metadata, "global_scratch_align", 1))
        raw = np.zeros(size + align, np.uint8)
        region = memory.add_array("the compiler's scratch memory", raw[-raw.ctypes.data % align :][:size], "scratch")
        offset = program.info["params"][given][0]
        args[offset : offset + 8] = np.frombuffer(region.start.to_bytes(8, "little"), np.uint8)


def _dispatch_packet(launch: Launch) -> None:
    """The AMD dispatch packet of the HSA specification, for code that reads the block size from it."""
    sizes = [launch.grid[i] * launch.block[i] for i in range(3)]
    raw = struct.pack("<HHHHHHIIIII", 2, 3, *launch.block, 0, *sizes, 0, launch.shared_bytes)
    launch.packet[: len(raw)] = np.frombuffer(raw, np.uint8)


def _hidden_arguments(launch: Launch) -> None:
    """Implicit AMD kernel arguments: block counts, block sizes, remainders, grid dimensions."""
    values = {
        **{f"hidden_block_count_{axis}": launch.grid[i] for i, axis in enumerate("xyz")},
        **{f"hidden_group_size_{axis}": launch.block[i] for i, axis in enumerate("xyz")},
        "hidden_grid_dims": 3,
    }
    for offset, size, kind in launch.program.info.get("hidden", []):
        raw = int(values.get(kind, 0)).to_bytes(8, "little")[:size]
        launch.args[offset : offset + size] = np.frombuffer(raw, np.uint8)


# Triton's side


def _tensor_map(value: Any, meta: dict[str, Any]) -> np.ndarray:
    """A host-side tensor descriptor as the 128 bytes that the virtual GPU reads; Triton lists the slowest first."""
    from gpu_utils.virtual.ptx import tensor

    strides = [int(s) * meta["elem_size"] for s in value.strides[:-1]]
    element = tensor.TF32 if getattr(value, "round_f32_to_tf32", False) else meta["elem_type"]
    return tensor.encode(
        value.base.data_ptr(), list(value.shape)[::-1], strides[::-1], list(meta["block_size"])[::-1], element,
        meta["swizzle"], fill=int(value.padding == "nan"),
    )  # fmt: skip


def _flatten(
    signature: Any, value: Any, name: str, out: list[tuple[str, str, Any]], maps: list[dict[str, Any]]
) -> None:
    """Arguments as the compiled kernel takes them: tuples opened, constexpr dropped, descriptors taken apart.

    maps: Triton's notes on the descriptors that become tensor maps, in order; used up.
    """
    if isinstance(signature, (tuple, list)):
        for i, (part, item) in enumerate(zip(signature, value, strict=True)):
            _flatten(part, item, f"{name}[{i}]", out, maps)
    elif signature == "constexpr":
        return
    elif isinstance(signature, str) and signature.startswith("tensordesc") and maps:
        out.append((name, "tensor map", (_tensor_map(value, maps.pop(0)), value.base)))
        out += [(name, "i32", v) for v in value.shape] + [(name, "i64", v) for v in value.strides]
    elif isinstance(signature, str) and signature.startswith("tensordesc"):
        kind = "*" + signature[signature.index("<") + 1 : signature.index("[")]
        out.append((name, kind, value.base))
        out += [(name, "i64", v) for v in (*value.shape, *value.strides)]
        out += [(name, "i1", value.padding == "nan")]
        if hasattr(value, "round_f32_to_tf32"):
            out += [(name, "i1", value.round_f32_to_tf32)]
        out += [(name, "i32", v) for v in value.shape] + [(name, "i64", v) for v in value.strides]
    else:
        out.append((name, signature, value))


@dataclass(frozen=True)
class _Loaded:
    """What Triton holds as the function of a compiled kernel."""

    name: str
    text: str


class _Launcher:
    """Called by Triton for every launch."""

    def __init__(self, source: Any, metadata: Any) -> None:
        self.metadata = metadata
        self.names = list(source.fn.arg_names) if hasattr(source, "fn") else []
        self.signature = list(source.signature.values())

    def __call__(
        self, x: int, y: int, z: int, stream: Any, function: _Loaded, packed: Any, launch_metadata: Any,
        enter: Any, leave: Any,
        *args: Any,
    ) -> None:  # fmt: skip
        gpu = active_gpu()
        if x * y * z == 0:
            return
        values: list[tuple[str, str, Any]] = []
        names = self.names or [f"argument {i}" for i in range(len(args))]
        maps = list(getattr(self.metadata, "tensordesc_meta", None) or [])
        for name, signature, value in zip(names, self.signature, args, strict=False):
            _flatten(signature, value, name, values, maps)
        if enter is not None:
            enter(launch_metadata)
        threads = self.metadata.num_warps * gpu.model.lanes
        gpu.launch(function.text, function.name, (x, y, z), (threads,), values, self.metadata.shared, self.metadata)
        if leave is not None:
            leave(launch_metadata)


class _Utils:
    """The part of a Triton driver that loads binaries; here it finds the assembly text beside them."""

    def __init__(self, target: str) -> None:
        self.target = target
        self.group: dict[str, str] = {}

    def remember(self, module: Any, function: Any, name: str, group: dict[str, str], key: str) -> None:
        """Triton's hook before loading: the files of the kernel."""
        self.group = group

    def load_binary(self, name: str, kernel: bytes, shared: int, device: int) -> tuple[Any, _Loaded, int, int, int]:
        suffix = ".ptx" if MODELS[self.target].isa == "ptx" else ".amdgcn"
        path = next(path for file, path in self.group.items() if file.endswith(suffix))
        with open(path) as file:
            text = file.read()
        program = decode(text, self.target, name)
        notes = program.info.get("notes", {})
        return None, _Loaded(name, text), notes.get("vgpr_count", 0), notes.get("vgpr_spill_count", 0), 1024

    def get_device_properties(self, device: int) -> dict[str, Any]:
        model = MODELS[self.target]
        return {
            "max_shared_mem": model.shared_limit, "multiprocessor_count": 1, "warpSize": model.lanes,
            "arch": self.target,
            "max_num_regs": 65536, "sm_clock_rate": 0, "mem_clock_rate": 0, "mem_bus_width": 0,
        }  # fmt: skip


def active_gpu() -> VirtualGpu:
    """The virtual GPU of the innermost `with virtual_gpu(...)`. Raises BackendUnavailable outside of one."""
    import triton

    gpu = None
    with suppress(RuntimeError):  # Triton has no driver at all on a machine without a GPU
        gpu = getattr(triton.runtime.driver.active, "gpu", None)
    if gpu is None:
        raise BackendUnavailable("no virtual GPU is active; launch this kernel inside `with virtual_gpu(...)`")
    return gpu


def _benchmark(call: Callable[[], Any], quantiles: Any = None, **_: Any) -> Any:
    """For @triton.autotune: predicted cycles on a virtual GPU (run once), time on a real one."""
    import triton

    gpu = getattr(triton.runtime.driver.active, "gpu", None)
    if gpu is None:
        return triton.testing.do_bench(call, quantiles=quantiles)
    from gpu_utils.virtual.predict import predicted_cycles

    before = len(gpu.launches)
    call()
    cycles = sum(predicted_cycles(launch) for launch in gpu.launches[before:])
    return cycles if quantiles is None else [cycles] * len(quantiles)


@lru_cache(maxsize=1)
def _driver_class() -> type:
    """The Triton driver; made late, so that importing this module does not import Triton."""
    import torch
    from triton.backends.compiler import GPUTarget
    from triton.backends.driver import DriverBase

    class VirtualDriver(DriverBase):
        def __init__(self, gpu: VirtualGpu) -> None:
            self.gpu = gpu
            self.launcher_cls = _Launcher
            self.utils = _Utils(gpu.target)
            # Triton keeps compiled kernels by device number: one for each kind of virtual chip
            self.number = 1000 + list(MODELS).index(gpu.target)

        @classmethod
        def is_active(cls) -> bool:
            return False

        def get_current_target(self) -> Any:
            if self.gpu.model.isa == "ptx":
                return GPUTarget("cuda", int(self.gpu.target[3:]), 32)
            return GPUTarget("hip", self.gpu.target, self.gpu.model.lanes)

        def get_current_device(self) -> int:
            return self.number

        def set_current_device(self, device: int) -> None:
            pass

        def get_current_stream(self, device: int | None = None) -> int:
            return 0

        def get_active_torch_device(self) -> Any:
            return torch.device("cpu")

        def map_python_to_cpp_type(self, ty: str) -> str:
            return ty

        def get_benchmarker(self) -> Any:
            return _benchmark

        def get_empty_cache_for_benchmark(self) -> Any:
            return torch.empty(0)

        def clear_cache(self, cache: Any) -> None:
            pass

        def get_device_interface(self) -> Any:
            return torch.cpu

    return VirtualDriver


@contextmanager
def virtual_gpu(
    target: str, order: str = "program", seed: int = 0, races: bool = True, l2: bool = False
) -> Iterator[VirtualGpu]:
    """Inside the block, `kernel[grid](cpu_tensors...)` compiles for `target` and executes its machine code on this CPU.

    target: one of MODELS. order: "program", or "shuffled": blocks in an order drawn from `seed`. races: report
    two programs that write different values to one address. l2: record the accesses for `cache.l2_traffic`. Leaving the
    block restores the driver that was active, also after an error. Yields a VirtualGpu with its launches' counters.
    Raises UnknownName, UnsupportedInstruction, OutOfBounds, Race and the other errors of a virtual GPU.
    """
    import triton
    from triton import knobs

    gpu = VirtualGpu(target, order, seed, races, l2)
    driver = _driver_class()(gpu)
    config = triton.runtime.driver
    before = getattr(config, "_active", None)
    hook = driver.utils.remember
    knobs.runtime.kernel_load_start_hook.add(hook)
    config.set_active(driver)
    try:
        with checked_constraints():
            yield gpu
    finally:
        config.set_active(before)
        knobs.runtime.kernel_load_start_hook.remove(hook)

"""The GPU object: it launches decoded kernels on CPU tensors, batch by batch, and keeps what each launch left."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from gpu_utils.analytic.access import SHAPES
from gpu_utils.compiler.cpp_module import CppModule
from gpu_utils.errors import BackendUnavailable, BadArgument, ResourceLimit, UnknownName, UnwrittenOutput
from gpu_utils.virtual.arguments import add_scratch, pack
from gpu_utils.virtual.asm import LoadedModule
from gpu_utils.virtual.counters import Counters
from gpu_utils.virtual.global_memory import Memory
from gpu_utils.virtual.global_order import GlobalOrder, waits_for_others
from gpu_utils.virtual.isa import Launch
from gpu_utils.virtual.machine import Program, State, run_batches
from gpu_utils.virtual.models import MODELS, decode, isa_of
from gpu_utils.virtual.regions import Region
from gpu_utils.virtual.sanitize.init import Unwritten
from gpu_utils.virtual.sanitize.tools import chosen
from gpu_utils.virtual.sanitize.watch import Watch, watched
from gpu_utils.virtual.tensors import add_tensor, tensor_behind
from gpu_utils.virtual.trace import Trace

# Bytes of registers of one batch, and its waves: fewer lose time to Python, more to the caches (docs/virtual-gpu.md).
BATCH_BYTES = 32 << 20
# Of all batches that are alive because they wait for each other.
MOST_BYTES = 1 << 30
MAX_WAVES = 512
# Of the shadow that racecheck keeps of a batch's shared memory.
SHADOW_BYTES = 256 << 20
# What `watch_shared` adds: instruction set -> the sanitizers of lanes that run in any order.
LANES = {"ptx": frozenset({"lockstep"}), "amdgcn": frozenset({"turns"})}


class VirtualGpu:
    """A GPU that executes compiled machine code on CPU tensors; made by `virtual_gpu`.

    target: "gfx942", "sm_80", ... order: "program" (blocks in order) or "shuffled" (by `seed`).
    races: report two programs that write different values to one address without atomics. l2: record the accesses for
    `cache.l2_traffic` (slower, and memory grows with the launch). strict: a view may be accessed, not all of the tensor
    that it is a view of. step_limit: rounds of a loop after which the launch ends with StepLimit; None: never.
    sanitize: names of sanitizers (`sanitize.tools.TOOLS`), or True for those that cost little.
    cuda: whether `virtual_gpu(target, cuda=True)` made it: Triton's kernels then take tensors on "cuda" only.
    behind: of a launch's arguments, the memory behind the addresses among them; none without cuda.
    launches: every Launch since the block was entered; counters: those of the last one.
    """

    def __init__(
        self,
        target: str,
        order: str = "program",
        seed: int = 0,
        races: bool = True,
        l2: bool = False,
        strict: bool = False,
        step_limit: int | None = None,
        sanitize: bool | str | Collection[str] = False,
    ) -> None:
        if order not in ("program", "shuffled"):
            raise UnknownName("order", order, ["program", "shuffled"])
        self.target, self.model, self.order, self.races, self.l2 = target, MODELS[target], order, races, l2
        self.strict, self.step_limit, self.sanitize = strict, step_limit, chosen(sanitize)
        self.random = np.random.default_rng(seed)
        self.launches: list[Launch] = []
        self.registered: list[tuple[str, Any]] = []
        self.tracer: Trace | None = None
        self.poison = Unwritten() if "initcheck" in self.sanitize else None
        self.cuda = False
        self.behind: Callable[[list[tuple[str, str, Any]]], Iterable[Region]] = lambda values: ()

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

    @contextmanager
    def watch_shared(self, all_meet: bool = False) -> Iterator[None]:
        """A block whose launches raise Race where a barrier is missing between two waves that share a byte (slower).

        It is racecheck, and on NVIDIA lockstep. all_meet: and MissedBarrier where a thread of a block does not come to
        all of its barriers.
        """
        before = self.sanitize
        barriers = {"barriers"} if all_meet else set()  # the half of synccheck
        self.sanitize = before | {"racecheck"} | LANES[isa_of(self.target).NAME] | barriers
        try:
            yield
        finally:
            self.sanitize = before

    def register(self, name: str, tensor: Any) -> None:
        """Make a CPU tensor accessible that kernels reach through pointers in memory, for all launches to come."""
        found = tensor_behind(name, tensor) if hasattr(tensor, "data_ptr") else None
        if found is None:
            raise BadArgument(f"register({name!r}, ...) takes a torch tensor on the CPU, not a {type(tensor).__name__}")
        self.registered.append((name, found))

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
            if region.log is not None and region.start <= start < region.start + max(region.size, 1):
                return region.log.unwritten(start, size, tensor.numel())
        return np.arange(tensor.numel())

    def load(self, text: str | CppModule) -> LoadedModule:
        """Assembly text (PTX or AMDGCN), or what `compile_cpp` returned, as a LoadedModule with kernels to launch."""
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
        return self.execute(decode(text, self.target, name), grid, threads, values, shared, metadata, text)

    def execute(
        self,
        program: Program,
        grid: tuple[int, ...],
        threads: tuple[int, ...],
        values: list[tuple[str, str, Any]],
        shared: int = 0,
        metadata: Any = None,
        text: str = "",
    ) -> Launch:
        """The same for a kernel that is decoded already. text: what it was decoded from."""
        if self.sanitize:
            program = watched(program, self.sanitize)
        shape: Any = (*grid, 1, 1)[:3]
        block: Any = (*threads, 1, 1)[:3]
        shared_bytes = shared + program.info.static_shared
        if shared_bytes > self.model.shared_per_block:
            raise ResourceLimit(
                f"kernel {program.name} needs {shared_bytes} bytes of shared memory (LDS) per block; {self.target} has "
                f"{self.model.shared_per_block}; take smaller tiles or fewer stages"
            )
        memory = Memory(self.races, self.strict)
        if self.races and waits_for_others(program):
            memory.order = GlobalOrder(math.prod(shape))
        with memory.gathering():
            for label, tensor in self.registered:
                add_tensor(memory, label, tensor)
            args = pack(program, values, memory)
            for region in self.behind(values):
                memory.add(region)
            add_scratch(program, len(values), metadata, shape, args, memory)
            memory.add_array("the kernel's arguments", args, "args")
            if program.info.data.size:
                memory.add_array("the constants of the kernel", program.info.data, "constant")
        if self.poison is not None:
            memory.look_for(self.poison)
        launch = Launch(
            program.name,
            self.target,
            program,
            shape,
            block,
            args,
            memory,
            Counters(program, SHAPES[self.target], self.l2),
            shared_bytes,
            self.model,
            metadata=metadata,
            text=text,
            fresh=self.tracer is not None,
        )
        isa_of(self.target).prepare(launch)
        if self.launches:
            self.launches[-1].memory.forget()
        self.launches.append(launch)
        self._run(launch)
        memory.forget_readers()
        return launch

    def _run(self, launch: Launch) -> None:
        program, (x, y, z) = launch.program, launch.grid
        total = x * y * z
        threads = launch.block[0] * launch.block[1] * launch.block[2]
        waves = -(-threads // program.lanes)
        order = np.arange(total)
        if self.order == "shuffled":
            self.random.shuffle(order)
        alone = (self.tracer is not None or self.sanitize) and program.locks
        step = 1 if alone else blocks_per_batch(program, waves, launch.shared_bytes)
        if "racecheck" in self.sanitize:  # a writer for every entry, and a reader for each wave
            step = min(step, max(1, SHADOW_BYTES // max(1, launch.shared_bytes * (1 + 2 * waves))))

        def states() -> Iterator[State]:
            for start in range(0, total, step):
                linear = order[start : start + step]
                ids = np.empty((len(linear), 3), np.int64)
                rows, ids[:, 0] = np.divmod(linear, x)
                ids[:, 2], ids[:, 1] = np.divmod(rows, y)
                state = isa_of(self.target).new_state(program, launch, ids, waves)
                state.first_block = start
                if threads % program.lanes:
                    _drop_idle_lanes(state, threads)
                if self.sanitize:
                    state.watch = Watch(state, isa_of(self.target).NAME, self.sanitize)
                if self.tracer is not None:
                    self.tracer.begin(state)
                launch.counters.launched_blocks += len(linear)
                launch.counters.launched_waves += len(linear) * waves
                yield state

        batch_bytes = step * waves * bytes_per_wave(program, waves, launch.shared_bytes)
        run_batches(states(), self.tracer, MOST_BYTES // batch_bytes, self.step_limit)


def blocks_per_batch(program: Program, waves: int, shared_bytes: int) -> int:
    """How many blocks run side by side: as many as keep registers and shared memory in cache."""
    fit = min(MAX_WAVES, max(1, BATCH_BYTES // bytes_per_wave(program, waves, shared_bytes)))
    return max(1, fit // waves)


def bytes_per_wave(program: Program, waves: int, shared_bytes: int) -> int:
    return max(1, program.info.registers) * program.lanes * 4 + shared_bytes // waves


def _drop_idle_lanes(state: State, threads: int) -> None:
    """A block whose threads do not fill its last wave: those lanes never run."""
    thread = state.wave_in_block[:, None] * state.lanes + np.arange(state.lanes)
    state.disable(thread >= threads)

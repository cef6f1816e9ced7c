"""`virtual_gpu(target)`: inside the block Triton compiles for a GPU that is not there, and its machine code runs here.

The block makes a Triton driver of our own active. A plain `kernel[grid](cpu_tensors...)` then compiles for
the target; the launcher takes the assembly text of the compiled kernel, decodes it once and executes it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from gpu_utils.chips.caches import L2_OF_TARGET
from gpu_utils.compiler.constraints import checked_constraints
from gpu_utils.compiler.cubin import registers_and_stack
from gpu_utils.errors import BackendUnavailable
from gpu_utils.virtual.amdgcn.info import AmdInfo
from gpu_utils.virtual.arguments import flatten
from gpu_utils.virtual.benchmarks import DeviceInterface, predicted_benchmarks
from gpu_utils.virtual.gpu import VirtualGpu
from gpu_utils.virtual.machine.source import lend_source
from gpu_utils.virtual.models import MODELS, decode, isa_of
from gpu_utils.virtual.sanitize.init import Unwritten


@dataclass(frozen=True)
class _Loaded:
    """What Triton holds as the function of a compiled kernel."""

    name: str
    text: str
    registers: int
    stack: int


class _Launcher:
    """Called by Triton for every launch."""

    def __init__(self, source: Any, metadata: Any) -> None:
        self.metadata = metadata
        self.names = list(source.fn.arg_names) if hasattr(source, "fn") else []
        self.signature = list(source.signature.values())
        self.function = getattr(source, "fn", None)

    def __call__(
        self,
        x: int,
        y: int,
        z: int,
        stream: Any,
        function: _Loaded,
        packed: Any,
        launch_metadata: Any,
        enter: Any,
        leave: Any,
        *args: Any,
    ) -> None:
        gpu = active_gpu()
        if x * y * z == 0:
            return
        values: list[tuple[str, str, Any]] = []
        names = self.names or [f"argument {i}" for i in range(len(args))]
        maps = list(getattr(self.metadata, "tensordesc_meta", None) or [])
        for name, signature, value in zip(names, self.signature, args, strict=False):
            flatten(signature, value, name, values, maps)
        if enter is not None:
            enter(launch_metadata)
        if self.function is not None:
            lend_source(
                decode(function.text, gpu.target, function.name).ops,
                self.function.raw_src,
                self.function.starting_line_number,
            )
            self.function = None
        threads = self.metadata.num_warps * gpu.model.lanes
        grid, meta = (x, y, z), self.metadata
        launch = gpu.launch(function.text, function.name, grid, (threads,), values, meta.shared, meta)
        launch.registers, launch.stack = function.registers, function.stack
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

    def load_binary(self, name: str, kernel: bytes, shared: int, device: int) -> tuple[_Loaded, _Loaded, int, int, int]:
        """(module, function, registers, spilled words, most threads); Triton loads again while the module is None."""
        suffix = isa_of(self.target).NAME
        path = next(path for file, path in self.group.items() if file.endswith(f".{suffix}"))
        with open(path) as file:
            text = file.read()
        info = decode(text, self.target, name).info
        registers, spills = info.compiled_registers, info.spills
        stack = info.scratch if isinstance(info, AmdInfo) else 0
        if isa_of(self.target).NAME == "ptx":  # ptxas allots what PTX only names; Triton counts spills in words
            registers, stack = registers_and_stack(kernel, name) if kernel else (0, 0)
            spills = stack // 4
        loaded = _Loaded(name, text, registers, stack)
        return loaded, loaded, registers, spills, info.most_threads

    def get_device_properties(self, device: int) -> dict[str, Any]:
        """What Triton's drivers of both vendors give, of the chip that stands for the target; 0: no source is kept.

        The number of multiprocessors, where no source has it, is the stand-in of `chips.caches.DEFAULTS`.

        On RDNA a multiprocessor is a WGP of two CUs. CDNA reports half of its vector registers, the part that is no
        AGPRs (Triton's fused-softmax tutorial doubles it).
        """
        row = MODELS[self.target]
        registers = row.registers * row.lanes * row.simds
        units = L2_OF_TARGET[self.target].sizes.units
        return {
            "max_shared_mem": row.shared_per_block,
            "max_num_regs": registers // 2 if row.family == "gfx9" else registers,
            "multiprocessor_count": units // 2 if row.family in ("gfx11", "gfx12") else units,
            "max_threads_per_sm": row.waves_per_unit * row.lanes,
            "warpSize": row.lanes,
            "arch": self.target,
            "cooperativeLaunch": 1,
            "sm_clock_rate": 0,
            "mem_clock_rate": 0,
            "mem_bus_width": 0,
        }


def active_gpu() -> VirtualGpu:
    """The virtual GPU of the innermost `with virtual_gpu(...)`. Raises BackendUnavailable outside of one."""
    import triton

    gpu = None
    with suppress(RuntimeError):  # Triton has no driver at all on a machine without a GPU
        gpu = getattr(triton.runtime.driver.active, "gpu", None)
    if gpu is None:
        raise BackendUnavailable("no virtual GPU is active; launch this kernel inside `with virtual_gpu(...)`")
    return gpu


@lru_cache(maxsize=1)
def _driver_class() -> type:
    """The Triton driver; made late, so that importing this module does not import Triton."""
    import torch
    import triton.testing
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
            return GPUTarget(*self.gpu.model.for_triton)

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
            return triton.testing.do_bench

        def get_empty_cache_for_benchmark(self) -> Any:
            return torch.empty(0)

        def clear_cache(self, cache: Any) -> None:
            pass

        def get_device_interface(self) -> Any:
            return DeviceInterface(self.gpu)

    return VirtualDriver


@contextmanager
def _without_ptxas() -> Iterator[None]:
    """What Triton compiles for NVIDIA in the block has an empty cubin, and is kept apart from what has one."""
    from triton import knobs

    def leave_out(_backend: Any = None, stages: dict[str, Any] | None = None, *_: Any) -> tuple[str, str] | None:
        if stages is None:  # Triton asks what this adds to the keys of its caches
            return "without ptxas", "without ptxas"
        stages["cubin"] = lambda ptx, metadata: b""
        return None

    before = knobs.runtime.add_stages_inspection_hook
    knobs.runtime.add_stages_inspection_hook = leave_out
    try:
        yield
    finally:
        knobs.runtime.add_stages_inspection_hook = before


def _filled(unwritten: Unwritten) -> AbstractContextManager[Any]:
    """A block in which torch's allocations are filled for initcheck; made late, as it imports torch."""
    from gpu_utils.virtual.sanitize.allocations import Allocations

    return Allocations(unwritten)


@contextmanager
def virtual_gpu(
    target: str,
    order: str = "program",
    seed: int = 0,
    races: bool = True,
    l2: bool = False,
    strict: bool = False,
    step_limit: int | None = None,
    ptxas: bool = True,
    sanitize: bool | str | Collection[str] = False,
) -> Iterator[VirtualGpu]:
    """Inside the block, `kernel[grid](cpu_tensors...)` compiles for `target` and executes its machine code on this CPU.

    target: one of MODELS. order: "program", or "shuffled": blocks in an order drawn from `seed`. races: report
    programs that depend on each other's order. l2: record the accesses for `cache.l2_traffic`. strict: an access
    outside every view that was passed is OutOfBounds, also when it stays in the tensor of the view. step_limit: a loop
    that goes round more often ends the launch with StepLimit, which names it; None: no limit. ptxas: whether it is run
    on what is compiled for NVIDIA; without it a kernel has 0 registers there. sanitize: sanitizers by name, see
    docs/virtual-gpu.md, or True. Leaving the block restores the driver
    that was active, also after an error. Yields a VirtualGpu with its launches' counters.
    Raises UnknownName, UnsupportedInstruction, OutOfBounds, Race and the other errors of a virtual GPU.
    """
    import triton
    from triton import knobs

    gpu = VirtualGpu(target, order, seed, races, l2, strict, step_limit, sanitize)
    left_out = nullcontext() if ptxas or isa_of(target).NAME != "ptx" else _without_ptxas()
    driver = _driver_class()(gpu)
    config = triton.runtime.driver
    before = getattr(config, "_active", None)
    hook = driver.utils.remember
    knobs.runtime.kernel_load_start_hook.add(hook)
    config.set_active(driver)
    try:
        filled = nullcontext() if gpu.untouched is None else _filled(gpu.untouched)
        with checked_constraints(), predicted_benchmarks(gpu), left_out, filled:
            yield gpu
    finally:
        config.set_active(before)
        knobs.runtime.kernel_load_start_hook.remove(hook)

"""Traces as torch.profiler writes them on either vendor, made up: valid files with all that is around kernels.

There is no GPU behind them. Shape and fields as in pytorch/kineto (output_json.cpp, CuptiActivity.cpp,
RoctracerActivity_inl.h, RocprofActivity_inl.h).
"""

from __future__ import annotations

import json
import random
import re
from typing import Any

KERNELS = (
    "scale_rows(float*, float, int)",
    "void reduce<float, 4>(float const*, float*, int)",
    "gemm_128x64_nt",
    "softmax_kernel",
    "void transpose<32, 8>(float const*, float*, int, int)",
)
OPS = (("aten::linear", "aten::addmm"), ("aten::softmax", "aten::_softmax"), ("aten::sum", "aten::sum.dim_IntList"))
THREADS = (100, 101)
VENDORS = ("CUDA", "ROCm", "ROCm, old")
"""The old ROCm traces have no grid and no block beside a kernel."""


def names(rng: random.Random, count: int) -> list[str]:
    """Names of so many launches, some of them of one kernel; never all of one."""
    chosen = rng.sample(KERNELS, 3)
    return [chosen[at] if at < 3 else rng.choice(chosen) for at in range(count)]


def shape(rng: random.Random) -> tuple[list[int], list[int]]:
    """A grid in blocks and a block in threads, neither of them (1, 1, 1)."""
    return [rng.randrange(2, 400), rng.randrange(1, 9), rng.choice((1, 1, 2))], [rng.choice((64, 128, 256)), 1, 1]


def trace(rng: random.Random, vendor: str, ops: int = 6, devices: int = 1) -> str:
    """The text of a trace.

    vendor   of VENDORS; ops: operators of torch, each of which launches one or two kernels or a copy
    devices  GPUs that take turns
    """
    return _Trace(rng, vendor, devices).text(ops)


class _Trace:
    """Events under construction; times are whole ns."""

    def __init__(self, rng: random.Random, vendor: str, devices: int) -> None:
        self.rng, self.vendor, self.devices = rng, vendor, devices
        self.amd, self.old = vendor != "CUDA", vendor == "ROCm, old"
        self.prefix = "hip" if self.amd else "cuda"
        self.events: list[dict[str, Any]] = []
        self.clock = {thread: rng.randrange(100_000, 200_000) for thread in THREADS}
        self.free: dict[tuple[int, int], int] = {}
        self.starts: set[int] = set()
        self.annotations: list[dict[str, Any]] = []
        self.places: dict[int, int] = {}  # of an event: -1 before the others, 1 after them
        self.correlation, self.external = rng.randrange(20, 40), rng.randrange(10, 20)

    def text(self, ops: int) -> str:
        self._begun_before()
        for number in range(ops):
            thread, device = THREADS[number % 2], number % self.devices
            self._op(thread, device, what=("kernels", "copy", "kernels", "driver", "graph", "lost op")[number % 6])
        self._around()
        host = [event for event in self.events if event["cat"] == "cpu_op"]
        rest = [event for event in self.events if event["cat"] != "cpu_op"]
        self.rng.shuffle(rest)  # kineto writes what a GPU did as it comes
        rest.sort(key=lambda event: self.places.get(id(event), 0))
        width = 64 if self.amd else 32
        whole = {
            "schemaVersion": 1,
            "deviceProperties": [{"id": at, "name": "GPU X", "warpSize": width} for at in range(self.devices)],
            "displayTimeUnit": "ms",
            "baseTimeNanoseconds": 1_700_000_000_000_000_000,
            "traceEvents": [*_METADATA, *self.annotations, *host, *rest],
            "traceName": "trace.json",
        }
        written = json.dumps(whole)
        return re.sub(r'"(ts|dur)": ([\d.]+)', lambda found: f'"{found[1]}": {float(found[2]):.3f}', written)

    def _add(self, cat: str, name: str, pid: Any, tid: Any, start: int, length: int, **args: Any) -> None:
        times = {"ts": start / 1000, "dur": length / 1000}
        self.events.append({"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, **times, "args": args})

    def _flow(self, ph: str, pid: int, tid: int, at: int, **more: Any) -> None:
        flow = {
            "ph": ph,
            "id": self.correlation,
            "pid": pid,
            "tid": tid,
            "ts": at / 1000,
            "cat": "ac2g",
            "name": "ac2g",
        }
        self.events.append(flow | more)

    def _op(self, thread: int, device: int, what: str) -> None:
        """An operator inside of another one, and what the inner one starts."""
        rng, begun = self.rng, self.clock[thread]
        outer, inner = rng.choice(OPS)
        outer_id, self.external = self.external + 1, self.external + 2
        self.clock[thread] += rng.randrange(2_000, 5_000)
        inside = self.clock[thread]
        self.clock[thread] += rng.randrange(1_000, 3_000)
        stream = rng.choice((7, 20))
        if what == "copy":
            self._copy(thread, device, stream)
        elif what == "graph":
            self._graph(thread, device, stream)
        else:
            for name in names(rng, 3)[: rng.choice((2, 3))]:
                self._kernel(thread, device, stream, name, driver=what == "driver")
        if what == "lost op":  # a copy as well: it is no operator, though it has the number of one
            self._copy(thread, device, stream)
        if what == "kernels":
            self._lost_call(device, stream)
        self._annotate(thread, begun)
        if what != "lost op":  # its window began before: what it launched names an op that is not in the file
            self._add("cpu_op", inner, 1, thread, inside, self.clock[thread] - inside, **{"External id": self.external})
        self.clock[thread] += rng.randrange(500, 2_000)
        self._add("cpu_op", outer, 1, thread, begun, self.clock[thread] - begun, **{"External id": outer_id})
        self.clock[thread] += rng.randrange(500, 20_000)

    def _call(self, thread: int, name: str, cat: str = "cuda_runtime", **args: Any) -> int:
        """A call of the runtime that starts something; when it began."""
        self.correlation += self.rng.randrange(1, 3)
        start, length = self.clock[thread], self.rng.randrange(3_000, 9_000)
        number = {"cid" if self.amd else "cbid": self.rng.randrange(200, 400)}
        more = {"External id": self.external, "correlation": self.correlation, **number, **args}
        self._add(cat, name, 1, thread, start, length, **more)
        self._flow("s", 1, thread, start)
        self.clock[thread] += length + self.rng.randrange(200, 1_000)
        return start

    def _on_gpu(self, cat: str, name: str, device: int, stream: int, called: int, **args: Any) -> None:
        length = self.rng.randrange(4_000, 60_000)
        start = max(called + self.rng.randrange(4_000, 9_000), self.free.get((device, stream), 0) + 1_000)
        while start in self.starts:
            start += 1
        self.starts.add(start)
        self.free[device, stream] = start + length
        self._add(cat, name, device, stream, start, length, device=device, stream=stream, **args)
        self._flow("f", device, stream, start, bp="e")

    def _links(self) -> dict[str, int]:
        return {"External id": self.external, "correlation": self.correlation}

    def _shape(self, grid: list[int], block: list[int]) -> dict[str, Any]:
        """What a kernel's event says of its launch."""
        if self.amd:
            return {"kind": "Dispatch Kernel"} | ({} if self.old else {"grid": grid, "block": block})
        registers = {"registers per thread": self.rng.choice((32, 40, 64)), "shared memory": 0}
        return {"queued": 0, "context": 1, **registers, "grid": grid, "block": block}

    def _kernel(self, thread: int, device: int, stream: int, name: str, driver: bool) -> None:
        grid, block = shape(self.rng)
        call, cat, more = f"{self.prefix}LaunchKernel", "cuda_runtime", {}
        if driver:
            call, cat = ("hipModuleLaunchKernel", cat) if self.amd else ("cuLaunchKernel", "cuda_driver")
        if self.amd:
            more = {"kernel": name, "grid": grid, "block": block, "shared memory": 0}
        if driver and self.vendor == "ROCm":  # this call is given work-items
            call, more["grid"] = "hipExtModuleLaunchKernel", [a * b for a, b in zip(grid, block, strict=True)]
        if self.amd:
            more |= {"stream": hex(self.rng.randrange(2**40, 2**44))} if self.old else {}
        called = self._call(thread, call, cat, **more)
        self._on_gpu("kernel", name, device, stream, called, **self._links(), **self._shape(grid, block))

    def _copy(self, thread: int, device: int, stream: int) -> None:
        called = self._call(thread, f"{self.prefix}MemcpyAsync")
        size = self.rng.randrange(1, 99) * 4096
        name = "Memcpy HtoD (Pinned -> Device)"
        self._on_gpu("gpu_memcpy", name, device, stream, called, bytes=size, **self._links())
        called = self._call(thread, f"{self.prefix}MemsetAsync")
        self._on_gpu("gpu_memset", "Memset (Device)", device, stream, called, bytes=size, **self._links())

    def _graph(self, thread: int, device: int, stream: int) -> None:
        """One call that starts two kernels between two copies, and says nothing of their grids.

        All have its number, and one of the copies is the first with it in the file, the other the last.
        """
        called = self._call(thread, f"{self.prefix}GraphLaunch")
        for place, way in ((-1, "HtoD (Pinned -> Device)"), (1, "DtoH (Device -> Pinned)")):
            self._on_gpu("gpu_memcpy", f"Memcpy {way}", device, stream, called, bytes=4096, **self._links())
            self.places[id(self.events[-2])] = place
        for name in names(self.rng, 3)[:2]:
            self._on_gpu("kernel", name, device, stream, called, **self._links(), **self._shape(*shape(self.rng)))

    def _lost_call(self, device: int, stream: int) -> None:
        """A kernel of this operator whose call is not in the file."""
        self.correlation += 1
        shape_of = self._shape(*shape(self.rng))
        called = max(self.clock.values())
        self._on_gpu("kernel", self.rng.choice(KERNELS), device, stream, called, **self._links(), **shape_of)

    def _annotate(self, thread: int, begun: int) -> None:
        """A range of the program that by chance has the number of an operator; it stands before all operators."""
        self._add("user_annotation", "forward", 1, thread, begun, 1_000, **{"External id": self.external})
        self.annotations.append(self.events.pop())

    def _begun_before(self) -> None:
        """A kernel that was launched before the window began: no call and no op in the file."""
        self.correlation += 1
        shape_of = self._shape(*shape(self.rng))
        self._on_gpu("kernel", self.rng.choice(KERNELS), 0, 7, 60_000, correlation=self.correlation, **shape_of)
        self.events[-2]["tid"] = 1  # the lane of a viewer

    def _around(self) -> None:
        """What else is in such a file."""
        end = max(self.free.values())
        waited = self.clock[THREADS[0]]
        self.correlation += 1
        waits = {"correlation": self.correlation}
        self._add("cuda_runtime", f"{self.prefix}DeviceSynchronize", 1, THREADS[0], waited, 5_000, **waits)
        self._add("user_annotation", "ProfilerStep#3", 1, THREADS[0], 90_000, end - 90_000, **{"External id": 3})
        self._add("gpu_user_annotation", "ProfilerStep#3", 0, 7, 90_000, end - 90_000, **{"External id": 3})
        self._add("python_function", "train.py(12): step", 1, THREADS[0], 95_000, 9_000, **{"Python id": 1})
        self._add("overhead", "Activity Buffer Request", -1, 0, 99_000, 800)
        self._add("Trace", "PyTorch Profiler (0)", "Spans", "PyTorch Profiler", 80_000, end, **{"Op count": 0})


_METADATA: list[dict[str, Any]] = [
    {"ph": "M", "name": "process_name", "cat": "", "pid": 1, "tid": 0, "ts": 80.0, "args": {"name": "python"}},
    {"ph": "M", "name": "thread_name", "cat": "", "pid": 0, "tid": 7, "ts": 80.0, "args": {"name": "stream 7"}},
    {
        "ph": "i",
        "name": "Iteration Start: PyTorch Profiler",
        "cat": "",
        "s": "g",
        "pid": "Traces",
        "tid": "Trace",
        "ts": 80.0,
    },
]

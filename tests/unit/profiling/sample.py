"""Profiles for tests of the analysis and of the report: modelled timelines of both vendors, with counters by hand."""

from __future__ import annotations

from gpu_utils.profiling.modelled import Modelled
from gpu_utils.profiling.profile import Device, Event, Origin, Profile

HOSTILE = 'scan<float, 4>(int, "&amp;", </script><b>)'
"""A name that breaks out of any page that does not escape it."""

COUNTED = {
    "nvidia": {
        "copy_rows": {"memory_bytes": 60_000_000, "fp32_flop": 0, "load_requests": 1000, "load_sectors": 4000},
        "matmul": {"memory_bytes": 4_000_000, "fp32_flop": 1_400_000_000, "matrix_flop": 0, "scratch_bytes": 0},
        "transpose": {"memory_bytes": 4_000_000, "fp32_flop": 1000, "load_requests": 1000, "load_sectors": 32_000},
        HOSTILE: {"memory_bytes": 4_000_000, "fp32_flop": 3_000_000, "conflict_passes": 300, "shared_passes": 400},
    },
    "amd": {
        "copy_rows": {"memory_bytes": 95_000_000, "fp32_flop": 0, "load_instructions": 100, "cache_lines": 200},
        "matmul": {"memory_bytes": 4_000_000, "fp32_flop": 3_000_000_000, "matrix_flop": 0, "scratch_bytes": 0},
        "transpose": {"memory_bytes": 4_000_000, "fp32_flop": 1000, "load_instructions": 100, "cache_lines": 6400},
        HOSTILE: {"memory_bytes": 4_000_000, "fp32_flop": 3_000_000, "conflict_cycles": 300, "shared_cycles": 400},
    },
}
"""What one launch does, for each vendor: at the peaks of an A100 and of an MI300X the first two are near a roof."""

NS = {"copy_rows": 30_000, "matmul": 80_000, "transpose": 40_000, HOSTILE: 20_000}
DEVICES = {
    "nvidia": Device("NVIDIA A100-SXM4-80GB", "nvidia", "sm_80", 108, 32),
    "amd": Device("AMD Instinct MI300X", "amd", "gfx942", 304, 64),
}


def training(vendor: str = "nvidia", steps: int = 4, *, virtual: bool = False) -> Profile:
    """Some steps: a copy in, four kernels (one on a stream of its own), the loss read by the host, some Python."""
    host = Modelled(vendor)
    for _ in range(steps):
        host.copy(1_000_000, stream=20)
        with host.op("step", 1000):
            for name, ns in NS.items():
                event = host.launch(name, ns, stream=9 if name == "transpose" else None)
                event.note("grid", (4096, 1, 1), "trace: grid")
                event.note("block", (256, 1, 1), "trace: block")
                event.note("registers", 128, "trace: registers per thread")
                for figure, value in COUNTED[vendor][name].items():
                    event.note(figure, value, f"counters: {figure}")
        host.item()
        host.work(150_000, "next batch")
    given = DEVICES[vendor]
    device = Device(given.name, given.vendor, given.target, given.units, given.lanes, virtual)
    profile = host.profile("trace.json", device)
    profile.origins.append(Origin("counters.csv", "ncu", "csv", "2026.1", (f"2 rows of {HOSTILE} were cut short",)))
    return profile


def many(events: int) -> Profile:
    """One stream of so many short kernels, back to back but for a pause after every thousandth."""
    rows, at = [], 0
    for number in range(events):
        at += 500_000 if number % 1000 == 999 else 100
        rows.append(Event("kernel", f"kernel_{number % 12}", at, at + 900, "stream 7", "0"))
        at += 900
    return Profile(rows, [Origin("many.json", "torch.profiler", "Chrome trace")], {"0": DEVICES["nvidia"]})

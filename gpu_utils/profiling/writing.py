"""A profile as the Chrome trace that torch.profiler writes, in the shape of either vendor.

What a trace of CUDA says on a kernel's event (grid, block, registers, shared memory) it says here; in a trace of ROCm
grid and block stand on the launch (rocprofiler-sdk's shape, with them on the kernel as well, is newer). The device's
entry says `"virtual": true` where a virtual GPU made it.

Shape: pytorch/kineto, libkineto/src/output_json.cpp, CuptiActivity.cpp, RoctracerActivity_inl.h.
"""

from __future__ import annotations

import json
from typing import Any

from gpu_utils.profiling.profile import Device, Event, Profile

_HOST = 100
_CATEGORIES = {"op": "cpu_op", "range": "user_annotation", "launch": "cuda_runtime", "sync": "cuda_runtime"}
_ON_GPU = {"kernel": "kernel", "copy": "gpu_memcpy", "fill": "gpu_memset"}


def chrome_trace(profile: Profile) -> str:
    """JSON text. Events of the GPU need a device of the profile; of its kernels grid and block are written as noted."""
    devices = {name: number for number, name in enumerate(profile.devices)}
    kernels = {event.correlation: event for event in profile.events if event.kind == "kernel"}
    remarks = [remark for origin in profile.origins for remark in origin.remarks]
    written = [
        one
        for event in profile.events
        if event.start is not None and event.end is not None
        for one in _written(event, profile.devices, devices, kernels)
    ]
    head = {
        "schemaVersion": 1,
        "deviceProperties": [_properties(number, device) for number, device in enumerate(profile.devices.values())],
        "notes": remarks,
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": 0,
    }
    lines = ",\n".join(json.dumps(event) for event in written)
    return f'{json.dumps(head)[:-1]}, "traceEvents": [\n{lines}\n]}}\n'


def _properties(number: int, device: Device) -> dict[str, Any]:
    known = {"warpSize": device.lanes, "numSms": device.units, "gcnArchName": device.target}
    if device.vendor != "amd":
        known.pop("gcnArchName")
        major, minor = (device.target or "sm_00")[3:-1], (device.target or "sm_00")[-1]
        known |= {"computeMajor": int(major), "computeMinor": int(minor)}
    there = {name: value for name, value in known.items() if value is not None}
    return {"id": number, "name": device.name, **there, **({"virtual": True} if device.virtual else {})}


def _written(
    event: Event, known: dict[str, Device], devices: dict[str, int], kernels: dict[int | None, Event]
) -> list[dict[str, Any]]:
    assert event.start is not None
    assert event.end is not None
    gpu = event.kind in _ON_GPU
    where = {"pid": devices[event.device], "tid": _number(event.lane)} if gpu else {"pid": _HOST, "tid": _HOST}
    place = {**where, "ts": event.start / 1000}
    category = _ON_GPU.get(event.kind) or _CATEGORIES[event.kind]
    if event.kind == "launch" and "Memcpy" in event.name:
        category = "cuda_runtime"
    whole = {"ph": "X", "cat": category, "name": event.name, **place, "dur": (event.end - event.start) / 1000}
    whole["args"] = _arguments(event, known, devices, kernels)
    if event.correlation is None:
        return [whole]
    flow = {"id": event.correlation, **place, "cat": "ac2g", "name": "ac2g"}
    return [whole, {"ph": "f", **flow, "bp": "e"} if gpu else {"ph": "s", **flow}]


def _arguments(
    event: Event, known: dict[str, Device], devices: dict[str, int], kernels: dict[int | None, Event]
) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if (operator := event.value("External id")) is not None:
        found["External id"] = operator
    if event.correlation is not None:
        found["correlation"] = event.correlation
    if event.kind in _ON_GPU:
        found |= {"device": devices[event.device], "stream": _number(event.lane)}
        if event.kind == "copy":
            found["bytes"] = event.value("bytes")
        elif known[event.device].vendor == "amd":
            found["kind"] = "Dispatch Kernel"
        else:
            found |= _shape(event) | {"registers per thread": event.value("registers")}
    elif event.kind == "launch" and event.correlation in kernels:
        kernel = kernels[event.correlation]
        if known[kernel.device].vendor == "amd":
            found |= {"kernel": kernel.name, **_shape(kernel)}
    return {name: value for name, value in found.items() if value is not None}


def _shape(kernel: Event) -> dict[str, Any]:
    grid, block = kernel.value("grid"), kernel.value("block")
    return {
        "grid": None if grid is None else list(grid),
        "block": None if block is None else list(block),
        "shared memory": kernel.value("shared_bytes"),
    }


def _number(lane: str) -> int:
    digits = "".join(character for character in lane if character.isdigit())
    return int(digits or 0)

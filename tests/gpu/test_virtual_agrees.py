"""A real GPU and the virtual GPU of its target run the same compiled kernels: what comes out, and what is counted.

Every case of the kernel set runs twice, with the same inputs: on the device and on the virtual GPU. Exact outputs
must be the same bits, the others within the bound that the case states of its float64 reference, on both sides. A few
kernels run once more under Nsight Compute, and its counters must be those of the virtual GPU. What was found is
written to benchmarks/results/, one file a target.

    pytest tests/gpu/test_virtual_agrees.py -q       # needs torch, triton, numpy and pytest, and a GPU
"""

from __future__ import annotations

import csv
import dataclasses
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

from gpu_utils.kernelset import CASES, Run
from gpu_utils.kernelset.judge import complaint
from gpu_utils.virtual import MODELS, virtual_gpu
from gpu_utils.virtual.vendor_counters import vendor_counters
from tests.conftest import needs_a_gpu
from tests.gpu.conftest import results

ROOT = Path(__file__).parents[2]


class DeviceRun(Run):
    """A run of a case on the real device: the tensors of each launch are copied there and back.

    texts: for each launch the assembly text that Triton compiled, or None where Triton does not give it.
    """

    def __init__(self, target: str, device: str = "cuda") -> None:
        super().__init__(target)
        self.device, self.texts = device, []

    def launch(self, kernel: Any, grid: Any, *args: Any, **meta: Any) -> None:
        storages: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        moved = [self._there(arg, storages) for arg in args]
        named = {name: self._there(value, storages) for name, value in meta.items()}
        compiled = kernel[grid](*moved, **named)
        for here, there in storages.values():
            here.copy_(there)
        texts = getattr(compiled, "asm", {})
        self.texts.append(texts.get("ptx") or texts.get("amdgcn"))

    def _there(self, value: Any, storages: dict[int, tuple[torch.Tensor, torch.Tensor]]) -> Any:
        """The same value with device tensors; views of one storage stay views of one storage."""
        if isinstance(value, (tuple, list)):
            return type(value)(self._there(part, storages) for part in value)
        if dataclasses.is_dataclass(value) and isinstance(getattr(value, "base", None), torch.Tensor):
            return dataclasses.replace(value, base=self._there(value.base, storages))
        if not isinstance(value, torch.Tensor):
            return value
        storage = value.untyped_storage()
        if storage.data_ptr() not in storages:
            whole = torch.empty(0, dtype=torch.uint8).set_(storage)
            storages[storage.data_ptr()] = (whole, whole.to(self.device, copy=True))
        there = storages[storage.data_ptr()][1].untyped_storage()
        view = torch.empty(0, dtype=value.dtype, device=self.device)
        return view.set_(there, value.storage_offset(), value.shape, value.stride())


@pytest.fixture(scope="module")
def target() -> str:
    needs_a_gpu()
    active = triton.runtime.driver.active.get_current_target()
    name = f"sm_{active.arch}" if active.backend == "cuda" else str(active.arch)
    if name not in MODELS:
        pytest.skip(f"there is no virtual GPU for {name}; there is one for {', '.join(MODELS)}")
    return name


@pytest.fixture(scope="module")
def report(target: str) -> Iterator[dict[str, Any]]:
    """What the tests of this file find; written to benchmarks/results/ when they are through."""
    with results("virtual_agrees", cases={}, counters={}, ncu="not run") as written:
        yield written


def compare(name: str, on_device: torch.Tensor, on_virtual: torch.Tensor) -> dict[str, Any]:
    """Whether two outputs are the same bits, and how far apart they are at most."""
    same = torch.equal(bits(on_device), bits(on_virtual))
    entry: dict[str, Any] = {"output": name, "dtype": str(on_device.dtype), "elements": on_device.numel(), "same": same}
    if not same:
        a, b = on_device.double(), on_virtual.double()
        apart = (a - b).abs().nan_to_num(0.0)
        entry["elements_apart"] = int((bits(on_device) != bits(on_virtual)).sum())
        entry["largest_difference"] = float(apart.max())
        entry["largest_relative"] = float((apart / b.abs().clamp_min(1e-30)).nan_to_num(0.0).max())
    return entry


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """Bit patterns, with one NaN and one zero: the payload of a NaN and the sign of a zero are not compared."""
    if not tensor.is_floating_point():
        return tensor
    wide = torch.where(tensor.double().isnan(), torch.nan, tensor.double())
    return torch.where(wide == 0, 0.0, wide).contiguous().view(torch.int64)


@pytest.mark.parametrize("name", CASES)
def test_the_device_and_its_virtual_twin_agree(name: str, target: str, report: dict[str, Any]) -> None:
    case = CASES[name]
    if target not in case.targets:
        pytest.skip(f"{name} is not for {target}: {case.why}")
    real, twin = DeviceRun(target), Run(target)
    case.body(real)
    with virtual_gpu(target) as gpu:
        case.body(twin)
    assert [result.name for result in real.results] == [result.name for result in twin.results]
    outputs, wrong = [], []
    for a, b in zip(real.results, twin.results, strict=True):
        assert torch.equal(bits(a.expected), bits(b.expected)), "both runs draw the same inputs"
        entry = compare(a.name, a.got, b.got)
        outputs.append({**entry, "terms": a.k})
        if a.k == 0 and not entry["same"]:
            wrong.append(f"{a.name}: {entry['elements_apart']} of {entry['elements']} elements have other bits")
        wrong += [f"on the device: {said}" for said in [complaint(a)] if said]
        wrong += [f"on the virtual GPU: {said}" for said in [complaint(b)] if said]
    launched = {launch.text for launch in gpu.launches}
    known = [text for text in real.texts if text]
    report["cases"][name] = {
        "outputs": outputs,
        "launches": len(real.texts),
        "same_text": sum(text in launched for text in known),
        "texts_known": len(known),
    }
    assert not wrong, "\n".join(wrong)


# counters


@triton.jit
def strided_kernel(x_ptr, out_ptr, FIRST: tl.constexpr, STEP: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(x_ptr + FIRST + i * STEP))


@triton.jit
def masked_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(x_ptr + i, mask=i < n, other=0.0) * 2, mask=i < n)


@triton.jit
def histogram_kernel(x_ptr, out_ptr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(out_ptr + tl.load(x_ptr + i), 1)


def counted_launches(device: str) -> list[str]:
    """Launch the kernels whose counters are compared; returns a label for each launch."""
    x, out = torch.arange(1 << 16, dtype=torch.float32, device=device), torch.zeros(1 << 12, device=device)
    labels = []
    for first, step in ((0, 1), (1, 1), (0, 2), (0, 8), (0, 16)):
        strided_kernel[(16,)](x, out, FIRST=first, STEP=step, BLOCK=256)
        labels.append(f"strided_kernel first {first} step {step}")
    masked_kernel[(16,)](x, out, 4000, BLOCK=256)
    labels.append("masked_kernel 4000 of 4096")
    index = (torch.arange(4096, device=device) * 7 % 64).int()
    histogram_kernel[(16,)](index, torch.zeros(64, dtype=torch.int32, device=device), BLOCK=256)
    labels.append("histogram_kernel 64 bins")
    return labels


EQUAL = (
    "smsp__warps_launched.sum",
    "smsp__inst_executed_op_global_ld.sum",
    "smsp__inst_executed_op_global_st.sum",
    "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",
    "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",
)
NOTED = ("smsp__inst_executed.sum", "dram__bytes_read.sum", "dram__bytes_write.sum")
KERNELS = ("strided_kernel", "masked_kernel", "histogram_kernel")


def profile() -> list[dict[str, float]]:
    """Metric -> value for each launch of `counted_launches`, measured by Nsight Compute in another process."""
    ncu = shutil.which("ncu")
    if ncu is None:
        pytest.skip("Nsight Compute (ncu) is not on PATH; the counters of the virtual GPU are not compared")
    command = [ncu, "--csv", "--metrics", ",".join((*EQUAL, *NOTED)), sys.executable, __file__]
    ran = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    if "ERR_NVGPUCTRPERM" in ran.stdout + ran.stderr:
        pytest.skip("this machine does not let Nsight Compute read counters (ERR_NVGPUCTRPERM)")
    text = ran.stdout
    assert ran.returncode == 0, f"ncu failed: {(text + ran.stderr)[-1000:]}"
    assert '"ID"' in text, f"ncu wrote no table: {text[-1000:]}"
    launches: dict[str, dict[str, float]] = {}
    for row in csv.DictReader(text[text.index('"ID"') :].splitlines()):
        if row["Kernel Name"].startswith(KERNELS) and row["Metric Value"]:
            launches.setdefault(row["ID"], {})[row["Metric Name"]] = float(row["Metric Value"].replace(",", ""))
    return list(launches.values())


def test_the_counters_are_those_of_nsight_compute(target: str, report: dict[str, Any]) -> None:
    if not target.startswith("sm_"):
        pytest.skip("Nsight Compute measures NVIDIA GPUs")
    try:
        measured = profile()
    except pytest.skip.Exception as why:
        report["ncu"] = str(why)
        raise
    with virtual_gpu(target, l2=True) as gpu:
        labels = counted_launches("cpu")
    assert len(measured) == len(labels), "one row of counters for each launch"
    wrong = []
    for label, launch, real in zip(labels, gpu.launches, measured, strict=True):
        ours = {counter.name: counter.value for counter in vendor_counters(launch)}
        report["counters"][label] = {n: {"device": v, "virtual": ours.get(n)} for n, v in sorted(real.items())}
        wrong += [
            f"{label}: {name}: device {real[name]:g}, virtual {ours[name]:g}"
            for name in EQUAL
            if name in real and real[name] != ours[name]
        ]
    report["ncu"] = "compared"
    assert any(name in measured[0] for name in EQUAL), f"ncu knows none of the metrics: {sorted(measured[0])}"
    assert not wrong, "\n".join(wrong)


if __name__ == "__main__":  # the process that Nsight Compute measures
    counted_launches("cuda")
    torch.cuda.synchronize()

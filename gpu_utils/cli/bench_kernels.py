"""`w2w bench kernels`: the solutions of unit 04 and later beside torch, torch.compile and, where it has one, Liger.

With a GPU they are timed in the forward direction, in float32 (products and attention in 16 bits, unit 08 in the FP8 of
the device), with the copy bandwidth of the same run. Without one they are counted on virtual GPUs and compiled for four
targets, beside Liger's kernel, and the page says that timing is still owed. Liger is not installed by the course:
`pip install --no-deps --target FOLDER liger-kernel`, and FOLDER on PYTHONPATH. Its cross-entropy is left out, since it
computes the gradient in the forward pass.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from gpu_utils import exercises
from gpu_utils.backends.rungs import Rungs, climbed, needs, raced
from gpu_utils.chips import probe
from gpu_utils.course.files import write_atomically
from gpu_utils.course.sources import load_solution
from gpu_utils.errors import BadArgument
from gpu_utils.grading.fp8 import as_on
from gpu_utils.timing import Timing, bench
from gpu_utils.ui.table import table

TARGETS = ("sm_90", "sm_100", "gfx942", "gfx950")
COUNTED_ON = ("sm_90", "gfx942", "gfx950")
"""Those of TARGETS that a virtual GPU executes."""

EPS = 1e-5
TILE = 128
"""Elements of K that share a scale in unit 08."""
_ROWS, _COLUMNS = (16_384, 48), (1024, 1000)
COPY_BYTES = 1 << 30


@dataclass(frozen=True)
class Work:
    """What is measured of an exercise.

    inputs  large -> the arguments, tensors on the CPU: one size for a clock, one for a virtual GPU. FP8 as on NVIDIA
    torch   the same function by torch; bytes: the least that it must move, from the arguments
    liger   Liger's function of the same arguments, imported when it is called; None where Liger has none
    flops   of matrix products, from the arguments; dtype: whose peak counts on the roofline
    """

    inputs: Callable[[bool], tuple[Any, ...]]
    torch: Callable[..., Any]
    bytes: Callable[..., int]
    liger: Callable[..., Any] | None = None
    flops: Callable[..., float] = lambda *args: 0.0
    dtype: str = "fp32"


def _matrix(large: bool) -> Tensor:
    """float32 (16384, 1024) for a clock, (48, 1000) for a virtual GPU."""
    return torch.randn(_ROWS[not large], _COLUMNS[not large])


def _of_liger(module: str, name: str, *rest: Any) -> Callable[..., Any]:
    """A function of liger_kernel.ops that is called with further arguments, found when it is called."""
    return lambda *args: getattr(importlib.import_module(f"liger_kernel.ops.{module}"), name)(*args, *rest)


def _with_weight(large: bool) -> tuple[Any, ...]:
    x = _matrix(large)
    return x, torch.randn(x.shape[1]), torch.randn(x.shape[1]), EPS


def _rmsnorm(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    h = x + residual
    return F.rms_norm(h, weight.shape, weight, eps), h


def _rms_inputs(large: bool) -> tuple[Any, ...]:
    x = _matrix(large)
    return x, torch.randn(x.shape), torch.randn(x.shape[1]), EPS


def _backward_inputs(large: bool) -> tuple[Any, ...]:
    x = _matrix(large)
    variance, mean = torch.var_mean(x, dim=1, correction=0)
    return torch.randn(x.shape), x, torch.randn(x.shape[1]), mean, (variance + EPS).rsqrt()


def _layernorm_backward(dy: Tensor, x: Tensor, weight: Tensor, mean: Tensor, rstd: Tensor) -> Any:
    statistics = mean[:, None], rstd[:, None]
    every = [True, True, True]
    return torch.ops.aten.native_layer_norm_backward(dy, x, weight.shape, *statistics, weight, weight, every)


def _loss_inputs(large: bool) -> tuple[Any, ...]:
    rows, words = (4096, 50_257) if large else (16, 4001)
    return torch.randn(rows, words), torch.randint(words, (rows,))


def _in_and_out(x: Tensor, *_: Any) -> int:
    return 8 * x.numel()


def _product_inputs(large: bool) -> tuple[Any, ...]:
    n = 4096 if large else 128
    return torch.randn(n, n).bfloat16(), torch.randn(n, n).bfloat16()


def _attention_inputs(large: bool) -> tuple[Any, ...]:
    size = (4, 16, 4096, 64) if large else (1, 2, 128, 64)
    return *(torch.randn(size).half() for _ in range(3)), True, size[-1] ** -0.5


def _attention(q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)


def _cache_inputs(large: bool) -> tuple[Any, ...]:
    sequences, heads, length, width = (8, 16, 8192, 128) if large else (2, 2, 192, 64)
    caches = (torch.randn(sequences, length, heads, width).half() for _ in range(2))
    lengths = torch.full((sequences,), length, dtype=torch.int32)
    return torch.randn(sequences, heads, width).half(), *caches, lengths, 4


def _decoded(q: Tensor, k: Tensor, v: Tensor, lengths: Tensor, splits: int) -> Tensor:
    """Attention of one query for each head to a whole cache."""
    q, k, v = (x.transpose(1, 2) for x in (q[:, None], k, v))
    return F.scaled_dot_product_attention(q, k, v)[:, :, 0]


def _tokens(large: bool) -> tuple[Any, ...]:
    """Tokens, the experts of each, how many there are, and the tile."""
    tokens, width, experts = (16_384, 2048, 64) if large else (48, 256, 8)
    chosen = torch.rand(tokens, experts).topk(8 if large else 2).indices
    return torch.randn(tokens, width).bfloat16(), chosen, experts, 64


def _sorted_by_expert(x: Tensor, experts: Tensor, num_experts: int, tile: int) -> Tensor:
    """Rows by expert, in stretches of whole tiles."""
    entries = experts.flatten()
    order = entries.argsort(stable=True)
    counts = entries.bincount(minlength=num_experts)
    padded = -(-counts // tile) * tile
    moved = (padded.cumsum(0) - padded) - (counts.cumsum(0) - counts)
    rows = x.new_zeros(int(padded.sum()), x.shape[1])
    rows[torch.arange(len(order), device=x.device) + moved[entries[order]]] = x[order // experts.shape[1]]
    return rows


def _expert_inputs(large: bool) -> tuple[Any, ...]:
    count, size, loads = (32, 2048, range(64, 2112, 64)) if large else (4, 128, (128, 0, 64, 64))
    offsets = torch.tensor([0, *loads]).cumsum(0).int()
    rows, weights = torch.randn(int(offsets[-1]), size), torch.randn(count, size, size)
    return rows.bfloat16(), weights.bfloat16(), offsets, 132 if large else 5


def _loop_over_experts(rows: Tensor, weights: Tensor, offsets: Tensor, programs: int) -> Tensor:
    """A product of torch for each expert, whose loads the host asks for."""
    stretches = rows.split(offsets.diff().tolist())
    return torch.cat([part @ weight.T for part, weight in zip(stretches, weights, strict=True)])


def _in_fp8(rows: int, columns: int) -> Tensor:
    """E4M3 codes without -0, which are numbers in both flavours."""
    return (torch.rand(rows, columns) + 0.5).to(torch.float8_e4m3fn)


def _fp8_product_inputs(large: bool) -> tuple[Any, ...]:
    n = 4096 if large else 128
    tiles = n // TILE
    return _in_fp8(n, n), torch.ones(n, tiles), _in_fp8(n, n), torch.ones(tiles, tiles)


def _fp8_product(a: Tensor, a_scales: Tensor, b: Tensor, b_scales: Tensor) -> Tensor:
    """torch's product with one scale for a matrix, which all torch builds with FP8 have; here all scales are 1."""
    return torch._scaled_mm(
        a, b.T, a_scales[:1, :1], b_scales[:1, :1], out_dtype=torch.bfloat16, use_fast_accum=a.is_cuda
    )


def _quantiser_inputs(large: bool) -> tuple[Any, ...]:
    n = 4096 if large else 256
    return torch.randn(n, n).bfloat16(), torch.float8_e4m3fn


def _quantised(x: Tensor, fp8: torch.dtype, rows: int) -> tuple[Tensor, Tensor]:
    """Codes and scales of tiles of rows x 128, by torch's own operations."""
    tiles = x.float().unflatten(1, (-1, TILE)).unflatten(0, (-1, rows))
    largest = torch.finfo(fp8).max
    scales = tiles.abs().amax((1, 3), keepdim=True) / largest
    codes = (tiles / scales).clamp(-largest, largest).to(fp8)
    return codes.view(x.shape), scales[:, 0, :, 0]


def _codes_and_scales(rows: int) -> Callable[..., int]:
    return lambda x, fp8: 3 * x.numel() + 4 * x.numel() // (rows * TILE)


WORKS = {
    "copy": Work(lambda large: (_matrix(large).flatten(),), torch.clone, _in_and_out),
    "gelu": Work(lambda large: (_matrix(large),), lambda x: F.gelu(x, approximate="tanh"), _in_and_out),
    "dropout": Work(lambda large: (_matrix(large), 0.1, 1), lambda x, p, seed: F.dropout(x, p), _in_and_out),
    "softmax": Work(
        lambda large: (_matrix(large),),
        lambda x: x.softmax(-1),
        _in_and_out,
        _of_liger("softmax", "_softmax_forward"),
    ),
    "rmsnorm": Work(
        _rms_inputs,
        _rmsnorm,
        lambda x, *_: 16 * x.numel(),
        _of_liger("fused_add_rms_norm", "fused_add_rms_norm_forward", 0.0, "llama"),
    ),
    "layernorm": Work(
        _with_weight,
        lambda x, weight, bias, eps: torch.native_layer_norm(x, weight.shape, weight, bias, eps),
        _in_and_out,
        _of_liger("layer_norm", "layer_norm_forward"),
    ),
    "sum_of_columns": Work(
        lambda large: (_matrix(large), False), lambda x, deterministic: x.sum(0), lambda x, _: 4 * x.numel()
    ),
    "layernorm_backward": Work(_backward_inputs, _layernorm_backward, lambda dy, *_: 12 * dy.numel()),
    "transpose": Work(lambda large: (_matrix(large)[None],), lambda x: x.mT.contiguous(), _in_and_out),
    "cross_entropy": Work(_loss_inputs, F.cross_entropy, lambda logits, _: 4 * logits.numel()),
    "tiled": Work(
        _product_inputs,
        torch.matmul,
        lambda a, _: 6 * a.numel(),
        flops=lambda a, _: 2.0 * len(a) ** 3,
        dtype="bf16",
    ),
    "forward": Work(
        _attention_inputs,
        _attention,
        lambda q, *_: 8 * q.numel(),
        flops=lambda q, *_: 2.0 * q.numel() * q.shape[2],  # 4 N N D for each head, of which half is hidden
        dtype="fp16",
    ),
    "decode": Work(
        _cache_inputs, _decoded, lambda q, k, *_: 4 * k.numel(), flops=lambda q, k, *_: 4.0 * k.numel(), dtype="fp16"
    ),
    "quantize_tile": Work(_quantiser_inputs, lambda x, fp8: _quantised(x, fp8, 1), _codes_and_scales(1)),
    "quantize_block": Work(_quantiser_inputs, lambda w, fp8: _quantised(w, fp8, TILE), _codes_and_scales(TILE)),
    "gemm": Work(
        _fp8_product_inputs,
        _fp8_product,
        lambda a, *_: 4 * a.numel(),
        flops=lambda a, *_: 2.0 * len(a) ** 3,
        dtype="fp8",
    ),
    "permute": Work(
        _tokens,
        _sorted_by_expert,
        lambda x, experts, *_: 2 * x.numel() * (1 + experts.shape[1]) + 8 * experts.numel(),
    ),
    "grouped_gemm": Work(
        _expert_inputs,
        _loop_over_experts,
        lambda rows, weights, *_: 2 * (rows.numel() + weights.numel() + len(rows) * weights.shape[1]),
        flops=lambda rows, weights, *_: 2.0 * rows.numel() * weights.shape[1],
        dtype="bf16",
    ),
}
"""Name of an exercise -> its work. An exercise that is not here is named in the output."""


def measured() -> dict[str, Work]:
    """Name -> work, for the kernel exercises of unit 04 and later, in the order of the course."""
    names = (name.partition(".") for name in exercises.ids())
    return {name: WORKS[name] for unit, _, name in names if int(unit) >= 4 and name in WORKS}


def missing() -> list[str]:
    """Ids of the kernel exercises of unit 04 and later that have no work here."""
    late = [name for name in exercises.ids() if int(name.partition(".")[0]) >= 4]
    return [name for name in late if name.partition(".")[2] not in WORKS and exercises.find(name).kind == "kernel"]


def liger_version() -> str | None:
    """The version of liger_kernel on the path; None for none."""
    try:
        return metadata.version("liger-kernel")
    except metadata.PackageNotFoundError:
        return None


def run(out: Path, save: bool = False) -> dict[str, Any]:
    """Measure all, print a table for each, write JSON to `out` and a plot beside it; return what was written.

    save  keep it under benchmarks/results/ as well. Raises BadArgument for that without a GPU: nothing was timed
    """
    machine, timed = probe(), probe().vendor != "cpu"
    if save and not timed:
        raise BadArgument("this machine has no GPU, so nothing was timed that could be kept; run it without --save")
    liger = liger_version()
    found: dict[str, Any] = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "target": machine.target,
        "device": machine.name,
        "chip": machine.chip.name if machine.chip else None,
        "versions": {**machine.versions, "liger-kernel": liger},
        "timed": timed,
        "kernels": {},
    }
    if timed:
        found["copy bandwidth (GB/s)"] = round(_copy_bandwidth() / 1e9)
        print(f"copy: {found['copy bandwidth (GB/s)']} GB/s")
    for name, work in measured().items():
        rungs = {"solution": load_solution(_id(name))} | ({"liger": work.liger} if work.liger and liger else {})
        rows = _timed(rungs, work, machine.target) if timed else _counted(rungs, work)
        found["kernels"][name] = {"exercise": _id(name)} | rows
        print(f"\n{name}")
        for each in rows.values():
            print(table(each))
    print(f"\nnot measured: {', '.join(missing()) or 'nothing'}. Liger: {liger or 'not on the path'}.")
    if not timed:
        print("Nothing was timed: this machine has no GPU. Timing on real chips of both vendors is still owed.")
    text = (json.dumps(found, indent=1) + "\n").encode()
    places = [out]
    if save:
        places.append(Path("benchmarks") / "results" / f"kernels_{machine.target}_{found['date'][:10]}.json")
    for place in places:
        write_atomically(place, text)
        _plot(found, place.with_suffix(".svg"))
        print(f"written to {place} and {place.with_suffix('.svg')}")
    return found


def _id(name: str) -> str:
    return next(one for one in exercises.ids() if one.partition(".")[2] == name and int(one[:2]) >= 4)


def _timed(rungs: Rungs, work: Work, target: str) -> dict[str, Any]:
    args = _for_target(target, work.inputs(True))
    bytes, flops = work.bytes(*args), work.flops(*args)
    return {"times": raced(rungs, *args, torch=work.torch, bytes=bytes, flops=flops, dtype=work.dtype)}


def _counted(rungs: Rungs, work: Work) -> dict[str, Any]:
    args = work.inputs(False)
    counts: dict[str, Any] = {}
    needed: dict[str, Any] = {}
    for target in COUNTED_ON:
        counts |= climbed(rungs, [target], *_for_target(target, args), least=work.bytes(*args))
    for target in TARGETS:
        needed |= needs(rungs, *_for_target(target, args), targets=[target])
    return {"counts": counts, "needs": needed}


def _for_target(target: str, args: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(as_on(target, value) for value in args)


def _copy_bandwidth() -> float:
    """Bytes/s that a copy of 1 GiB by torch reads and writes."""
    source = torch.empty(COPY_BYTES, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    found = bench(lambda: target.copy_(source), device="cuda")
    assert isinstance(found, Timing)
    return 2 * COPY_BYTES / found.median


def _plot(found: dict[str, Any], place: Path) -> None:
    """Bars: with a GPU how many times as fast as torch eager, else the bytes moved over the least on sm_90."""
    from matplotlib.figure import Figure

    bars: dict[str, float] = {}
    for name, parts in found["kernels"].items():
        for label, row in parts.get("times", parts.get("counts", {})).items():
            if found["timed"] or label.endswith(", sm_90"):
                bars[f"{name}, {label.partition(',')[0]}"] = row[
                    "x torch eager" if found["timed"] else "over the least"
                ]
    figure = Figure(figsize=(8, 1 + 0.3 * len(bars)), layout="constrained")
    axes = figure.subplots()
    axes.barh([*bars], [*bars.values()])
    axes.invert_yaxis()
    axes.axvline(1, color="black", linewidth=1)
    axes.set_xlabel("times as fast as torch eager" if found["timed"] else "bytes moved over the least, virtual sm_90")
    axes.set_title(f"{found['device']}, {found['date'][:10]}")
    figure.savefig(place, metadata={"Date": None})

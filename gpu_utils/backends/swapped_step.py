"""A training step of a small GPT-2 with own kernels in place of torch's operators: is it right, and what does it save?

The step runs on a virtual GPU. Its loss and gradients are held against torch's in float64, and what the own kernels ask
of memory stands beside what torch's operators ask in eager mode, counted alike (`backends.traffic`).
"""

from __future__ import annotations

import contextlib
import copy
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree

from gpu_utils.backends.recording import chosen_launches
from gpu_utils.backends.traffic import Traffic, traffic_of_kernels, traffic_of_torch
from gpu_utils.chips import probe
from gpu_utils.errors import BadArgument
from gpu_utils.model.gpt2 import GPT2, PRESETS, GPT2Config
from gpu_utils.model.swapped_operators import OPERATORS
from gpu_utils.model.swapping import Call, Given, calls_of, check, swapped, with_dropout, with_own
from gpu_utils.timing import Ratio, bench
from gpu_utils.virtual import virtual_gpu

SMALL = GPT2Config(vocab_size=300, n_positions=16, n_embd=32, n_layer=2, n_head=2)
BATCH = 4
DROPPED = 0.1
"""Share that is dropped where a dropout is given, as GPT-2 was trained."""


@dataclass(frozen=True)
class Step:
    """What one training step gave.

    loss               nats per token
    loss_off           its difference from float64, relative
    gradient_off       the largest difference of a gradient from float64, over the largest gradient of that weight
    worst              the weight where that is
    torch_off          the same of torch in float32 (attention in bfloat16, where an own one is), to compare with
    own, torch         what the own kernels, and torch's operators in their place, launch and touch; what torch adds
                       up or copies inside an own function counts as own. Of attention, torch's are the operators of
                       attention="explicit": scores in memory, as where no fused operator is to be had
    """

    loss: float
    loss_off: float
    gradient_off: float
    worst: str
    torch_off: float
    own: Traffic
    torch: Traffic


def step_on(target: str, *, config: GPT2Config = SMALL, batch: int = BATCH, seed: int = 0, **given: Any) -> Step:
    """One training step (loss and backward) on the virtual GPU of `target`, with the given functions in place.

    config, batch  of the model; sequences have config.n_positions tokens
    given          as for `gpu_utils.model.swapping.swapped`. With a softmax, attention writes its scores to memory;
                   with a dropout, a tenth is dropped after the embeddings and each branch, and torch drops the same

    Errors: those of the kernels and of `swapped`; BadArgument when no operator is given, or attention and the softmax
    inside of it; UnknownName for a target.
    """
    if not given:
        raise BadArgument(f"no operator was given; expected some of {', '.join(OPERATORS)}, such as gelu=gelu")
    check(given)
    model, tokens, targets = _drawn(config, batch, seed, given)
    drops = with_dropout if "dropout" in given else _as_it_is
    losses: list[Tensor] = []
    with drops(model, DROPPED), virtual_gpu(target):
        calls = calls_of(lambda: losses.append(model.loss(tokens, targets)), **given)
        (loss,) = losses
        loss.backward()
    with virtual_gpu(target):  # for what a dropout keeps
        truth = _by_torch(model, tokens, targets, given, torch.float64)
        plain = _by_torch(model, tokens, targets, given, torch.float32)
    off, worst = _apart(_gradients(model), _gradients(truth[0]))
    own = torchs = Traffic()
    for one, count in _alike(calls):
        own += _alone(one, given, target).times(count)
        torchs += _alone(one, None, target).times(count)
    return Step(
        loss=loss.item(),
        loss_off=abs(loss.item() - truth[1]) / abs(truth[1]),
        gradient_off=off,
        worst=worst,
        torch_off=_apart(_gradients(plain[0]), _gradients(truth[0]))[0],
        own=own,
        torch=torchs,
    )


def own_kernels_in_gpt2(
    targets: Sequence[str] = ("sm_80", "gfx942"), positions: int = SMALL.n_positions, **given: Any
) -> dict[str, dict[str, Any]]:
    """Rows for `lesson.table`: each given function alone in a training step, then all together, on each target.

    positions  of each sequence
    given      as for `step_on`

    Columns: the relative differences of the loss and of the gradients from torch in float64, and that of torch's own
    gradients in float32; launches and bytes touched, of torch in eager mode and of the own kernels, in forward and
    backward of the replaced operators of a small GPT-2 (`SMALL`). Attention is held against torch's in bfloat16, and
    its launches and bytes against those of attention with its scores in memory.
    """
    rows, config = {}, replace(SMALL, n_positions=positions)
    for target in targets:
        parts: dict[str, Given] = {name: {name: function} for name, function in given.items()}
        for name, part in (parts | ({"all": given} if len(given) > 1 else {})).items():
            step = step_on(target, config=config, **part)
            rows[f"{name}, {target}"] = {
                "loss off": step.loss_off,
                "gradients off": step.gradient_off,
                "torch's off": step.torch_off,
                "launches, torch": step.torch.launches,
                "launches, own": step.own.launches,
                "bytes, torch": step.torch.bytes,
                "bytes, own": step.own.bytes,
            }
    return rows


def speed_in_gpt2(
    config: GPT2Config = PRESETS["gpt2"], batch: int = 4, seconds: float = 5.0, **given: Any
) -> dict[str, str]:
    """Tokens/s of a training step in float32 on this machine's GPU, with torch's operators and with own kernels.

    A step is loss and backward, without the optimizer, timed in turn; all given functions are in place. Where attention
    is given, torch's is its fused operator in bfloat16, as the own one. Without a GPU one row says so.
    """
    check(given)
    if probe().vendor == "cpu":
        return {"not timed": "this machine has no GPU, and a virtual GPU has no clock"}
    model, tokens, targets = _drawn(config, batch, 0, given)
    model, tokens, targets = model.to("cuda"), tokens.to("cuda"), targets.to("cuda")

    def step(loss: Callable[..., Tensor]) -> Callable[[], None]:
        def run() -> None:
            model.zero_grad()
            loss(tokens, targets).backward()

        return run

    with with_dropout(model, DROPPED) if "dropout" in given else _as_it_is():
        own, torchs = swapped(model.loss, **given), with_own(model.loss, _same_type(given))
        found = bench(step(own), against=step(torchs), seconds=seconds, device="cuda")
    assert isinstance(found, Ratio)
    return {
        "tokens/s with torch": f"{tokens.numel() / found.against.median:,.0f}",
        "tokens/s with own kernels": f"{tokens.numel() / found.fn.median:,.0f}",
        "times as fast": f"{found.ratio:.2f} ({found.low:.2f} to {found.high:.2f})",
    }


@contextlib.contextmanager
def _as_it_is(*_: Any) -> Iterator[None]:
    yield


def _drawn(config: GPT2Config, batch: int, seed: int, given: Given) -> tuple[GPT2, Tensor, Tensor]:
    """A model with weights so large, and no bias or gain so plain, that every operator matters; and its tokens."""
    if {"softmax", "attention"} <= given.keys():
        raise BadArgument("softmax is a part of attention, which is one call then; give one of the two")
    generator = torch.Generator().manual_seed(seed)
    model = GPT2(config, attention="explicit" if "softmax" in given else "sdpa")
    with torch.no_grad():
        for name, weight in model.named_parameters():
            gain = name.endswith(("ln_1.weight", "ln_2.weight", "ln_f.weight"))
            weight.copy_(float(gain) + 0.2 * torch.randn(weight.shape, generator=generator))
    tokens = torch.randint(config.vocab_size, (batch, config.n_positions + 1), generator=generator)
    return model, tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()


def _by_torch(model: GPT2, tokens: Tensor, targets: Tensor, given: Given, dtype: torch.dtype) -> tuple[GPT2, float]:
    """A copy of the model after the same step by torch alone in `dtype`, and its loss."""
    other = copy.deepcopy(model).to(dtype)
    other.zero_grad()
    stand_ins = _same_type(given) if dtype == torch.float32 else {}
    if "dropout" in given:
        stand_ins |= {"dropout": _dropping_like(given["dropout"])}
    with with_dropout(other, DROPPED) if "dropout" in given else _as_it_is():
        loss = with_own(other.loss, stand_ins)(tokens, targets)
    loss.backward()
    return other, loss.item()


def _same_type(given: Given) -> dict[str, Any]:
    """What makes torch compute in the type in which a given function does, for `with_own`."""
    return {name: None for name in given if OPERATORS[name].dtype is not None}


def _dropping_like(own: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Dropout by torch that keeps what an own one keeps of a tensor of ones."""

    def dropout(x: Tensor, p: float, seed: int) -> Tensor:
        kept = own(torch.ones(x.shape, device=x.device), p, seed) != 0
        return x * kept / (1 - p)

    return dropout


def _gradients(model: GPT2) -> dict[str, Tensor]:
    return {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}


def _apart(found: dict[str, Tensor], truth: dict[str, Tensor]) -> tuple[float, str]:
    """The largest difference of a gradient over the largest element of that gradient, and the weight's name."""
    apart = {}
    for name, want in truth.items():
        off = (found[name].double() - want.double()).abs().max().item()
        apart[name] = off / want.abs().max().item()
    worst = max(apart, key=lambda name: apart[name])
    return apart[worst], worst


def _alike(calls: Sequence[Call]) -> list[tuple[Call, int]]:
    """Calls of one operator with arguments of the same shapes, once, with their number."""

    def shapes(call: Call) -> Any:
        leaves = _pytree.tree_leaves((call.args, call.kwargs))
        return call.operator, tuple(tuple(leaf.shape) if isinstance(leaf, Tensor) else repr(leaf) for leaf in leaves)

    first = {shapes(call): call for call in reversed(calls)}
    return [(first[key], count) for key, count in Counter(map(shapes, calls)).items()]


def _alone(call: Call, given: Given | None, target: str) -> Traffic:
    """Forward and backward of one call, by the given functions or, with None, by torch as on a GPU."""
    row = OPERATORS[call.operator]
    args, kwargs = _pytree.tree_map_only(Tensor, lambda x: _leaf(x, row.dtype), (call.args, call.kwargs))
    leaves = [leaf for leaf in _pytree.tree_leaves((args, kwargs)) if isinstance(leaf, Tensor) and leaf.requires_grad]

    def forward() -> Tensor:
        if given is not None:
            return row.adapt(given[call.operator], 0, *args, **kwargs)
        return (row.eager or call.function)(*args, **kwargs)

    with virtual_gpu(target, l2=True) as gpu, chosen_launches(gpu) as chosen, traffic_of_torch() as beside:
        result = forward()
        beside.away = True
        upstream = torch.ones(result.shape, dtype=result.dtype)
        beside.away = False
        torch.autograd.grad(result, leaves, upstream)
    return traffic_of_kernels(chosen()) + beside.found


def _leaf(tensor: Tensor, dtype: torch.dtype | None) -> Tensor:
    """The same numbers without a history; in `dtype`, if given, and contiguous then."""
    leaf = tensor.detach()
    if dtype is not None:
        leaf = leaf.to(dtype, memory_format=torch.contiguous_format)
    return leaf.requires_grad_(leaf.is_floating_point())

"""How 03.port_gpt2 runs: the reference, the answer where there is no GPU, and what of both is compared."""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn

from gpu_utils.errors import BackendUnavailable
from gpu_utils.exercises.u03_porting_to_rocm.port_switches import AS_BEFORE, watched_switches
from gpu_utils.grading.exercise import Inputs
from gpu_utils.grading.watch import Watch
from gpu_utils.model.gpt2 import GPT2, GPT2Config
from gpu_utils.model.training import accumulated_step, learning_rate, parameter_groups

BETAS = (0.9, 0.95)
ADAM_EPS = 1e-8
"""torch's default, which unit 01 uses."""

_PRODUCTS = {"mm", "addmm", "bmm", "baddbmm"}


class CalledCuda(BackendUnavailable):
    """The answer called cuda() where there is no GPU."""


class PinnedMemory(BackendUnavailable):
    """The answer called pin_memory() where there is no GPU."""


def shapes(config: dict[str, int]) -> dict[str, Tensor]:
    with torch.device("meta"):
        return GPT2(GPT2Config(**config)).state_dict()


def drawn(name: str, like: Tensor, generator: torch.Generator) -> Tensor:
    """Larger than GPT-2's first weights, and no bias zero or gain one, so that everything matters at once."""
    center = 1.0 if name.endswith(("ln_1.weight", "ln_2.weight", "ln_f.weight")) else 0.0
    return center + 0.2 * torch.randn(like.shape, generator=generator)


class _Given:
    """Batches in a given order, as `accumulated_step` draws them."""

    def __init__(self, tokens: Tensor) -> None:
        self._parts = iter(tokens.flatten(0, 1))

    def draw(self) -> tuple[Tensor, Tensor]:
        part = next(self._parts)
        return part[:, :-1], part[:, 1:]


@contextlib.contextmanager
def _apart() -> Iterator[None]:
    """One thread (tensors this small cost more in waiting for a second one), and random numbers of its own."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        torch.set_num_threads(threads)


def _set_apart(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def alone(*args: Any, **kwargs: Any) -> Any:
        with _apart():
            return function(*args, **kwargs)

    return alone


@_set_apart
def port_gpt2_reference(
    config: dict[str, int], weights: dict[str, Tensor], tokens: Tensor, settings: dict[str, Any], on_cpu: bool
) -> dict[str, Any]:
    """Unit 01's own step (`gpu_utils.model.training`) in float64 on the CPU, on the same batches."""
    model = GPT2(GPT2Config(**config)).double()
    model.load_state_dict(weights)
    optimizer = torch.optim.AdamW(parameter_groups(model, settings["weight_decay"]), betas=BETAS, eps=ADAM_EPS)
    given: Any = _Given(tokens)
    losses = []
    for step in range(len(tokens)):
        set_rate(optimizer, step, settings)
        losses.append(accumulated_step(model, given, tokens.shape[1]).item())
        nn.utils.clip_grad_norm_(model.parameters(), settings["clip"])
        optimizer.step()
        optimizer.zero_grad()
    dtype = weights["wte.weight"].dtype
    products = "bfloat16" if settings["bf16"] else _plain_name(dtype)
    return _facts(config, losses, model.state_dict(), tokens, dtype) | {"products": products, "switches": AS_BEFORE}


def set_rate(optimizer: torch.optim.Optimizer, step: int, settings: dict[str, Any]) -> None:
    rates = {name: settings[name] for name in ("warmup", "total", "max_lr", "min_lr")}
    for group in optimizer.param_groups:
        group["lr"] = learning_rate(step, **rates)


def _facts(
    config: dict[str, int], losses: list[float], weights: dict[str, Tensor], tokens: Tensor, dtype: torch.dtype
) -> dict[str, Any]:
    """What is compared: losses, the loss of the new weights, their precision, and in float64 the weights one by one.

    AdamW divides by |g|: where a gradient nearly cancels, its rounding errors become a step of full size (the biases of
    the keys have gradient zero). Such steps change no loss, so narrower types are judged by the loss.
    """
    model = GPT2(GPT2Config(**config)).double()
    model.load_state_dict({name: value.detach().cpu() for name, value in weights.items()})
    with torch.no_grad():
        after = model.loss(tokens[0, 0, :, :-1].cpu(), tokens[0, 0, :, 1:].cpu()).item()
    facts: dict[str, Any] = {
        "losses": losses,
        "loss of the new weights": after,
        "precision of the new weights": _precision(weights, dtype),
    }
    if dtype == torch.float64:
        facts["weights"] = {name: value.detach().clone() for name, value in weights.items()}
    return facts


def _precision(weights: dict[str, Tensor], dtype: torch.dtype) -> str:
    """The dtype, or the first tensor of which a narrower type holds every value: it was trained or rounded there."""
    for narrow in (torch.bfloat16, torch.float16, torch.float32):
        for name, value in weights.items():
            if narrow != dtype and torch.equal(value.to(narrow).to(dtype), value):
                return f"{name} holds numbers of {_plain_name(narrow)}"
    return _plain_name(dtype)


def _plain_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


class _ProductTypes(Watch):
    """Records the dtypes in which matrix products are computed."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        if function.overloadpacket.__name__ in _PRODUCTS:
            self.seen.add(_plain_name(result.dtype))
        return result


@contextlib.contextmanager
def _without_a_gpu() -> Iterator[None]:
    """cuda() and pin_memory() say why they fail, in the same words whatever torch was built for."""
    if torch.cuda.is_available():
        yield
        return

    def refuse(kind: type[BackendUnavailable], what: str) -> Callable[..., Any]:
        def call(*_: Any, **__: Any) -> Any:
            raise kind(
                f"{what} needs a GPU, and this machine has none; the tensors that you are given lie where the "
                "work belongs"
            )

        return call

    with contextlib.ExitStack() as stack:
        for owner in (Tensor, nn.Module):
            stack.enter_context(mock.patch.object(owner, "cuda", refuse(CalledCuda, "cuda()")))
        stack.enter_context(mock.patch.object(Tensor, "pin_memory", refuse(PinnedMemory, "pin_memory()")))
        yield


def _on(device: torch.device, weights: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: value.to(device) for name, value in weights.items()}


@_set_apart
def call(answer: Callable[..., Any], inputs: Inputs) -> dict[str, Any]:
    home, on_cpu, inputs = inputs["tokens"].device, inputs["on_cpu"], dict(inputs)
    del inputs["on_cpu"]
    if on_cpu:
        inputs |= {"weights": _on(torch.device("cpu"), inputs["weights"]), "tokens": inputs["tokens"].cpu()}
    with watched_switches() as switches, _without_a_gpu(), _ProductTypes() as products, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns where "cuda" is asked for and there is none; the verdict tells
        result = answer(**inputs)
    if not isinstance(result, dict) or not isinstance(result.get("weights"), dict) or "losses" not in result:
        raise TypeError("port_gpt2 returned something else than a dict with losses and weights")
    names, missing = set(result["weights"]), inputs["weights"].keys() - result["weights"].keys()
    if missing or len(names) > len(inputs["weights"]):
        raise TypeError(f"weights has {len(names)} tensors, expected the {len(inputs['weights'])} of the input by name")
    dtype = inputs["weights"]["wte.weight"].dtype
    wrong = next((name for name, value in result["weights"].items() if value.dtype != dtype), None)
    if wrong:
        raise TypeError(f"{wrong} came back as {result['weights'][wrong].dtype}, expected {dtype}, as it was given")
    stray = next((name for name, value in result["weights"].items() if value.device != inputs["tokens"].device), None)
    if stray:
        raise TypeError(f"{stray} came back on {result['weights'][stray].device}, expected {inputs['tokens'].device}")
    facts = _facts(inputs["config"], result["losses"], result["weights"], inputs["tokens"], dtype)
    if "weights" in facts:
        facts["weights"] = _on(home, facts["weights"])
    return facts | {"products": " and ".join(sorted(products.seen)), **switches}

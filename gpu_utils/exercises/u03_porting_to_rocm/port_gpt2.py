"""03.port_gpt2: the training step of unit 01, ported from a CUDA-only text to whatever device is there."""

from __future__ import annotations

import contextlib
import math
import random
import warnings
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn

from gpu_utils.analytic.tolerance import Tolerance, tolerance
from gpu_utils.errors import BackendUnavailable
from gpu_utils.exercises.u03_porting_to_rocm.port_switches import AS_BEFORE, watched_switches
from gpu_utils.grading.exercise import Case, Exercise, Inputs, Misconception
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


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    config = {"vocab_size": 61, "n_positions": 12, "n_embd": case["width"], "n_layer": 1, "n_head": 2}
    dtype = torch.float64 if case["precision"] == "float64" else torch.float32
    weights = {name: _drawn(name, value, generator).to(dtype) for name, value in _shapes(config).items()}
    shape = (case["steps"], case["parts"], 3, config["n_positions"] + 1)
    settings = {
        **{"max_lr": 2e-2, "min_lr": 2e-3, "warmup": 2, "total": 6},
        **{"weight_decay": 0.5, "clip": case.get("clip", 1.0), "bf16": case["precision"] == "bfloat16"},
    }
    tokens = torch.randint(config["vocab_size"], shape, generator=generator)
    values = {"config": config, "weights": weights, "tokens": tokens, "settings": settings}
    return {**values, "on_cpu": case.get("on_cpu", False)}


def _shapes(config: dict[str, int]) -> dict[str, Tensor]:
    with torch.device("meta"):
        return GPT2(GPT2Config(**config)).state_dict()


def _drawn(name: str, like: Tensor, generator: torch.Generator) -> Tensor:
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
def _set_apart() -> Iterator[None]:
    """One thread (tensors this small cost more in waiting for a second one), and random numbers of its own."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        torch.set_num_threads(threads)


@_set_apart()
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
        _set_rate(optimizer, step, settings)
        losses.append(accumulated_step(model, given, tokens.shape[1]).item())
        nn.utils.clip_grad_norm_(model.parameters(), settings["clip"])
        optimizer.step()
        optimizer.zero_grad()
    dtype = weights["wte.weight"].dtype
    products = "bfloat16" if settings["bf16"] else _plain_name(dtype)
    return _facts(config, losses, model.state_dict(), tokens, dtype) | {"products": products, "switches": AS_BEFORE}


def _set_rate(optimizer: torch.optim.Optimizer, step: int, settings: dict[str, Any]) -> None:
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


@_set_apart()
def _call(answer: Callable[..., Any], inputs: Inputs) -> dict[str, Any]:
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


def _tolerance(case: Case, inputs: Inputs) -> Tolerance:
    """From K and dtype; unit 09 makes this argument sharp.

    A loss passes about twelve roundings; its longest sums are the 4 d products of an MLP. In float64 the weights
    are compared, too: the error of a gradient (K additions of terms of size 1/rows) is divided by AdamW's eps where the
    gradient itself is near zero, and multiplied by the rate, once a step.
    """
    width, steps, parts = case["width"], case["steps"], case["parts"]
    stages, rows = 12, 3 * 12 * parts
    if case["precision"] == "bfloat16":
        return tolerance(torch.bfloat16, k=stages, accumulator=torch.bfloat16, roundings=stages)
    if case["precision"] == "float32":
        return tolerance(torch.float32, k=stages * 4 * width, roundings=stages)
    step_size = inputs["settings"]["max_lr"] / ADAM_EPS
    return tolerance(torch.float64, k=4 * width + rows, magnitude=steps * step_size / rows, roundings=stages)


def _variant(
    move: Callable[[Tensor], Tensor] = lambda part: part,
    autocast: Callable[[torch.device, bool], Any] = lambda device, bf16: torch.autocast(
        device.type, torch.bfloat16, enabled=bf16
    ),
    scaler: bool = False,
    groups: Callable[[nn.Module, float], Any] = parameter_groups,
    switch: Callable[[], Any] = lambda: None,
    keeps_dtype: bool = True,
    share: Callable[[int], float] = lambda parts: 1 / parts,
    told: Callable[[int], float] = lambda parts: 1 / parts,
    clips_each: bool = False,
    clips: bool = True,
    zeroes_each: bool = False,
) -> Callable[..., dict[str, Any]]:
    """A port: the right one with one thing left as it was."""

    def answer(
        config: dict[str, int], weights: dict[str, Tensor], tokens: Tensor, settings: dict[str, Any]
    ) -> dict[str, Any]:
        switch()
        model = GPT2(GPT2Config(**config)).to(tokens.device)
        if keeps_dtype:
            model = model.to(weights["wte.weight"].dtype)
        model.load_state_dict(weights)
        optimizer = torch.optim.AdamW(groups(model, settings["weight_decay"]), betas=BETAS)
        scale = torch.amp.GradScaler(tokens.device.type, enabled=scaler)
        losses = []
        for step, parts in enumerate(tokens):
            _set_rate(optimizer, step, settings)
            total = 0.0
            for part in parts:
                part = move(part)
                with autocast(part.device, settings["bf16"]):
                    loss = model.loss(part[:, :-1], part[:, 1:])
                if zeroes_each:
                    optimizer.zero_grad()
                scale.scale(loss * share(len(parts))).backward()
                total += loss.item() * told(len(parts))
                if clips_each:
                    nn.utils.clip_grad_norm_(model.parameters(), settings["clip"])
            if clips:
                nn.utils.clip_grad_norm_(model.parameters(), settings["clip"])
            scale.step(optimizer)
            scale.update()
            optimizer.zero_grad()
            losses.append(total)
        return {"losses": losses, "weights": model.state_dict()}

    return answer


def _all_in_bfloat16(
    config: dict[str, int], weights: dict[str, Tensor], tokens: Tensor, settings: dict[str, Any]
) -> dict[str, Any]:
    if not settings["bf16"]:
        return _variant()(config, weights, tokens, settings)
    narrow = {name: value.bfloat16() for name, value in weights.items()}
    found = _variant(autocast=lambda device, bf16: contextlib.nullcontext())(config, narrow, tokens, settings)
    return {**found, "weights": {name: value.float() for name, value in found["weights"].items()}}


def _one_group(model: nn.Module, weight_decay: float) -> Any:
    return [{"params": list(model.parameters()), "weight_decay": weight_decay}]


def _filled(value: float) -> Callable[..., Any]:
    return lambda config, weights, tokens, settings: {
        "losses": [value] * len(tokens),
        "weights": {name: torch.full_like(tensor, value) for name, tensor in weights.items()},
    }


def _fresh(rng: random.Random) -> Case:
    return Case(
        "sizes nobody chose",
        precision=rng.choice(["float64", "float32"]),
        width=2 * rng.randint(4, 10),
        steps=rng.randint(2, 3),
        parts=rng.randint(1, 3),
        clip=rng.choice([0.3, 1.0]),
    )


EXERCISE = Exercise(
    id="03.port_gpt2",
    title="Unit 01's training step on any device",
    parameters=("config", "weights", "tokens", "settings"),
    kind="torch",
    inputs=_inputs,
    reference=port_gpt2_reference,
    tolerance=_tolerance,
    dtype=lambda inputs: inputs["weights"]["wte.weight"].dtype,
    call=_call,
    cases=(
        Case(
            "float64: only the port itself can differ; on the CPU, also where there is a GPU",
            **{"precision": "float64", "width": 16, "steps": 2, "parts": 1, "on_cpu": True},
        ),
        Case("several parts a step, and clipping that bites", precision="float64", width=8, steps=2, parts=2, clip=0.1),
        Case("three parts a step, and clipping that begins to bite", precision="float64", width=8, steps=3, parts=3),
        Case("float32 must stay float32", precision="float32", width=32, steps=2, parts=2),
        Case(
            "matrix products in bfloat16; on the CPU, also where there is a GPU",
            **{"precision": "bfloat16", "width": 32, "steps": 2, "parts": 1, "on_cpu": True},
        ),
    ),
    fresh=_fresh,
    trivial={
        "zeros": _filled(0.0),
        "ones": _filled(1.0),
        "nan": _filled(math.nan),
        "the input": lambda config, weights, tokens, settings: {"losses": [0.0] * len(tokens), "weights": weights},
    },
    misconceptions=(
        Misconception(
            "calls_cuda",
            _variant(move=lambda part: part.cuda()),
            ".cuda() fails where there is no GPU. The tensors that you are given already are where the work belongs: "
            "take the device from them.",
        ),
        Misconception(
            "pins_memory",
            _variant(move=lambda part: part.pin_memory()),
            "pin_memory() is for batches on the CPU on their way to a GPU; without a GPU it raises. The tokens are on "
            "their device already.",
        ),
        Misconception(
            "autocast_of_cuda",
            _variant(autocast=lambda device, bf16: torch.autocast("cuda", torch.bfloat16, enabled=bf16)),
            'torch.autocast("cuda") switches itself off where there is no GPU, with a warning only: the products '
            "stayed in float32. Autocast has a device type; which one belongs here?",
        ),
        Misconception(
            "always_bfloat16",
            _variant(autocast=lambda device, bf16: torch.autocast(device.type, torch.bfloat16)),
            "Autocast is on in every case. It belongs to settings['bf16'] alone.",
        ),
        Misconception(
            "still_float16",
            _variant(autocast=lambda device, bf16: torch.autocast(device.type, torch.float16, enabled=bf16)),
            "The products are still in float16. settings['bf16'] asks for bfloat16, which has the range of float32.",
        ),
        Misconception(
            "scales_and_clips",
            _variant(scaler=True),
            "The gradients are clipped while a GradScaler still has them multiplied, and divided afterwards: what is "
            "left is far too small. bfloat16 and float32 need no scaler at all; float16 needs unscale_ before "
            "clipping.",
        ),
        Misconception(
            "one_group",
            _variant(groups=_one_group),
            "Biases and the gains of norms are shrunk by weight decay. Unit 01 lets matrices decay only: "
            "parameter_groups makes the two groups.",
        ),
        Misconception(
            "leaves_tf32_on",
            _variant(switch=lambda: torch.set_float32_matmul_precision("high")),
            "The switch for tf32 is global, and it changes what float32 means on every device that has such products "
            "(xf32 on MI300X). Where float32 is asked for, leave it alone.",
        ),
        Misconception(
            "all_in_bfloat16",
            _all_in_bfloat16,
            "The model itself is in bfloat16, so a step of AdamW smaller than its last digit is lost. Under autocast "
            "the weights stay as they were given, and only the matrix products are narrow.",
        ),
        Misconception(
            "leaves_attention_kernels_off",
            _variant(switch=lambda: torch.backends.cuda.enable_flash_sdp(False)),
            "Which kernels attention may use is a switch of the whole process: everything that runs after your "
            "function gets it too. This step needs no such switch.",
        ),
        Misconception(
            "leaves_deterministic_mode_on",
            _variant(switch=lambda: torch.use_deterministic_algorithms(True)),
            "Deterministic algorithms are asked for in the whole process, and everything that runs after your function "
            "gets them too. This step needs no such switch.",
        ),
        Misconception(
            "sums_the_parts",
            _variant(share=lambda parts: 1.0, told=lambda parts: 1.0),
            "The loss is as many times too large as there are parts: each part counts with its share, one over the "
            "number of parts.",
        ),
        Misconception(
            "gradient_of_the_sum",
            _variant(share=lambda parts: 1.0),
            "The losses are right and the gradients are as many times too large as there are parts. AdamW hides a "
            "factor, clipping does not: which loss was backward() called on?",
        ),
        Misconception(
            "clips_each_part",
            _variant(clips_each=True),
            "The gradient is clipped after every part. The norm that is meant is that of the whole step, so clip once, "
            "after the last part.",
        ),
        Misconception(
            "never_clips",
            _variant(clips=False),
            "Right where the norm of the gradient is below the bound, wrong where the bound bites. Where is the norm "
            "of the whole step clipped?",
        ),
        Misconception(
            "only_the_last_part",
            _variant(zeroes_each=True),
            "Only the gradient of the last part reaches the optimiser. backward() adds to what is there: when must it "
            "be set to zero, and when not?",
        ),
        Misconception(
            "forgets_the_dtype",
            _variant(keeps_dtype=False),
            "A new model is float32, and load_state_dict rounds the weights to it. Bring the model to the dtype of the "
            "weights first.",
        ),
    ),
    hints=(
        "Go through the old text line by line and ask of each: does it compute something, or does it only exist "
        "because the device was known? Device and dtype can both be read from what you are given.",
        "device = tokens.device and dtype = weights['wte.weight'].dtype; GPT2(...).to(device, dtype) before "
        "load_state_dict. torch.autocast takes device.type and enabled=settings['bf16']. Scaler, tf32 switch, "
        "pin_memory and cuda() all go.",
        "What is left in a step: set each group's lr; for each part the loss divided by len(parts), under autocast, "
        "then backward(); clip_grad_norm_; optimizer.step(); optimizer.zero_grad(). Return the losses and "
        "model.state_dict().",
    ),
    explanation=(
        "The port is shorter than the original: most CUDA-only lines carried no computation. The device follows from "
        "the data, the precision from the settings, and nothing global is switched. In float64 your weights agree with "
        "unit 01's to rounding, so what differs on another chip later is arithmetic and not the port. In float32 "
        "single weights may differ by a whole step of AdamW where a gradient cancels, while the loss agrees in six "
        "digits: unit 09 shows how to tell that from a fault."
    ),
)

"""01.block: one pre-norm transformer block, which may keep its input alone and compute the rest again."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from gpu_utils.analytic.tolerance import Tolerance
from gpu_utils.exercises.u01_gpt2_baseline.attention import attention_reference
from gpu_utils.exercises.u01_gpt2_baseline.mlp import mlp_reference
from gpu_utils.exercises.u01_gpt2_baseline.tensors import (
    chain_tolerance,
    doubled,
    linear_weights,
    normal,
    require_gradients,
)
from gpu_utils.grading.exercise import Case, Exercise, Inputs, Misconception
from gpu_utils.model import gpt2
from gpu_utils.model.costs import saved_bytes

Params = dict[str, Tensor]
Branch = Callable[[Tensor], Tensor]
KEPT, ALONE = "bytes kept beside x and the weights", "x is kept alone"


def _linear(params: Params, name: str) -> tuple[Tensor, Tensor]:
    return params[f"{name}.weight"], params[f"{name}.bias"]


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    dtype, d = getattr(torch, case.get("dtype", "float32")), case["heads"] * case["head_dim"]
    params: Params = {}
    for name in ("ln_1", "ln_2"):
        params[f"{name}.weight"] = 1 + normal(generator, dtype, d, std=0.3)
        params[f"{name}.bias"] = normal(generator, dtype, d, std=0.3)
    shapes = {"attn.c_attn": (d, 3 * d), "attn.c_proj": (d, d), "mlp.c_fc": (d, 4 * d), "mlp.c_proj": (4 * d, d)}
    for name, (n_in, n_out) in shapes.items():
        params[f"{name}.weight"], params[f"{name}.bias"] = linear_weights(generator, dtype, n_in, n_out)
    std = case.get("std", 1.0)
    for name in ("weight", "bias"):  # a small stream stays small until the second norm
        params[f"attn.c_proj.{name}"] *= min(std, 1.0)
    x = normal(generator, dtype, case["batch"], case["tokens"], d, std=std)
    return {"x": x, "params": params, "n_head": case["heads"], "recompute": case.get("recompute", False)}


def _reference(x: Tensor, params: Params, n_head: int, recompute: bool) -> dict[str, Any]:
    return {"y": block_reference(x, params, n_head), KEPT: 0, ALONE: recompute}


def block_reference(x: Tensor, params: Params, n_head: int) -> Tensor:
    """The same function in float64."""
    x, p = doubled(x), doubled(params)

    def norm(h: Tensor, name: str) -> Tensor:
        centred = h - h.mean(-1, keepdim=True)
        variance = centred.square().mean(-1, keepdim=True)
        return centred / (variance + gpt2.NORM_EPS).sqrt() * p[f"{name}.weight"] + p[f"{name}.bias"]

    x = x + attention_reference(norm(x, "ln_1"), *_linear(p, "attn.c_attn"), *_linear(p, "attn.c_proj"), n_head)
    return x + mlp_reference(norm(x, "ln_2"), *_linear(p, "mlp.c_fc"), *_linear(p, "mlp.c_proj"))


def _tolerance(case: Case, inputs: Inputs) -> Tolerance:
    # two norms, two sums, six operations of attention and six of the MLP
    return chain_tolerance(inputs["x"].dtype, 4 * inputs["x"].shape[-1], stages=16)


_GIVEN = {"attention": gpt2.attention, "mlp": gpt2.mlp}
"""By name, because a call goes with what it names to where a class is graded, and there is no GPT-2 of ours there."""


def _call(answer: Any, inputs: Inputs) -> dict[str, Any]:
    x, params, rest = inputs["x"], inputs["params"], dict(_GIVEN)
    rest |= {name: inputs[name] for name in ("n_head", "recompute")}
    value = answer(x=x, params=params, **rest)
    tensors = {"x": x, **params}
    require_gradients({"y": value}, lambda leaves: answer(x=leaves.pop("x"), params=leaves, **rest), tensors)
    if x.device.type == "meta":  # the imaginary device of a check has no autograd
        return {"y": value}
    kept = _kept(lambda leaves: answer(x=leaves.pop("x"), params=leaves, **rest), tensors)
    return {"y": value, KEPT: kept if inputs["recompute"] else 0, ALONE: not kept}


def _kept(call: Callable[[Params], Any], tensors: Params) -> int:
    """Bytes that autograd keeps of a call for backward, beside the tensors that it is given."""
    leaves = torch.nn.ParameterDict({name.replace(".", " "): tensor.clone() for name, tensor in tensors.items()})
    with torch.enable_grad():
        return saved_bytes(leaves, lambda: call({name: leaves[name.replace(".", " ")] for name in tensors}))


def _sublayers(params: Params, n_head: int) -> tuple[Branch, Branch]:
    """The attention and the MLP of the library with this block's weights."""

    def attention(h: Tensor) -> Tensor:
        return gpt2.attention(h, *_linear(params, "attn.c_attn"), *_linear(params, "attn.c_proj"), n_head)

    def mlp(h: Tensor) -> Tensor:
        return gpt2.mlp(h, *_linear(params, "mlp.c_fc"), *_linear(params, "mlp.c_proj"))

    return attention, mlp


def _post_norm(x: Tensor, params: Params, n_head: int, **_given: Any) -> Tensor:
    attention, mlp = _sublayers(params, n_head)
    x = gpt2.layer_norm(x + attention(x), *_linear(params, "ln_1"))
    return gpt2.layer_norm(x + mlp(x), *_linear(params, "ln_2"))


def _residual_of_the_norm(x: Tensor, params: Params, n_head: int, **_given: Any) -> Tensor:
    attention, mlp = _sublayers(params, n_head)
    x = gpt2.layer_norm(x, *_linear(params, "ln_1"))
    x = x + attention(x)
    x = gpt2.layer_norm(x, *_linear(params, "ln_2"))
    return x + mlp(x)


def _no_residual(x: Tensor, params: Params, n_head: int, **_given: Any) -> Tensor:
    attention, mlp = _sublayers(params, n_head)
    x = attention(gpt2.layer_norm(x, *_linear(params, "ln_1")))
    return mlp(gpt2.layer_norm(x, *_linear(params, "ln_2")))


def _parallel(x: Tensor, params: Params, n_head: int, **_given: Any) -> Tensor:
    attention, mlp = _sublayers(params, n_head)
    h1, h2 = (gpt2.layer_norm(x, *_linear(params, name)) for name in ("ln_1", "ln_2"))
    return x + attention(h1) + mlp(h2)


def _one_norm_for_both(x: Tensor, params: Params, n_head: int, **_given: Any) -> Tensor:
    attention, mlp = _sublayers(params, n_head)
    x = x + attention(gpt2.layer_norm(x, *_linear(params, "ln_1")))
    return x + mlp(gpt2.layer_norm(x, *_linear(params, "ln_1")))


def _twice(x: Tensor, params: Params, n_head: int, **_given: Any) -> Tensor:
    attention, mlp = _sublayers(params, n_head)
    x = 2 * x + attention(gpt2.layer_norm(x, *_linear(params, "ln_1")))
    return 2 * x + mlp(gpt2.layer_norm(x, *_linear(params, "ln_2")))


def _recomputed(parts: str) -> Callable[..., Tensor]:
    """The right block, which computes again what `parts` names: "none", "branches", "the last branch", "always"."""

    def answer(x: Tensor, params: Params, n_head: int, recompute: bool, **_given: Any) -> Tensor:
        attention, mlp = _sublayers(params, n_head)

        def attended(x: Tensor) -> Tensor:
            return x + attention(gpt2.layer_norm(x, *_linear(params, "ln_1")))

        def widened(x: Tensor) -> Tensor:
            return x + mlp(gpt2.layer_norm(x, *_linear(params, "ln_2")))

        if parts == "none" or not (recompute or parts == "always"):
            return widened(attended(x))
        if parts == "always":
            return checkpoint(lambda x: widened(attended(x)), x, use_reentrant=False)
        x = checkpoint(attended, x, use_reentrant=False) if parts == "branches" else attended(x)
        return checkpoint(widened, x, use_reentrant=False)

    return answer


def _with_own_norm(std: Branch) -> Callable[..., Tensor]:
    def answer(x: Tensor, params: Params, n_head: int, **_given: Any) -> Tensor:
        attention, mlp = _sublayers(params, n_head)

        def norm(h: Tensor, name: str) -> Tensor:
            return (h - h.mean(-1, keepdim=True)) / std(h) * params[f"{name}.weight"] + params[f"{name}.bias"]

        x = x + attention(norm(x, "ln_1"))
        return x + mlp(norm(x, "ln_2"))

    return answer


def _fresh(rng: random.Random) -> Case:
    return Case(
        "a fresh case with odd sizes",
        batch=rng.randint(1, 3),
        tokens=rng.randint(2, 24),
        heads=rng.randint(1, 4),
        head_dim=rng.randint(3, 10),
        dtype=rng.choice(["float32", "float32", "bfloat16"]),
        recompute=rng.choice([False, True]),
    )


EXERCISE = Exercise(
    id="01.block",
    title="A pre-norm block that can keep its input alone",
    parameters=("x", "params", "n_head", "attention", "mlp", "recompute"),
    kind="torch",
    inputs=_inputs,
    reference=_reference,
    dtype=lambda inputs: inputs["x"].dtype,
    tolerance=_tolerance,
    call=_call,
    trivial={
        "zeros": lambda x, **_: torch.zeros_like(x),
        "ones": lambda x, **_: torch.ones_like(x),
        "nan": lambda x, **_: torch.full_like(x, math.nan),
        "input": lambda x, **_: x,
    },
    cases=(
        Case("a single token", batch=1, tokens=1, heads=2, head_dim=4),
        Case("odd sizes on every axis", batch=2, tokens=5, heads=3, head_dim=3),
        Case("a residual stream so small that eps decides the norm", batch=1, tokens=6, heads=2, head_dim=8, std=0.002),
        Case("a residual stream of size 30, as deep in a real model", batch=2, tokens=4, heads=2, head_dim=6, std=30.0),
        Case(
            "recomputed: odd sizes, and forward is the same function",
            **{"batch": 2, "tokens": 6, "heads": 3, "head_dim": 3, "recompute": True},
        ),
        Case(
            "recomputed: nothing of a long sequence is kept but x",
            **{"batch": 1, "tokens": 40, "heads": 2, "head_dim": 4, "recompute": True},
        ),
        Case("bfloat16, as on the device", batch=2, tokens=17, heads=2, head_dim=8, dtype="bfloat16"),
    ),
    fresh=_fresh,
    misconceptions=(
        Misconception(
            "post_norm",
            _post_norm,
            "The norm comes after the sum here, as in the Transformer of 2017. GPT-2 normalises the input of a "
            "branch and leaves the residual stream alone.",
        ),
        Misconception(
            "residual_of_the_norm",
            _residual_of_the_norm,
            "The branch is added to the normalised input. What must travel past the branch untouched?",
        ),
        Misconception(
            "no_residual",
            _no_residual,
            "Nothing travels past the branches. Each branch adds to its input.",
        ),
        Misconception(
            "parallel_branches",
            _parallel,
            "Both branches read the same x. The MLP must see what attention has added.",
        ),
        Misconception(
            "one_norm_for_both",
            _one_norm_for_both,
            "Both branches use ln_1. The second branch has a weight and bias of its own.",
        ),
        Misconception(
            "residual_counted_twice",
            _twice,
            "The stream is added twice: `attention` and `mlp` return their branch alone, and one sum joins it.",
        ),
        Misconception(
            "unbiased_variance",
            _with_own_norm(lambda h: (h.var(-1, keepdim=True) + gpt2.NORM_EPS).sqrt()),
            "The variance of a layer norm divides by d. torch.var divides by d - 1 unless told otherwise.",
        ),
        Misconception(
            "eps_outside_the_root",
            _with_own_norm(lambda h: h.var(-1, unbiased=False, keepdim=True).sqrt() + gpt2.NORM_EPS),
            "Right for large inputs, wrong for small ones: eps is added to the variance, inside the square root.",
        ),
        Misconception(
            "nothing_recomputed",
            _recomputed("none"),
            "Right without recompute. With it, all that both branches computed is still kept for backward.",
        ),
        Misconception(
            "each_branch_on_its_own",
            _recomputed("branches"),
            "Each branch is recomputed on its own, so the stream between them is kept beside x. Recompute from x on.",
        ),
        Misconception(
            "always_recomputed",
            _recomputed("always"),
            "The numbers are right, and the block is computed twice also where recompute is false.",
        ),
        Misconception(
            "the_last_branch_alone",
            _recomputed("the last branch"),
            "Only the MLP is computed again; what attention computed is kept. Both branches belong to it.",
        ),
    ),
    hints=(
        "Write the block as a function of x alone, first without recompute. Each branch normalises what it reads, and "
        "its result is added to the residual stream.",
        "First x = x + attention(norm(x, ln_1)); then the same pattern with the MLP and ln_2, on the new x. With "
        "recompute, the function is not called: checkpoint calls it.",
        'h = F.layer_norm(x, (d,), params["ln_1.weight"], params["ln_1.bias"]); then x = x + attention(h, ...) with '
        "the four tensors of attn.* and n_head; then the same two lines with ln_2 and mlp. These lines in a function "
        "whole(x): return checkpoint(whole, x, use_reentrant=False) if recompute else whole(x).",
    ),
    explanation=(
        "In a pre-norm block the residual stream runs from the embedding to the last norm without ever being "
        "normalised: gradients reach the first layer directly. The price is that the stream grows with depth, which is "
        "why 01.init scales down the weights that write to it. With recompute, forward leaves x alone behind, and "
        "backward begins with a second forward: 4 FLOPs where there were 3."
    ),
)

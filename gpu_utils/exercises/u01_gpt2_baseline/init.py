"""01.init: the initial weights of GPT-2, judged by their statistics and by what is shared."""

from __future__ import annotations

import math
import random
from typing import Any

import torch
from torch import Tensor

from gpu_utils.analytic.tolerance import Tolerance
from gpu_utils.grading.exercise import Case, Exercise, Inputs, Misconception

STD = 0.02
_KINDS = ("all other matrices together", "all c_proj.weight together")
_ENOUGH_FOR_TAILS = 200_000  # of which a normal distribution has 13 beyond four standard deviations
_FEW = 10_000  # numbers that are counted without waiting; a repetition shows in small tensors as well
Shapes = dict[str, list[int]]


def gpt2_shapes(vocab_size: int, n_positions: int, n_embd: int, n_layer: int) -> Shapes:
    """Name -> shape of every parameter of a GPT-2, with the names of its state dict; lm_head.weight is the tied one.

    >>> gpt2_shapes(50257, 1024, 768, 12)["h.11.mlp.c_fc.weight"]
    [3072, 768]
    """
    d = n_embd
    shapes = {"wte.weight": [vocab_size, d], "wpe.weight": [n_positions, d]}
    layer = {
        **{"ln_1.weight": [d], "ln_1.bias": [d]},
        **{"attn.c_attn.weight": [3 * d, d], "attn.c_attn.bias": [3 * d]},
        **{"attn.c_proj.weight": [d, d], "attn.c_proj.bias": [d]},
        **{"ln_2.weight": [d], "ln_2.bias": [d]},
        **{"mlp.c_fc.weight": [4 * d, d], "mlp.c_fc.bias": [4 * d]},
        **{"mlp.c_proj.weight": [d, 4 * d], "mlp.c_proj.bias": [d]},
    }
    shapes |= {f"h.{n}.{name}": list(shape) for n in range(n_layer) for name, shape in layer.items()}
    return shapes | {"ln_f.weight": [d], "ln_f.bias": [d], "lm_head.weight": [vocab_size, d]}


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    shapes = gpt2_shapes(case["vocab"], case["positions"], case["width"], case["layers"])
    seed = int(torch.randint(2**31, (1,), generator=generator))
    return {"shapes": shapes, "n_layer": case["layers"], "seed": seed}


def _reference(shapes: Shapes, n_layer: int, seed: int) -> dict[str, Any]:
    tensors: dict[str, Any] = {}
    for name, shape in shapes.items():
        if name.endswith("bias") or "ln_" in name:
            tensors[name] = {"shape": shape, "dtype": "torch.float32", "values": f"all {float('bias' not in name)}"}
        else:
            values = {"std": _wanted(name, n_layer), "mean": "0 within the noise", "distribution": "normal"}
            tensors[name] = {"shape": shape, "dtype": "torch.float32", **values}
    return {
        "tensors": tensors,
        "lm_head.weight is": "wte.weight",
        "layers": "drawn independently",
        **dict.fromkeys(_KINDS, "normal, as large as asked"),
        "the same seed again": "the same numbers",
        "another seed": "other numbers",
    }


def _call(answer: Any, inputs: Inputs) -> dict[str, Any]:
    """What can be said about the tensors of an answer, as plain data."""
    made, again = answer(**inputs), answer(**inputs)
    apart = 1 if inputs["n_layer"] % 2 else 1000  # an answer that drops the last bit, or keeps it alone, is found
    other = answer(**{**inputs, "seed": inputs["seed"] ^ apart})
    if not isinstance(made, dict):
        raise TypeError(f"init returned {type(made).__name__}, expected a dict from name to tensor")
    drawn = [name for name in made if "ln_" not in name and not name.endswith("bias") and name != "lm_head.weight"]
    head, embedding = made.get("lm_head.weight"), made.get("wte.weight")
    sizes = {
        kind: _together([(made[name], _wanted(name, inputs["n_layer"])) for name in drawn if _kind(name) == kind])
        for kind in _KINDS
    }
    copied = "a copy of wte.weight" if _equal(head, embedding) else "a tensor of its own"
    aliased = "another tensor in the memory of wte.weight" if _same_memory(head, embedding) else copied
    repeated = all(_equal(made[name], again.get(name)) for name in made)
    kept = [name for name in drawn if _equal(made[name], other.get(name))]
    return {
        "tensors": {name: _describe(name, tensor) for name, tensor in made.items()},
        "lm_head.weight is": "wte.weight" if head is embedding else aliased,
        "layers": "drawn independently" if len({_start(made[name]) for name in drawn}) == len(drawn) else "equal",
        **sizes,
        "the same seed again": "the same numbers" if repeated else "other numbers",
        "another seed": f"the same numbers in {kept[0]}" if kept else "other numbers",
    }


def _kind(name: str) -> str:
    return _KINDS[name.endswith("c_proj.weight")]


def _wanted(name: str, n_layer: int) -> float:
    """The standard deviation that a drawn tensor is asked for."""
    return STD / math.sqrt(2 * n_layer) if name.endswith("c_proj.weight") else STD


def _together(drawn: list[tuple[Any, float]]) -> str:
    """What can be said about all tensors of a kind at once: many numbers show what those of one tensor hide."""
    if not all(isinstance(tensor, Tensor) for tensor, _ in drawn):
        return "no tensors"
    z = torch.cat([tensor.detach().double().flatten() / std for tensor, std in drawn])
    ratio = z.std().item()
    if not abs(ratio - 1) <= 6 / math.sqrt(2 * len(z)):
        return f"the standard deviation is {ratio:.3f} times what was asked"
    if len(z) >= _ENOUGH_FOR_TAILS and not (z.abs() > 4).any():
        return f"cut off at {z.abs().max().item():.1f} standard deviations: no number lies beyond"
    return "normal, as large as asked"


def _describe(name: str, tensor: Any) -> Any:
    if not isinstance(tensor, Tensor):
        return type(tensor).__name__
    described: dict[str, Any] = {"shape": list(tensor.shape), "dtype": str(tensor.dtype)}
    x = tensor.detach().double().flatten()
    if name.endswith("bias") or "ln_" in name:
        return described | {"values": f"all {x[0].item()}" if (x == x[0]).all() else "not all equal"}
    std = x.std().item()
    centred = x.mean().abs().item() <= 6 * std / math.sqrt(x.numel())
    # a normal sample this large has values past 2.5 standard deviations; a uniform one ends at 1.73
    tails = bool((x.abs() > 2.5 * std).any())
    distribution = "normal" if tails else "not normal: it has no tails"
    if x.numel() < _FEW and len(x.unique()) < 0.9 * x.numel():
        distribution = "not normal: its numbers repeat"
    mean = "0 within the noise" if centred else f"{x.mean().item():.3g}"
    return described | {"std": std, "mean": mean, "distribution": distribution}


def _start(tensor: Any) -> Any:
    """The first numbers of a tensor without their scale: the same for two that a generator drew from one state."""
    if not isinstance(tensor, Tensor):
        return id(tensor)
    first = tensor.detach().double().flatten()[:8]
    return tuple((first / first.norm()).mul(1000).round().tolist())


def _equal(one: Any, other: Any) -> bool:
    return isinstance(one, Tensor) and isinstance(other, Tensor) and torch.equal(one, other)


def _same_memory(one: Any, other: Any) -> bool:
    return isinstance(one, Tensor) and isinstance(other, Tensor) and one.data_ptr() == other.data_ptr()


def _tolerance(case: Case, inputs: Inputs) -> Tolerance:
    smallest = min(math.prod(shape) for shape in inputs["shapes"].values() if len(shape) == 2)
    return Tolerance(6 / math.sqrt(2 * smallest), 0.0, f"six standard errors of a std over {smallest} numbers")


def _variant(
    residual: str = "2L",
    std: float = STD,
    tie: str = "share",
    reseed: bool = False,
    uniform: bool = False,
    cut: float = math.inf,
    variance: bool = False,
    half_seeded: bool = False,
) -> Any:
    """A wrong initialisation: the right one with one thing changed."""

    def answer(shapes: Shapes, n_layer: int, seed: int) -> dict[str, Tensor]:
        g = torch.Generator().manual_seed(seed)
        out = {}
        for name, shape in shapes.items():
            if name.endswith("bias"):
                out[name] = torch.zeros(shape)
            elif "ln_" in name:
                out[name] = torch.ones(shape)
            else:
                g = torch.Generator().manual_seed(seed) if reseed else g
                fixed = half_seeded and not name.startswith("h.")
                own = torch.Generator().manual_seed(len(name)) if fixed else g
                scale = {"2L": math.sqrt(2 * n_layer), "L": math.sqrt(n_layer), "2L squared": 2 * n_layer, "none": 1.0}
                size = std / scale[residual] if name.endswith("c_proj.weight") else std
                if uniform:
                    bound = shape[-1] ** -0.5
                    out[name] = (torch.rand(shape, generator=g) * 2 - 1) * bound
                else:
                    size = size**2 if variance else size
                    out[name] = torch.randn(shape, generator=own).clamp(-cut, cut) * size
        if tie == "share":
            out["lm_head.weight"] = out["wte.weight"]
        if tie == "copy":
            out["lm_head.weight"] = out["wte.weight"].clone()
        if tie == "alias":
            out["lm_head.weight"] = out["wte.weight"].detach()
        return out

    return answer


def _filled(value: float) -> Any:
    return lambda shapes, n_layer, seed: {name: torch.full(shape, value) for name, shape in shapes.items()}


def _fresh(rng: random.Random) -> Case:
    return Case(
        "a fresh model",
        layers=rng.randint(2, 9),
        width=rng.randint(36, 56),
        vocab=rng.randint(60, 150),
        positions=rng.randint(32, 70),
    )


EXERCISE = Exercise(
    id="01.init",
    title="Initial weights: scaled residual writers, tied embedding",
    parameters=("shapes", "n_layer", "seed"),
    kind="host",
    inputs=_inputs,
    reference=_reference,
    tolerance=_tolerance,
    call=_call,
    trivial={
        "zeros": _filled(0.0),
        "ones": _filled(1.0),
        "nan": _filled(math.nan),
        "input": lambda shapes, n_layer, seed: shapes,
    },
    cases=(
        Case("one layer: two branches write to the residual stream", layers=1, width=48, vocab=101, positions=40),
        Case(
            "three layers: 1/sqrt(2L), 1/sqrt(L) and 1/(2L) are far apart", layers=3, width=48, vocab=97, positions=48
        ),
        Case("as deep as GPT-2 124M", layers=12, width=40, vocab=64, positions=64),
        Case(
            "hundreds of thousands of numbers: small errors of size and cut tails show",
            layers=2,
            width=112,
            vocab=500,
            positions=96,
        ),
    ),
    fresh=_fresh,
    misconceptions=(
        Misconception(
            "no_residual_scaling",
            _variant(residual="none"),
            "The weights that write to the residual stream (c_proj) are as large as the others. 2L branches add up "
            "there.",
        ),
        Misconception(
            "cut_off",
            _variant(cut=3.0),
            "The numbers end at three standard deviations. GPT-2's are normal ones, with tails: draw them with "
            "torch.randn, and cut nothing.",
        ),
        Misconception(
            "variance_for_deviation",
            _variant(variance=True),
            "The numbers are far too small: 0.02 is the standard deviation, not its square.",
        ),
        Misconception(
            "scaled_by_root_of_layers",
            _variant(residual="L"),
            "c_proj is scaled by 1/sqrt(L). How many branches write to the residual stream in each layer?",
        ),
        Misconception(
            "scaled_without_root",
            _variant(residual="2L squared"),
            "c_proj is scaled by 1/(2L). Variances add, not standard deviations: what does that make of the factor?",
        ),
        Misconception(
            "untied",
            _variant(tie="draw"),
            "lm_head.weight was drawn on its own. In GPT-2 it is the token embedding.",
        ),
        Misconception(
            "tied_by_copy",
            _variant(tie="copy"),
            "lm_head.weight equals wte.weight now, but it is a copy: after one optimiser step they differ. Share it.",
        ),
        Misconception(
            "tied_by_memory_alone",
            _variant(tie="alias"),
            "lm_head.weight shares the memory of wte.weight, but it is another tensor, which gets a gradient of its "
            "own. Put the same tensor under both names.",
        ),
        Misconception(
            "embeddings_without_the_seed",
            _variant(half_seeded=True),
            "Another seed leaves some tensors as they were. Draw all of them from the one generator.",
        ),
        Misconception(
            "seeded_again_for_each_tensor",
            _variant(reseed=True),
            "Layers hold the same numbers: the generator starts anew for every tensor. Make it once, before the loop.",
        ),
        Misconception(
            "default_of_linear",
            _variant(uniform=True),
            "The numbers are uniform with a bound of 1/sqrt(fan-in), PyTorch's default. GPT-2 draws normal ones of "
            "standard deviation 0.02.",
        ),
    ),
    hints=(
        "Go through the shapes by name. There are four kinds: biases, layer-norm weights, c_proj weights, the rest.",
        "Biases are 0, weights of ln_1, ln_2 and ln_f are 1, the rest normal with 0.02, c_proj.weight with "
        "0.02 / sqrt(2 n_layer). One generator for all.",
        "torch.randn(shape, generator=g) * std with g = torch.Generator().manual_seed(seed) made before the loop; "
        'after it, out["lm_head.weight"] = out["wte.weight"].',
    ),
    explanation=(
        "Each layer adds two branches to the residual stream. If each has variance s², 2L of them have 2L s²: "
        "scaling their last weights by 1/sqrt(2L) keeps the stream the same size at any depth. The tied embedding "
        "is one tensor with two uses: 38.6 million parameters saved at 124M, and gradients from both ends."
    ),
)

"""10.moe_block: routed experts for the tokens that chose them, and a shared expert for all."""

from __future__ import annotations

import functools
import math
import random
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from gpu_utils.analytic.tolerance import Tolerance, tolerance
from gpu_utils.exercises.drawing import signed
from gpu_utils.exercises.gradient import forward_and_backward
from gpu_utils.exercises.u10_mla_moe import moe_block_slips as slips
from gpu_utils.grading.exercise import Case, Example, Exercise, Inputs, Misconception

WANTED = ("x", "weights", "gate", "up", "down", "shared_gate", "shared_up", "shared_down")
PARTS = ("y", *(f"d{name}" for name in WANTED), "work")
MOST_WORK = 1.1


def _counted(answer: Any, inputs: Inputs) -> dict[str, Any]:
    """y, its gradients, and "work": FLOPs of the forward pass's products over those that are needed, 1 at the least."""
    from torch.utils.flop_counter import FlopCounterMode

    from gpu_utils.errors import GradientLost

    T, D = inputs["x"].shape
    chosen = inputs["experts"].numel() * inputs["gate"].shape[1] + T * len(inputs["shared_gate"])
    counter = FlopCounterMode(display=False)

    def counting(**arguments: Any) -> Any:
        with counter:
            return answer(**arguments)

    try:
        found = forward_and_backward(*WANTED)(counting, inputs)
    except GradientLost as problem:
        raise GradientLost(
            "y does not know how to go backward (y.requires_grad is False); something cut it off from x and the "
            "matrices: look for no_grad, detach, .data, .item() or numpy"
        ) from problem
    return found | {"work": max(1.0, counter.get_total_flops() / (6 * D * chosen))}


@functools.cache
def _let_the_counter_be_ready() -> None:
    """torch's counter of FLOPs imports sympy with the first product: seconds, which are not the answer's."""
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False):
        torch.zeros(1, 1) @ torch.zeros(1, 1)


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    _let_the_counter_be_ready()
    T, D, E, inner, shared, k = (case[name] for name in ("T", "D", "E", "inner", "shared", "k"))
    dtype = getattr(torch, case.get("dtype", "float32"))
    liking = torch.randn(T, E, generator=generator) + torch.linspace(0, 2, E)  # some are busier than others
    liking[:, : case.get("idle", 0)] = -math.inf
    experts = liking.topk(k, dim=1).indices
    weights = 2.5 * torch.softmax(signed((T, k), generator), dim=1)
    shapes = {
        "x": (T, D), "gate": (E, inner, D), "up": (E, inner, D), "down": (E, D, inner), "shared_gate": (shared, D),
        "shared_up": (shared, D), "shared_down": (D, shared), "dy": (T, D),
    }  # fmt: skip
    drawn = {}
    for name, shape in shapes.items():
        size = 1.0 if name in ("x", "dy") else 1.5 / math.sqrt(shape[-1])
        drawn[name] = (size * signed(shape, generator)).to(dtype)
    return {"x": drawn.pop("x"), "weights": weights, "experts": experts, **drawn}


def moe_block_reference(
    x: Tensor, weights: Tensor, experts: Tensor, dy: Tensor, **matrices: Tensor
) -> dict[str, Tensor | float]:
    leaves = {"x": x, "weights": weights, **matrices}
    leaves = {name: value.double().requires_grad_() for name, value in leaves.items()}

    def swiglu(rows: Tensor, gate: Tensor, up: Tensor, down: Tensor) -> Tensor:
        return F.linear(F.silu(F.linear(rows, gate)) * F.linear(rows, up), down)

    rows = leaves["x"]
    y = swiglu(rows, *(leaves[f"shared_{part}"] for part in ("gate", "up", "down")))
    for number, expert in enumerate(zip(leaves["gate"], leaves["up"], leaves["down"], strict=True)):
        token, place = (experts == number).nonzero(as_tuple=True)
        y = y.index_add(0, token, leaves["weights"][token, place].unsqueeze(1) * swiglu(rows[token], *expert))
    gradients = torch.autograd.grad(y, list(leaves.values()), dy.double())
    return {
        "y": y.detach(),
        **{f"d{name}": grad for name, grad in zip(leaves, gradients, strict=True)},
        "work": 1.0,
    }


def _tolerance(case: Case, inputs: Inputs) -> dict[str, Tolerance]:
    # Inner values, and what an expert makes of them, are near 1 and at most a few; each product adds K of them, and
    # what the first ones lost is in the last. A weight's gradient sums D, a matrix's one for each of its tokens.
    T, D = inputs["x"].shape
    inner, shared = inputs["gate"].shape[1], len(inputs["shared_gate"])
    dtype = inputs["x"].dtype
    narrow = dtype == torch.bfloat16
    length = D + inner + shared
    if narrow:  # some eight roundings to bfloat16 on the way, of values of a few; a matrix's gradient adds up tokens
        sizes = dict.fromkeys(PARTS, 4.0) | {"y": 1.0, "dx": 2.0, "dweights": math.sqrt(D) / 4}
        found = {
            name: tolerance(dtype, k=8, magnitude=size, accumulator=dtype, roundings=8) for name, size in sizes.items()
        }
    else:
        found = {name: tolerance(dtype, k=length + T, magnitude=4.0, roundings=8) for name in PARTS}
    return found | {"work": Tolerance(0.0, MOST_WORK - 1, "a tenth more than the products that are needed")}


def _dtypes(inputs: Inputs) -> dict[str, torch.dtype | None]:
    dtype = inputs["x"].dtype
    return dict.fromkeys(PARTS, dtype) | {"dweights": torch.float32, "work": None}


def _fresh(rng: random.Random) -> Case:
    E = rng.randrange(5, 12)
    return Case(
        "sizes nobody chose",
        T=rng.randrange(20, 70),
        D=rng.randrange(17, 50),
        E=E,
        inner=rng.randrange(20, 40),
        shared=rng.randrange(20, 60),
        k=rng.randrange(2, 4),
    )


def _filled(value: float) -> Any:
    def answer(x: Tensor, weights: Tensor, **matrices: Tensor) -> Tensor:
        experts = matrices.pop("experts")
        cut = sum((0.0 * matrix.sum() for matrix in matrices.values()), 0.0 * weights.sum().to(x.dtype))
        return 0.0 * x + cut + value * torch.ones_like(x) + 0.0 * experts.sum()

    return answer


EXERCISE = Exercise(
    id="10.moe_block",
    title="A mixture of experts with a shared one",
    parameters=("x", "weights", "experts", "gate", "up", "down", "shared_gate", "shared_up", "shared_down"),
    kind="torch",
    inputs=_inputs,
    reference=moe_block_reference,
    tolerance=_tolerance,
    dtype=_dtypes,
    call=_counted,
    parts=PARTS,
    cases=(
        Case("no two sizes are alike", T=37, D=24, E=8, inner=28, shared=30, k=3),
        Case("one expert for each token; nobody chose three", T=21, D=32, E=7, inner=20, shared=33, k=1, idle=3),
        Case("bfloat16, with weights in float32", T=40, D=48, E=6, inner=36, shared=40, k=2, dtype="bfloat16"),
        Example(
            "the example of the docstring",
            x=lambda: torch.tensor([[1.0, 2.0]]),
            weights=lambda: torch.tensor([[0.5]]),
            experts=lambda: torch.tensor([[1]]),
            gate=lambda: torch.tensor([[[0.0, 0.0]], [[1.0, 0.0]]]),
            up=lambda: torch.tensor([[[0.0, 0.0]], [[0.0, 1.0]]]),
            down=lambda: torch.tensor([[[0.0], [0.0]], [[1.0], [0.0]]]),
            shared_gate=lambda: torch.zeros(1, 2),
            shared_up=lambda: torch.zeros(1, 2),
            shared_down=lambda: torch.zeros(2, 1),
            dy=lambda: torch.tensor([[1.0, -1.0]]),
        ),
        Case("a single token", T=1, D=20, E=9, inner=24, shared=18, k=4),
    ),
    fresh=_fresh,
    trivial={
        "zeros": _filled(0.0),
        "ones": _filled(1.0),
        "nan": _filled(math.nan),
        "input": lambda x, weights, experts, **matrices: x + _filled(0.0)(x, weights, experts=experts, **matrices),
    },
    misconceptions=(
        Misconception(
            "all_experts",
            slips.all_experts,
            "y and its gradients are right, and every expert computed every token, most of it to be multiplied by 0. A "
            "model with 256 experts would do 32 times the work: pick the rows of an expert's tokens first.",
        ),
        Misconception(
            "padded_to_the_largest",
            slips.padded_to_the_largest,
            "y and its gradients are right, and each expert got as many rows as the busiest one: rows of zeros cost as "
            "much as tokens. Let every expert have its own number of rows.",
        ),
        Misconception(
            "weights_forgotten",
            slips.answer(after=lambda rows, weight: rows),
            "What the experts gave was added up as it is. Each row counts as much as its weight says.",
        ),
        Misconception(
            "weight_on_the_input",
            slips.answer(before=lambda rows, weight: rows * weight, after=lambda rows, weight: rows),
            "The weight multiplies what goes into an expert. SwiGLU is not linear: multiply what comes out.",
        ),
        Misconception(
            "weights_normalised_again",
            slips.answer(of_weights=lambda weights: weights / weights.sum(1, keepdim=True)),
            "The weights of a token were divided by their sum. They come from the gate as they are to be used: their "
            "sum is the scale of the routed part.",
        ),
        Misconception(
            "weights_without_a_gradient",
            slips.answer(of_weights=lambda weights: weights.detach()),
            "y is right, and no gradient goes back to the weights. They are the only way on which the gate learns.",
        ),
        Misconception(
            "weight_of_the_first_choice",
            slips.answer(place=lambda at, expert: torch.zeros_like(at)),
            "Every expert's row is weighed by the token's first weight. weights[t, j] belongs to experts[t, j].",
        ),
        Misconception(
            "weights_in_order_of_experts",
            slips.answer(of_experts=lambda experts: experts.sort(dim=1).values),
            "The experts of a token were sorted and its weights were not: a weight then meets somebody else's expert.",
        ),
        Misconception(
            "only_the_first_choice",
            slips.answer(of_experts=lambda experts: experts[:, :1]),
            "Only the first expert of each token was computed. A token has k of them.",
        ),
        Misconception(
            "last_expert_overwrites",
            slips.answer(overwrites=True),
            "A token has what its last expert gave, and nothing of the others: y[token] = ... replaces. Add.",
        ),
        Misconception(
            "full_experts_drop_tokens",
            slips.answer(at_most=4),
            "Some tokens of busy experts are missing, as with a capacity. Nothing is dropped here: an expert takes all "
            "tokens that chose it.",
        ),
        Misconception(
            "no_shared_expert",
            slips.answer(shared=0.0),
            "The shared expert is missing. Every token goes through it, with weight 1.",
        ),
        Misconception(
            "mean_of_both_parts",
            slips.answer(shared=0.5, routed=0.5),
            "All is half of what it should be: the routed part and the shared one are added, not averaged.",
        ),
        Misconception(
            "residual_inside",
            slips.answer(residual=True),
            "x was added. The block adds the residual, around the layer; the layer gives its own part alone.",
        ),
        Misconception(
            "silu_of_up",
            slips.answer(inner=lambda gated, up: gated * F.silu(up)),
            "SiLU was taken of the up projection. It belongs on the gate's: silu(x gateᵀ) * (x upᵀ).",
        ),
        Misconception(
            "sigmoid_alone",
            slips.answer(inner=lambda gated, up: torch.sigmoid(gated) * up),
            "The gate is sigmoid(z). SwiGLU has silu(z) = z * sigmoid(z).",
        ),
        Misconception(
            "gelu",
            slips.answer(inner=lambda gated, up: F.gelu(gated) * up),
            "The numbers are near, and the gate is a GELU. SwiGLU has SiLU, z * sigmoid(z).",
        ),
        Misconception(
            "silu_of_the_product",
            slips.answer(inner=lambda gated, up: F.silu(gated * up)),
            "SiLU was taken of the product of both projections. It is taken of the gate's alone, and then multiplied.",
        ),
        Misconception(
            "result_in_float32",
            slips.answer(dtype=torch.float32),
            "The weights are float32, and so became y. It has the dtype of x.",
        ),
        Misconception(
            "x_without_a_gradient",
            slips.answer(of_x=lambda x: x.detach()),
            "y is right, and no gradient goes back to x: the layers below would not learn.",
        ),
        Misconception(
            "experts_without_a_gradient",
            slips.answer(of_matrices=lambda matrices: matrices.detach()),
            "y is right, and the experts' matrices get no gradient. Look for detach, .data or a new tensor made of "
            "their numbers.",
        ),
        Misconception(
            "without_autograd",
            slips.no_grad,
            "The whole computation was hidden from autograd. A layer that trains needs its way back: no no_grad here.",
        ),
    ),
    hints=(
        "Which rows of x does expert 3 need? experts == 3 knows, and also in which column its weight stands.",
        "For each expert: token, place = (experts == e).nonzero(as_tuple=True). Compute x[token] alone, weigh the rows "
        "by weights[token, place], and add them at their tokens. Then the shared expert on all of x.",
        "y = y.index_add(0, token, rows.to(x.dtype)) adds rows at their places, and autograd knows its way back. An "
        "expert without tokens computes no rows, which is fine: its products are empty.",
    ),
    explanation=(
        "Indexing gathers the rows of an expert, and its gradient scatters them back; index_add scatters, and its "
        "gradient gathers. So the loop over experts needs no backward of its own. Its products are ragged: each expert "
        "has as many rows as it was chosen. A grouped GEMM (10.grouped_gemm) does all of them in one launch. The "
        "weights are float32 and multiply rows in x's dtype; their gradient is the only one that the gate gets."
    ),
)  # fmt: skip

"""10.mtp: the loss of multi-token prediction, of the token after the next."""

from __future__ import annotations

import math
import random
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from gpu_utils.analytic.tolerance import Tolerance, tolerance
from gpu_utils.exercises.drawing import signed
from gpu_utils.exercises.gradient import forward_and_backward
from gpu_utils.exercises.u10_mla_moe import mtp_slips as slips
from gpu_utils.grading.exercise import Case, Exercise, Inputs, Misconception

EPS = 1e-6
WANTED = ("hidden", "embedding", "projection", "head")
PARTS = ("loss", *(f"d{name}" for name in WANTED))


def _with_a_block(answer: Any, inputs: Inputs) -> dict[str, Any]:
    """The loss and its gradients. The block is a function of (batch, positions, D), as the matrix `mixing` has it."""
    from gpu_utils.errors import BadArgument, GradientLost

    given = dict(inputs)
    mixing = given.pop("mixing")
    D = len(mixing)

    def block(z: Tensor) -> Tensor:
        if z.dim() != 3 or z.shape[-1] != D:
            raise BadArgument(f"block was given {tuple(z.shape)}, expected (batch, positions, {D}) as in a model")
        past = z.cumsum(dim=1) / torch.arange(1, z.shape[1] + 1, device=z.device).unsqueeze(-1)
        return z + torch.tanh(past @ mixing.T)

    try:
        return forward_and_backward(*WANTED, given="dloss", value="loss")(answer, {**given, "block": block})
    except GradientLost as problem:
        raise GradientLost(
            "the loss does not know how to go backward (loss.requires_grad is False); return the tensor itself, "
            "without .item(), float() or no_grad"
        ) from problem


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    B, T, D, V = (case[name] for name in ("B", "T", "D", "V"))
    tokens = torch.randint(1, V, (B, T), generator=generator)
    pad, size = case.get("pad", 0), case.get("size", 1.0)
    tokens[tokens == pad] = (pad + 1) % V
    for row, length in enumerate(case.get("lengths", ())):
        tokens[row, length:] = pad
    weights = {name: 1 + 0.5 * signed((D,), generator) for name in ("enorm", "hnorm", "norm")}
    return {
        "hidden": size * (2.0 + 1.5 * torch.randn(B, T, D, generator=generator)),
        "tokens": tokens,
        "embedding": size * (0.5 + torch.randn(V, D, generator=generator)),
        "projection": signed((D, 2 * D), generator) / math.sqrt(2 * D),
        "mixing": 1.5 * signed((D, D), generator) / math.sqrt(D),
        "head": signed((V, D), generator) / math.sqrt(D),
        **weights,
        "weight": case.get("weight", 0.3),
        "pad": pad,
        "dloss": torch.tensor(1.0),
    }


def mtp_reference(
    hidden: Tensor, tokens: Tensor, embedding: Tensor, projection: Tensor, head: Tensor, dloss: Tensor, weight: float,
    pad: int, **other: Tensor,
) -> dict[str, Tensor]:  # fmt: skip
    leaves = {"hidden": hidden, "embedding": embedding, "projection": projection, "head": head}
    leaves = {name: value.double().requires_grad_() for name, value in leaves.items()}
    mixing, enorm, hnorm, norm = (other[name].double() for name in ("mixing", "enorm", "hnorm", "norm"))

    def rms(x: Tensor, scale: Tensor) -> Tensor:
        return x / (x.square().mean(-1, keepdim=True) + EPS).sqrt() * scale

    embedded = leaves["embedding"][tokens[:, 1:-1]]
    both = torch.cat([rms(embedded, enorm), rms(leaves["hidden"][:, :-2], hnorm)], dim=-1)
    z = both @ leaves["projection"].T
    z = z + torch.tanh(z.cumsum(1) / torch.arange(1, z.shape[1] + 1).unsqueeze(-1) @ mixing.T)
    logits = rms(z, norm) @ leaves["head"].T
    loss = weight * F.cross_entropy(logits.transpose(1, 2), tokens[:, 2:].masked_fill(tokens[:, 2:] == pad, -100))
    gradients = torch.autograd.grad(loss, list(leaves.values()), dloss.double())
    return {"loss": loss.detach(), **{f"d{name}": grad for name, grad in zip(leaves, gradients, strict=True)}}


def _tolerance(case: Case, inputs: Inputs) -> dict[str, Tolerance]:
    # A logit sums D products of size 1 at most, what it depends on 2 D and D, and a loss is one of V logits. Gradients
    # are a share of it: of one position for hidden, of all for the rest, and at most a few times the loss's weight.
    positions = int((inputs["tokens"][:, 2:] != inputs["pad"]).sum())
    # A norm makes the gradients of small numbers larger by as much.
    D, V, weight, size = case["D"], case["V"], inputs["weight"], case.get("size", 1.0)
    loss = tolerance(torch.float32, k=4 * D + V, magnitude=weight, roundings=8)
    one = tolerance(torch.float32, k=4 * D + V, magnitude=2 * weight / positions / size, roundings=8)
    looked_up = tolerance(torch.float32, k=4 * D + V, magnitude=weight / size, roundings=8)
    return dict.fromkeys(PARTS, loss) | {"dhidden": one, "dembedding": looked_up}


def _fresh(rng: random.Random) -> Case:
    T = rng.randrange(9, 20)
    return Case(
        "sizes nobody chose",
        B=2,
        T=T,
        D=rng.randrange(14, 30),
        V=rng.randrange(30, 60),
        lengths=[T, rng.randrange(5, T)],
        weight=round(rng.uniform(0.1, 0.6), 2),
        pad=rng.randrange(1, 20),
    )


def _filled(value: float) -> Any:
    def answer(hidden: Tensor, embedding: Tensor, projection: Tensor, head: Tensor, **_more: Any) -> Tensor:
        return 0.0 * (hidden.sum() + embedding.sum() + projection.sum() + head.sum()) + value

    return answer


EXERCISE = Exercise(
    id="10.mtp",
    title="The loss of the token after the next",
    parameters=(
        *("hidden", "tokens", "embedding", "enorm", "hnorm", "projection", "block", "norm", "head", "weight", "pad"),
    ),
    kind="torch",
    inputs=_inputs,
    reference=mtp_reference,
    tolerance=_tolerance,
    call=_with_a_block,
    parts=PARTS,
    cases=(
        Case("two sequences of full length", B=2, T=9, D=16, V=30),
        Case("rows that end early, one at once", B=4, T=12, D=22, V=41, lengths=[12, 7, 4, 1], weight=0.25, pad=7),
        Case("three tokens: one position has a target; pad is not 0", B=1, T=3, D=15, V=26, weight=0.7, pad=5),
        Case("numbers so small that the 1e-6 in a norm counts", B=2, T=7, D=18, V=28, size=0.002),
    ),
    fresh=_fresh,
    trivial={
        "zeros": _filled(0.0),
        "ones": _filled(1.0),
        "nan": _filled(math.nan),
        "input": lambda weight, **inputs: _filled(weight)(**inputs),
    },
    misconceptions=(
        Misconception(
            "target_is_the_next_token",
            slips.answer(target=1),
            "The target is the next token, the one whose embedding goes in: there is nothing to predict. From position "
            "i on, the token i + 1 is known, and i + 2 is asked for.",
        ),
        Misconception(
            "target_one_too_far",
            slips.answer(target=3),
            "The target stands three tokens on. Hidden state i and token i + 1 predict token i + 2.",
        ),
        Misconception(
            "embedding_of_the_present_token",
            slips.answer(following=0),
            "The embedding is that of token i, which the hidden state has seen. It is the next one's, i + 1: that is "
            "what makes a chain of the two predictions.",
        ),
        Misconception(
            "hidden_of_the_next_position",
            slips.answer(hidden_at=1),
            "The hidden state is that of position i + 1, from which the main model itself predicts token i + 2. Take "
            "the one of position i.",
        ),
        Misconception(
            "everything_one_on",
            slips.answer(hidden_at=1, following=2, target=3),
            "Each position is right, and the first is missing: position 0 has all three of them as well.",
        ),
        Misconception(
            "hidden_first",
            slips.answer(hidden_first=True),
            "The projection was given [hidden, embedding], as the report's formula writes it. The matrix of the "
            "checkpoint has the embedding's columns first.",
        ),
        Misconception(
            "norms_swapped",
            slips.answer(norms_swapped=True),
            "The weights of the two norms are exchanged: enorm is the embedding's, hnorm the hidden state's.",
        ),
        Misconception(
            "hidden_by_the_final_norm",
            slips.answer(hidden_by_norm=True),
            "The hidden state was normed with `norm`, which stands before the head. Its own weights are hnorm.",
        ),
        Misconception(
            "norms_without_weights",
            slips.answer(of_embedding=slips.unweighted, of_hidden=slips.unweighted, of_result=slips.unweighted),
            "The norms have weights, enorm, hnorm and norm, which multiply what comes out.",
        ),
        Misconception(
            "embedding_not_normed",
            slips.answer(of_embedding=slips.unnormed),
            "The embedding went into the projection without its norm, enorm.",
        ),
        Misconception(
            "hidden_not_normed",
            slips.answer(of_hidden=slips.unnormed),
            "The hidden state went into the projection without its norm, hnorm. The final norm is another.",
        ),
        Misconception(
            "result_not_normed",
            slips.answer(of_result=slips.unnormed),
            "What the block gives went into the head without a norm.",
        ),
        Misconception(
            "layer_norm",
            slips.answer(of_embedding=slips.centred, of_hidden=slips.centred, of_result=slips.centred),
            "The mean was taken away, as a layer norm does. RMSNorm divides by the root of the mean square, no more.",
        ),
        Misconception(
            "norms_without_eps",
            slips.answer(of_embedding=slips.without_eps, of_hidden=slips.without_eps, of_result=slips.without_eps),
            "Right but for small numbers: under the root stands the mean square plus 1e-6, inside the root.",
        ),
        Misconception(
            "no_block",
            slips.answer(through_the_block=False),
            "The block is missing: projection, block, norm, head.",
        ),
        Misconception(
            "embedding_as_the_head",
            slips.answer(head_of="embedding"),
            "The logits were made with the embedding. The main model has a head of its own, and this module shares it.",
        ),
        Misconception(
            "weight_forgotten",
            slips.answer(weighed=False),
            "The mean is right, and it is to be multiplied by `weight`.",
        ),
        Misconception(
            "pads_counted",
            slips.answer(counts_pads=True),
            "Positions whose target is `pad` were counted. They are no text: leave them out of the sum and of the "
            "number that it is divided by.",
        ),
        Misconception(
            "divided_by_every_position",
            slips.answer(mean=lambda losses, counted: losses[counted].sum() / losses.numel()),
            "The sum is right, and it was divided by all positions, also by those whose target is `pad`.",
        ),
        Misconception(
            "divided_by_all_tokens",
            slips.answer(
                mean=lambda losses, counted: losses[counted].sum() / (losses.shape[0] * (losses.shape[1] + 2))
            ),
            "The sum was divided by all tokens, T of each sequence, as the report writes it. Two of a sequence "
            "have no target: divide by the number of positions that count.",
        ),
        Misconception(
            "divided_by_the_main_models_targets",
            slips.answer(
                mean=lambda losses, counted: losses[counted].sum() / (losses.shape[0] * (losses.shape[1] + 1))
            ),
            "The sum was divided by T - 1 positions of each sequence, as the main model's loss is. This loss has one "
            "target less: divide by the number of positions that count.",
        ),
        Misconception(
            "rolled_around",
            slips.answer(around=True),
            "Every row has T positions, and the last two have tokens of its beginning for targets: torch.roll brings "
            "them back in front. Cut the last two positions off.",
        ),
        Misconception(
            "softmax_before_the_loss",
            slips.answer(of_logits=lambda logits: logits.softmax(-1)),
            "The cross-entropy was given probabilities. It has a softmax of its own: give it logits.",
        ),
        Misconception(
            "mean_of_the_rows",
            slips.answer(mean=slips.mean_of_rows),
            "Each sequence counts alike, a short one as much as a long one. Every position counts alike: one mean over "
            "all of them.",
        ),
        Misconception(
            "sum_for_mean",
            slips.answer(mean=lambda losses, counted: losses[counted].sum()),
            "The losses were added up. It is their mean over the positions that count.",
        ),
        Misconception(
            "hidden_without_a_gradient",
            slips.answer(of_the_main_model=lambda hidden: hidden.detach()),
            "The loss is right, and no gradient goes back to the main model. That it learns to look further is the "
            "purpose.",
        ),
        Misconception(
            "embedding_without_a_gradient",
            slips.answer(own_embedding=lambda embedding: embedding.detach()),
            "The loss is right, and no gradient goes back to the shared embedding: it learns from both losses.",
        ),
    ),
    hints=(
        "Write down for T = 5 which hidden states, which next tokens and which targets belong together: three rows.",
        "hidden[:, :-2] meets tokens[:, 1:-1], and they predict tokens[:, 2:]. Norm each, put the embedding first, "
        "project, block, norm, head.",
        "F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=pad) is the mean over all targets that "
        "are not pad. F.rms_norm(x, weight.shape, weight, 1e-6) is the norm.",
    ),
    explanation=(
        "Position i knows hidden state i and token i + 1, and predicts token i + 2: the last two positions "
        "have no target. Embedding and head are the main model's, so both losses teach them; the gradient also goes "
        "through hidden into the whole model. The report gives [hidden, embedding] in its formula, and the published "
        "checkpoint has the embedding's columns first: a matrix does not tell, a wrong half only costs the loss."
    ),
)  # fmt: skip

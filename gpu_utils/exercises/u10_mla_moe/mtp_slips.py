"""Wrong answers to 10.mtp, as learners write them: the right one with one thing otherwise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

Norm = Callable[[Tensor, Tensor], Tensor]


def rms(x: Tensor, weight: Tensor) -> Tensor:
    return F.rms_norm(x, weight.shape, weight, 1e-6)


def without_eps(x: Tensor, weight: Tensor) -> Tensor:
    return F.rms_norm(x, weight.shape, weight, 1e-20)


def unweighted(x: Tensor, weight: Tensor) -> Tensor:
    return F.rms_norm(x, weight.shape, None, 1e-6)


def unnormed(x: Tensor, weight: Tensor) -> Tensor:
    return x


def centred(x: Tensor, weight: Tensor) -> Tensor:
    return F.layer_norm(x, weight.shape, weight, None, 1e-6)


def mean_of_tokens(losses: Tensor, counted: Tensor) -> Tensor:
    return losses[counted].mean()


def mean_of_rows(losses: Tensor, counted: Tensor) -> Tensor:
    rows = [row[there].mean() for row, there in zip(losses, counted, strict=True) if there.any()]
    return torch.stack(rows).mean()


def answer(
    *,
    hidden_at: int = 0,
    following: int = 1,
    target: int = 2,
    hidden_first: bool = False,
    of_embedding: Norm = rms,
    of_hidden: Norm = rms,
    of_result: Norm = rms,
    norms_swapped: bool = False,
    hidden_by_norm: bool = False,
    of_the_main_model: Callable[[Tensor], Tensor] = lambda hidden: hidden,
    own_embedding: Callable[[Tensor], Tensor] = lambda embedding: embedding,
    through_the_block: bool = True,
    head_of: str = "head",
    of_logits: Callable[[Tensor], Tensor] = lambda logits: logits,
    around: bool = False,
    counts_pads: bool = False,
    mean: Callable[[Tensor, Tensor], Tensor] = mean_of_tokens,
    weighed: bool = True,
) -> Callable[..., Tensor]:
    """The right answer, with one thing otherwise.

    hidden_at, following, target  how far behind a position stand the hidden state, the embedded token and the target
    around                        all T positions are kept: behind the end of a row stands its beginning
    mean                          of the losses (batch, positions), and of which of them count
    """

    def wrong(
        hidden: Tensor, tokens: Tensor, embedding: Tensor, enorm: Tensor, hnorm: Tensor, projection: Tensor, block: Any,
        norm: Tensor, head: Tensor, weight: float, pad: int,
    ) -> Tensor:  # fmt: skip
        many = tokens.shape[1] - (0 if around else max(hidden_at, following, target))
        tokens = torch.cat([tokens, tokens], 1) if around else tokens
        states = of_the_main_model(hidden)[:, hidden_at : hidden_at + many]
        embedded = own_embedding(embedding)[tokens[:, following : following + many]]
        if norms_swapped:
            enorm, hnorm = hnorm, enorm
        parts = [of_embedding(embedded, enorm), of_hidden(states, norm if hidden_by_norm else hnorm)]
        z = torch.cat(parts[::-1] if hidden_first else parts, dim=-1) @ projection.T
        z = of_result(block(z) if through_the_block else z, norm)
        logits = of_logits(z @ (embedding if head_of == "embedding" else head).T)
        wanted = tokens[:, target : target + many]
        losses = F.cross_entropy(logits.flatten(0, 1), wanted.flatten(), reduction="none").view(wanted.shape)
        counted = torch.ones_like(wanted, dtype=torch.bool) if counts_pads else wanted != pad
        loss = mean(losses, counted)
        return weight * loss if weighed else loss

    return wrong

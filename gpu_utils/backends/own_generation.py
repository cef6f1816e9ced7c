"""Text from a GPT-2 whose attention is two own functions: one for the prompt, one for every token after it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor

from gpu_utils.backends.recording import record_launches, replaced
from gpu_utils.errors import BadArgument
from gpu_utils.model import gpt2
from gpu_utils.model.gpt2 import GPT2, KVCache
from gpu_utils.virtual import virtual_gpu

DTYPE = torch.float16
"""Of queries and caches: with 11 bits, a token that differs from torch's is rare."""

SPLITS = 4
"""Parts of a cache, each a program of its own."""


@dataclass(frozen=True)
class Generated:
    """What a model wrote with own attention.

    tokens      the prompt and the new ones
    different   new tokens where torch's model, given all tokens before, takes another one; with 0, torch's own
                generation is the same from end to end
    logits_off  the largest difference from torch's logits, over the largest of these
    launches    of own kernels, by name
    """

    tokens: list[int]
    different: int
    logits_off: float
    launches: dict[str, int]


class _Cache(KVCache):
    """Keys and values in 16 bits as (layer, batch, position, head, head_dim): all heads of a token side by side."""

    def __init__(self, model: GPT2) -> None:
        super().__init__(model.config, 1, device=model.device, dtype=DTYPE)
        self.keys, self.values = (x.transpose(2, 3).contiguous() for x in (self.keys, self.values))

    def extend(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Keep the new ones; return those of a prompt as they are, and later the whole buffers of this layer."""
        end = self.length + k.shape[2]
        self.keys[layer, :, self.length : end] = k.transpose(1, 2)
        self.values[layer, :, self.length : end] = v.transpose(1, 2)
        return (k, v) if self.length == 0 else (self.keys[layer], self.values[layer])


@torch.no_grad()
def generated(
    model: GPT2,
    prompt: Sequence[int],
    n_new: int,
    *,
    forward: Callable[..., tuple[Tensor, Tensor]],
    decode: Callable[..., Tensor],
    target: str = "sm_80",
    temperature: float = 0.0,
    seed: int = 0,
) -> Generated:
    """Continue the tokens of `prompt` by n_new: attention of the prompt by `forward`, of each later token by `decode`.

    forward      as in 06.forward: (q, k, v, causal, scale) -> (o, lse), of (1, heads, positions, D)
    decode       as in 06.decode: (q, k, v, lengths, splits) -> o, of one query against a cache of n_positions rows
    target       the virtual GPU; a model that lies on a GPU runs there
    temperature  0 takes the likeliest token; above, one is drawn with this seed, and torch is given the same luck

    Both compute in float16; the rest of the model is torch's. Raises ModelError past n_positions, and BadArgument for
    heads that 06.decode is not written for.
    """
    if model.config.head_dim not in (32, 64):
        raise BadArgument(f"the model's heads have {model.config.head_dim} elements; 06.decode takes 32 or 64")
    cache, device = _Cache(model), model.device
    luck = torch.rand(n_new, model.config.vocab_size, generator=torch.Generator().manual_seed(seed)).clamp_min(1e-30)
    luck = -temperature * (-luck.log()).log().to(device)  # the largest of logits plus this: a draw from their softmax

    def attention(q: Tensor, k: Tensor, v: Tensor, how: str) -> Tensor:
        if cache.length == 0:
            o, _ = forward(*(x.to(DTYPE) for x in (q, k, v)), True, 1 / math.sqrt(q.shape[-1]))
        else:
            lengths = torch.tensor([cache.length + 1], dtype=torch.int32, device=device)
            o = decode(q[:, :, 0].to(DTYPE).contiguous(), k, v, lengths, SPLITS)[:, :, None]
        return o.to(q.dtype)

    tokens, fresh, own = [*prompt], torch.tensor([[*prompt]], device=device), []
    with (
        virtual_gpu(target) if device.type == "cpu" else nullcontext(),
        record_launches() as launches,
        replaced(gpt2, "causal_attention", attention),
    ):
        for drawn in luck:
            own.append(model(fresh, cache)[:, -1])
            fresh = (own[-1] + drawn).argmax(-1, keepdim=True)
            tokens.append(int(fresh))
    wanted = model(torch.tensor([tokens[:-1]], device=device))[0, len(prompt) - 1 :]
    return Generated(
        tokens=tokens,
        different=int(((wanted + luck).argmax(-1) != torch.tensor(tokens[len(prompt) :], device=device)).sum()),
        logits_off=float((torch.cat(own) - wanted).abs().max() / wanted.abs().max()),
        launches=dict(Counter(launch.name for launch in launches)),
    )

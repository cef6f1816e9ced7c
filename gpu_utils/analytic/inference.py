"""Memory of inference: weights, the cache of keys and values, activations, and what fits on a chip of the registry.

A cache keeps for every token and layer what attention needs of it again. How much that is depends on the kind of
attention: all heads (MHA), a few that groups of heads share (GQA), one for all (MQA), or one compressed vector from
which keys and values are computed again, plus the rotated part of the key (MLA).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from gpu_utils.chips import CHIPS, Chip
from gpu_utils.errors import BadArgument, UnknownFigure

GB = 10**9
"""Bytes of a GB of a data sheet, taken as decimal. Cards report up to 7% more, so that a plan is on the safe side."""


@dataclass(frozen=True)
class CacheShape:
    """What is kept of one token: `values` numbers in each of `layers` layers.

    >>> CacheShape("GQA", layers=32, values=2048).per_token(bytes_per_value=2) // 1024  # KiB
    128
    """

    kind: str
    layers: int
    values: int

    def per_token(self, bytes_per_value: float = 2) -> float:
        """Bytes of one token in all layers."""
        return self.layers * self.values * bytes_per_value

    def total(self, batch: int, context: int, bytes_per_value: float = 2) -> int:
        """Bytes of the cache of `batch` sequences of `context` tokens.

        >>> mla(layers=61, latent=512, rope=64).total(batch=1, context=1)  # DeepSeek-V3 in bf16
        70272
        >>> mha(layers=12, heads=12, head_dim=64).total(batch=1, context=1024) // 2**20  # GPT-2, MiB
        36
        """
        for name, value in (("batch", batch), ("context", context)):
            if value < 0:
                raise BadArgument(f"{name} is {value}; expected 0 or more")
        return int(self.per_token(bytes_per_value) * batch * context)


def mha(layers: int, heads: int, head_dim: int) -> CacheShape:
    """Multi-head attention: a key and a value of every head."""
    _positive(layers=layers, heads=heads, head_dim=head_dim)
    return CacheShape("MHA", layers, 2 * heads * head_dim)


def gqa(layers: int, kv_heads: int, head_dim: int) -> CacheShape:
    """Grouped-query attention: a key and a value of every key-value head; the query heads do not matter."""
    _positive(layers=layers, kv_heads=kv_heads, head_dim=head_dim)
    return CacheShape("GQA", layers, 2 * kv_heads * head_dim)


def mqa(layers: int, head_dim: int) -> CacheShape:
    """Multi-query attention: one key and one value for all heads."""
    _positive(layers=layers, head_dim=head_dim)
    return CacheShape("MQA", layers, 2 * head_dim)


def mla(layers: int, latent: int, rope: int) -> CacheShape:
    """Multi-head latent attention: one compressed vector and the rotated part of the key, shared by all heads."""
    _positive(layers=layers, latent=latent, rope=rope)
    return CacheShape("MLA", layers, latent + rope)


def _positive(**sizes: float) -> None:
    for name, value in sizes.items():
        if value <= 0:
            raise BadArgument(f"{name} is {value}; expected more than 0")


def activation_bytes(
    tokens: int, width: int, hidden: int, bytes_per_value: float = 2, logits: int = 0, gated: bool = False
) -> int:
    """Bytes alive at the widest point of a forward pass without gradients: the MLP of one block, or the output.

    tokens  that go through the model at once; width: of the residual stream; hidden: of the MLP
    logits  values of the output (tokens that are read out times the vocabulary)
    gated   the MLP multiplies two projections (SwiGLU)

    In the MLP live the block's input, the residual stream and its normed copy (width each), and the input and output of
    the nonlinearity (hidden each), with a gate also the other projection. Layers follow one another, so that their
    number does not matter. Other implementations keep a little more.

    >>> activation_bytes(tokens=4096, width=768, hidden=3072, bytes_per_value=2) // 2**20
    66
    """
    inside = tokens * (3 * width + (3 if gated else 2) * hidden)
    return int(bytes_per_value * max(inside, 2 * tokens * width + logits))


@dataclass(frozen=True)
class LanguageModel:
    """A published model, as far as its memory goes.

    parameters  all of them; width, hidden, vocab: of the residual stream, of the widest MLP, of the output
    gated       its MLPs multiply two projections
    """

    name: str
    parameters: int
    cache: CacheShape
    width: int
    hidden: int
    vocab: int
    gated: bool
    source: str


def _defaults(name: str) -> str:
    return f"the defaults of {name} in transformers"


MODELS: Mapping[str, LanguageModel] = {
    model.name: model
    for model in (
        LanguageModel("GPT-2", 124_439_808, mha(12, 12, 64), 768, 3072, 50257, False, _defaults("GPT2Config")),
        LanguageModel("Llama-7B", 6_738_415_616, mha(32, 32, 128), 4096, 11008, 32000, True, _defaults("LlamaConfig")),
        LanguageModel("Falcon-7B", 6_921_720_704, mqa(32, 64), 4544, 18176, 65024, False, _defaults("FalconConfig")),
        LanguageModel(
            "Mistral-7B", 7_241_732_096, gqa(32, 8, 128), 4096, 14336, 32000, True, _defaults("MistralConfig")
        ),
        LanguageModel(
            "DeepSeek-V3", 671_026_404_352, mla(61, 512, 64), 7168, 18432, 129280, True, _defaults("DeepseekV3Config")
        ),
    )
}
"""One model of each kind of attention, and the GPT-2 of this course."""


@dataclass(frozen=True)
class MemoryPlan:
    """Bytes of one way to run a model.

    capacity  of the chip, or of all chips together
    """

    weights: int
    cache: int
    activations: int
    capacity: int

    @property
    def total(self) -> int:
        return self.weights + self.cache + self.activations

    @property
    def free(self) -> int:
        """Bytes left; negative when it does not fit."""
        return self.capacity - self.total

    @property
    def fits(self) -> bool:
        return self.free >= 0


def plan(
    chip: Chip | str,
    model: LanguageModel,
    batch: int,
    context: int,
    *,
    weight_bytes: float = 2,
    cache_bytes: float = 2,
    chips: int = 1,
) -> MemoryPlan:
    """What `batch` sequences of `context` tokens take on a chip.

    weight_bytes, cache_bytes  of one value: 2 for bf16, 1 for fp8
    chips  that share the work; their memory counts as one, which no real division reaches

    Activations (16 bit) are those of one prompt of `context` tokens that is read at once, or of one step of all
    sequences if that is more, with the logits of one token a sequence. Not counted: what the runtime and the libraries
    keep, and fragments.
    Errors: UnknownName for a chip; UnknownFigure when the registry has no source for its memory; BadArgument.

    >>> p = plan("H100", MODELS["Mistral-7B"], batch=32, context=8192)
    >>> p.fits, [round(part / 1e9, 1) for part in (p.weights, p.cache, p.activations, p.capacity)]
    (True, [14.5, 34.4, 0.9, 80.0])
    """
    _positive(weight_bytes=weight_bytes, cache_bytes=cache_bytes, chips=chips)
    row = CHIPS[chip] if isinstance(chip, str) else chip
    if row.memory_gb.value is None:
        raise UnknownFigure(f"the registry has no figure for the memory of {row.name} ({row.memory_gb.note})")
    tokens = max(batch, context)
    return MemoryPlan(
        weights=int(model.parameters * weight_bytes),
        cache=model.cache.total(batch, context, cache_bytes),
        activations=activation_bytes(tokens, model.width, model.hidden, 2, batch * model.vocab, model.gated),
        capacity=int(row.memory_gb.value * GB) * chips,
    )


def largest_batch(
    chip: Chip | str,
    model: LanguageModel,
    context: int,
    *,
    weight_bytes: float = 2,
    cache_bytes: float = 2,
    chips: int = 1,
) -> int:
    """The most sequences of `context` tokens that fit; 0 when none does. Arguments and errors as in `plan`.

    >>> [largest_batch(chip, MODELS["Mistral-7B"], 32768) for chip in ("RX 7900 XTX", "H100", "H200", "MI300X")]
    [1, 14, 28, 40]
    """

    def fits(batch: int) -> bool:
        return plan(chip, model, batch, context, weight_bytes=weight_bytes, cache_bytes=cache_bytes, chips=chips).fits

    return _largest(fits)


def largest_context(
    chip: Chip | str,
    model: LanguageModel,
    batch: int,
    *,
    weight_bytes: float = 2,
    cache_bytes: float = 2,
    chips: int = 1,
) -> int:
    """The most tokens that each of `batch` sequences can have; 0 when not even one fits. Arguments as in `plan`."""

    def fits(context: int) -> bool:
        return plan(chip, model, batch, context, weight_bytes=weight_bytes, cache_bytes=cache_bytes, chips=chips).fits

    return _largest(fits)


def _largest(fits: Callable[[int], bool]) -> int:
    """The largest whole number that fits, where every smaller one does."""
    high = 1
    while fits(high):
        high *= 2
    low = high // 2  # fits, or is 0
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low

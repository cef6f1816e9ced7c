"""02.kv_cache_bytes: the cache of keys and values for MHA, GQA, MQA and MLA, and the largest batch that fits."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

import torch

from gpu_utils.chips import CHIPS
from gpu_utils.grading.exercise import Case, Exercise, Inputs, Misconception

Model = Mapping[str, int]
Answer = Callable[..., dict[str, int]]
GB = 10**9


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    return {**case.params, "model": dict(MODELS[case["model"]])}


MODELS: dict[str, Model] = {
    "GPT-2": {"layers": 12, "heads": 12, "kv_heads": 12, "head_dim": 64, "parameters": 124_439_808},
    "Llama-7B (MHA)": {"layers": 32, "heads": 32, "kv_heads": 32, "head_dim": 128, "parameters": 6_738_415_616},
    "Mistral-7B (GQA)": {"layers": 32, "heads": 32, "kv_heads": 8, "head_dim": 128, "parameters": 7_241_732_096},
    "Falcon-7B (MQA)": {"layers": 32, "heads": 71, "kv_heads": 1, "head_dim": 64, "parameters": 6_921_720_704},
    "DeepSeek-V3 (MLA)": {
        **{"layers": 61, "heads": 128, "head_dim": 128, "latent": 512, "rope": 64},
        "parameters": 671_026_404_352,
    },
    "a small MLA": {
        "layers": 27,
        "heads": 16,
        "head_dim": 128,
        "latent": 512,
        "rope": 64,
        "parameters": 15_700_000_000,
    },
}
"""Sizes as in `gpu_utils.analytic.inference.MODELS`, and one of our own that fits on a single chip."""


def _kept(model: Model) -> int:
    """Values kept of one token, tensor by tensor and layer by layer."""
    if "latent" in model:
        return sum(model["latent"] + model["rope"] for _ in range(model["layers"]))
    keys = values = model["kv_heads"] * model["head_dim"]
    return sum(keys + values for _ in range(model["layers"]))


def _sized(
    kept: Callable[[Model], int] = _kept,
    gigabyte: int = GB,
    weights: bool = True,
    parameter_bytes: Callable[[int, int], int] = lambda weight_bytes, cache_bytes: weight_bytes,
    batched: bool = True,
) -> Answer:
    """An answer that keeps `kept(model)` values of a token; the other arguments are rules that can be wrong."""

    def answer(
        model: Model, batch: int, context: int, cache_bytes: int, weight_bytes: int, memory_gb: float
    ) -> dict[str, int]:
        per_token = kept(model) * cache_bytes
        taken = model["parameters"] * parameter_bytes(weight_bytes, cache_bytes) if weights else 0
        room = max(0, int(memory_gb * gigabyte) - taken)
        return {
            "per_token": per_token,
            "cache": per_token * context * (batch if batched else 1),
            "largest_batch": room // (per_token * context),
        }

    return answer


kv_cache_reference = _sized()


def _negative(
    model: Model, batch: int, context: int, cache_bytes: int, weight_bytes: int, memory_gb: float
) -> dict[str, int]:
    found = kv_cache_reference(model, batch, context, cache_bytes, weight_bytes, memory_gb)
    room = int(memory_gb * GB) - model["parameters"] * weight_bytes
    return {**found, "largest_batch": room // (found["per_token"] * context)}


def _rounded(
    model: Model, batch: int, context: int, cache_bytes: int, weight_bytes: int, memory_gb: float
) -> dict[str, int]:
    found = kv_cache_reference(model, batch, context, cache_bytes, weight_bytes, memory_gb)
    room = max(0, int(memory_gb * GB) - model["parameters"] * weight_bytes)
    return {**found, "largest_batch": -(-room // (found["per_token"] * context))}


def _per_head(heads: str) -> Callable[[Model], int]:
    def kept(model: Model) -> int:
        return _kept(model) if "latent" in model else 2 * model["layers"] * model[heads] * model["head_dim"]

    return kept


def _mla(values: Callable[[Model], int]) -> Callable[[Model], int]:
    """Right for the others; values of a token and layer for MLA by `values`."""
    return lambda model: model["layers"] * values(model) if "latent" in model else _kept(model)


def _keys_only(model: Model) -> int:
    return _kept(model) if "latent" in model else _kept(model) // 2


def _one_layer(model: Model) -> int:
    return _kept(model) // model["layers"]


def _fresh(rng: random.Random) -> Case:
    return Case(
        "a fresh plan",
        model=rng.choice(["Llama-7B (MHA)", "Mistral-7B (GQA)", "Falcon-7B (MQA)", "a small MLA"]),
        batch=rng.randint(2, 64),
        context=rng.randint(1_000, 40_000),
        cache_bytes=rng.choice([1, 2]),
        weight_bytes=2,
        memory_gb=_memory(rng.choice(["H100", "H200", "MI300X", "MI355X"])),
    )


def _memory(chip: str) -> float:
    found = CHIPS[chip].memory_gb.value
    assert found is not None
    return found


def _case(
    why: str, model: str, chip: str, batch: int, context: int, cache_bytes: int = 2, weight_bytes: int = 2
) -> Case:
    return Case(
        why,
        model=model,
        batch=batch,
        context=context,
        cache_bytes=cache_bytes,
        weight_bytes=weight_bytes,
        memory_gb=_memory(chip),
    )


_WRONG: tuple[tuple[str, Answer, str], ...] = (
    (
        "negative_batch",
        _negative,
        "largest_batch is negative where the weights alone are larger than the memory. Nothing fits then: 0.",
    ),
    (
        "mla_for_each_head",
        _sized(_mla(lambda model: model["heads"] * (model["latent"] + model["rope"]))),
        "The latent vector of MLA is counted once for each head. All heads share one; that is what MLA saves.",
    ),
    (
        "mla_keys_and_values",
        _sized(_mla(lambda model: 2 * (model["latent"] + model["rope"]))),
        "MLA's part is doubled. Keys and values are both computed from the one latent vector; there is no second one.",
    ),
    (
        "mla_without_rope",
        _sized(_mla(lambda model: model["latent"])),
        "The rotated part of MLA's key is missing: `rope` values for each token and layer, beside the latent vector.",
    ),
    (
        "mla_as_mha",
        _sized(_mla(lambda model: 2 * model["heads"] * model["head_dim"])),
        "MLA does not keep keys and values of the heads. It keeps the latent vector from which they are computed "
        "again, and the rotated part of the key.",
    ),
    (
        "query_heads",
        _sized(_per_head("heads")),
        "This uses all query heads. With grouped queries only the kv_heads have keys and values; groups of query heads "
        "share them.",
    ),
    (
        "keys_only",
        _sized(_keys_only),
        "Half is missing: the cache holds keys and values.",
    ),
    (
        "one_layer",
        _sized(_one_layer),
        "This is one layer. Every layer has keys and values of its own.",
    ),
    (
        "one_sequence",
        _sized(batched=False),
        "`cache` is that of one sequence. The batch has `batch` of them, each with `context` tokens.",
    ),
    (
        "binary_gigabytes",
        _sized(gigabyte=2**30),
        "Only largest_batch is off: memory_gb counts GB of 10**9 bytes here, not 2**30. What a card really has, "
        "torch.cuda.mem_get_info() says.",
    ),
    (
        "no_weights",
        _sized(weights=False),
        "The whole memory goes to the cache here. The weights lie in it too: parameters times weight_bytes.",
    ),
    (
        "weights_in_cache_bytes",
        _sized(parameter_bytes=lambda weight_bytes, cache_bytes: cache_bytes),
        "The weights are counted with cache_bytes. The two may have different formats: a cache in FP8 beside weights "
        "in bf16.",
    ),
    (
        "rounded_up",
        _rounded,
        "largest_batch is rounded up. The last sequence does not fit; round down.",
    ),
)

EXERCISE = Exercise(
    id="02.kv_cache_bytes",
    title="The KV cache, and what fits",
    parameters=("model", "batch", "context", "cache_bytes", "weight_bytes", "memory_gb"),
    kind="host",
    inputs=_inputs,
    reference=kv_cache_reference,
    cases=(
        _case("GPT-2, all heads", "GPT-2", "H100", 8, 1024),
        _case("MHA on H100", "Llama-7B (MHA)", "H100", 16, 4096),
        _case("the same on MI300X", "Llama-7B (MHA)", "MI300X", 16, 4096),
        _case("GQA: a quarter of the heads", "Mistral-7B (GQA)", "H100", 16, 8192),
        _case("MQA: one head for 71", "Falcon-7B (MQA)", "MI300X", 16, 32_768),
        _case("MLA, of DeepSeek-V3's sizes per token", "a small MLA", "H100", 32, 16_384),
        _case("a cache in FP8 beside weights in bf16", "Mistral-7B (GQA)", "H200", 4, 32_768, cache_bytes=1),
        _case("DeepSeek-V3 in FP8: the weights alone do not fit", "DeepSeek-V3 (MLA)", "MI300X", 1, 4096, 1, 1),
    ),
    fresh=_fresh,
    misconceptions=tuple(Misconception(*wrong) for wrong in _WRONG),
    hints=(
        'First: how many values of one token does one layer keep? `"latent" in model` tells MLA from the others.',
        "MHA, GQA, MQA: 2 * kv_heads * head_dim values in a layer. MLA: latent + rope. Times layers, times "
        "cache_bytes, is per_token.",
        "cache = per_token * batch * context. largest_batch = (memory_gb * 10**9 - parameters * weight_bytes) // "
        "(per_token * context) as an int, and 0 instead of a negative number.",
    ),
    explanation=(
        "A token costs layers * 2 * kv_heads * head_dim values, whatever the number of query heads, or layers * "
        "(latent + rope) with MLA: DeepSeek-V3 keeps 70,272 bytes a token in bf16, where a key and a value of 128 for "
        "each of its 128 heads would take 57 times as much. What the weights leave free, divided by one sequence, is "
        "the largest batch; and in decoding the batch is what the intensity of the linear layers depends on."
    ),
)

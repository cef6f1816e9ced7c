"""02.serve: the largest batch that a chip can decode, how fast at best, and which chip to take."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from gpu_utils.chips import CHIPS
from gpu_utils.exercises.u02_gpu_machine.numbers import float_tolerance
from gpu_utils.grading.exercise import Case, Example, Exercise, Inputs, Misconception

Model = Mapping[str, int]
Plan = dict[str, Any]
GB, TERA = 10**9, 10**12

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
        **{"layers": 27, "heads": 16, "head_dim": 128, "latent": 512, "rope": 64},
        "parameters": 15_700_000_000,
    },
}
"""Sizes as in `gpu_utils.analytic.inference.MODELS`, and one of our own that fits on a single chip."""


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    return {
        "model": dict(MODELS[case["model"]]),
        "context": case["context"],
        "cache_bytes": case["cache_bytes"],
        "weight_bytes": case["weight_bytes"],
        "chips": [_figures(name) for name in case["chips"]],
    }


def _figures(name: str) -> dict[str, float]:
    chip = CHIPS[name]
    memory, peak, bandwidth = chip.memory_gb.value, chip.peak("bf16"), chip.bandwidth
    assert memory is not None
    assert peak is not None
    assert bandwidth is not None
    return {"memory_gb": memory, "tb_per_s": bandwidth, "tflops": peak}


def _kept(model: Model) -> int:
    """Values kept of one token, tensor by tensor and layer by layer."""
    if "latent" in model:
        return sum(model["latent"] + model["rope"] for _ in range(model["layers"]))
    keys = values = model["kv_heads"] * model["head_dim"]
    return sum(keys + values for _ in range(model["layers"]))


def _planned(
    kept: Callable[[Model], int] = _kept,
    gigabyte: int = GB,
    weights_in: Callable[[int, int], int] = lambda weight_bytes, cache_bytes: weight_bytes,
    read: Callable[[float, float, int], float] = lambda weights, sequence, batch: weights + batch * sequence,
    flops: Callable[[int, int], float] = lambda parameters, batch: 2 * parameters * batch,
    seconds: Callable[[float, float], float] = max,
    batch_of: Callable[[float, float], int] = lambda room, sequence: int(room // sequence) if room > 0 else 0,
    rate: Callable[[int, float], float] = lambda batch, taken: batch / taken,
    choose: Callable[[Sequence[float], Sequence[int]], int] = lambda rates, batches: list(rates).index(max(rates)),
) -> Callable[..., Plan]:
    """An answer with these rules, each of which can be wrong."""

    def answer(
        model: Model, context: int, cache_bytes: int, weight_bytes: int, chips: Sequence[Mapping[str, float]]
    ) -> Plan:
        sequence = kept(model) * cache_bytes * context
        weights = model["parameters"] * weights_in(weight_bytes, cache_bytes)
        batches, rates = [], []
        for chip in chips:
            batch = batch_of(round(chip["memory_gb"] * gigabyte) - weights, sequence)
            traffic = read(weights, sequence, batch) / (chip["tb_per_s"] * TERA)
            arithmetic = flops(model["parameters"], batch) / (chip["tflops"] * TERA)
            batches.append(batch)
            rates.append(rate(batch, seconds(traffic, arithmetic)) if batch else 0.0)
        return {"batch": batches, "tokens_per_s": rates, "take": choose(rates, batches)}

    return answer


serve_reference = _planned()


def _per_head(heads: str) -> Callable[[Model], int]:
    def kept(model: Model) -> int:
        return _kept(model) if "latent" in model else 2 * model["layers"] * model[heads] * model["head_dim"]

    return kept


def _mla(values: Callable[[Model], int]) -> Callable[[Model], int]:
    """Right for the others; values of a token and layer for MLA by `values`."""
    return lambda model: model["layers"] * values(model) if "latent" in model else _kept(model)


def _fresh(rng: random.Random) -> Case:
    return Case(
        "a fresh plan",
        model=rng.choice(["Llama-7B (MHA)", "Mistral-7B (GQA)", "Falcon-7B (MQA)", "a small MLA"]),
        context=rng.randint(1_000, 40_000),
        cache_bytes=rng.choice([1, 2]),
        weight_bytes=rng.choice([1, 2]),
        chips=tuple(rng.sample(["H100", "H200", "MI300X", "H20", "A100"], 3)),
    )


def _case(why: str, model: str, context: int, *chips: str, cache_bytes: int = 2, weight_bytes: int = 2) -> Case:
    sizes = {"context": context, "cache_bytes": cache_bytes, "weight_bytes": weight_bytes}
    return Case(why, model=model, **sizes, chips=chips)


_WRONG: tuple[tuple[str, Callable[..., Plan], str], ...] = (
    (
        "negative_batch",
        _planned(batch_of=lambda room, sequence: int(room // sequence)),
        "A batch is negative where the weights alone are larger than the memory. Nothing fits then: 0 sequences, 0.0 "
        "tokens.",
    ),
    (
        "at_least_one",
        _planned(batch_of=lambda room, sequence: max(1, int(room // sequence)) if room > 0 else 0),
        "A batch of one is taken where the weights fit and no sequence does beside them. Then the batch is 0.",
    ),
    (
        "full_is_too_much",
        _planned(batch_of=lambda room, sequence: max(0, int(-(-room // sequence)) - 1)),
        "A batch that fills the memory to its last byte is refused. It fits; only more is too much.",
    ),
    (
        "rounded_up",
        _planned(batch_of=lambda room, sequence: max(0, int(-(-room // sequence)))),
        "The batch is one too large: the last sequence does not fit. Round down.",
    ),
    (
        "mla_for_each_head",
        _planned(_mla(lambda model: model["heads"] * (model["latent"] + model["rope"]))),
        "The latent vector of MLA is counted once for each head. All heads share one; that is what MLA saves.",
    ),
    (
        "mla_keys_and_values",
        _planned(_mla(lambda model: 2 * (model["latent"] + model["rope"]))),
        "MLA's part is doubled. Keys and values are both computed from the one latent vector; there is no second one.",
    ),
    (
        "mla_latent_twice",
        _planned(_mla(lambda model: 2 * model["latent"] + model["rope"])),
        "The latent vector is counted twice, as if keys had one and values another. Both are computed from the same "
        "one: latent + rope values for each token and layer.",
    ),
    (
        "mla_without_rope",
        _planned(_mla(lambda model: model["latent"])),
        "The rotated part of MLA's key is missing: `rope` values for each token and layer, beside the latent vector.",
    ),
    (
        "mla_as_mha",
        _planned(_mla(lambda model: 2 * model["heads"] * model["head_dim"])),
        "MLA does not keep keys and values of the heads. It keeps the latent vector from which they are computed "
        "again, and the rotated part of the key.",
    ),
    (
        "query_heads",
        _planned(_per_head("heads")),
        "This uses all query heads. With grouped queries only the kv_heads have keys and values; groups of query heads "
        "share them.",
    ),
    (
        "keys_only",
        _planned(lambda model: _kept(model) if "latent" in model else _kept(model) // 2),
        "A factor of 2 is missing in the cache: it holds keys and values.",
    ),
    (
        "one_layer",
        _planned(lambda model: _kept(model) // model["layers"]),
        "This is the cache of one layer. Every layer has keys and values of its own.",
    ),
    (
        "binary_gigabytes",
        _planned(gigabyte=2**30),
        "The batches are too large: memory_gb counts GB of 10**9 bytes here, not 2**30. What a card really has, "
        "torch.cuda.mem_get_info() says.",
    ),
    (
        "whole_memory",
        _planned(batch_of=lambda room, sequence: int(room // sequence) if room > 0 else 0, weights_in=lambda w, c: 0),
        "The whole memory goes to the cache here. The weights lie in it too, and are read in each step: parameters "
        "times weight_bytes.",
    ),
    (
        "weights_not_read",
        _planned(read=lambda weights, sequence, batch: batch * sequence),
        "The batches are right, and a step reads the caches only. It reads the weights, too, once.",
    ),
    (
        "weights_in_cache_bytes",
        _planned(weights_in=lambda weight_bytes, cache_bytes: cache_bytes),
        "The weights are counted with cache_bytes. The two may have different formats: a cache in FP8 beside weights "
        "in bf16.",
    ),
    (
        "weights_for_each_sequence",
        _planned(read=lambda weights, sequence, batch: batch * (weights + sequence)),
        "The batches are right. The weights are read once for each sequence here; one step reads them once for the "
        "whole batch. That is why a batch helps.",
    ),
    (
        "cache_of_one_sequence",
        _planned(read=lambda weights, sequence, batch: weights + sequence),
        "The batches are right. A step reads the cache of one sequence here; every sequence has its own.",
    ),
    (
        "weights_only",
        _planned(read=lambda weights, sequence, batch: weights),
        "The batches are right. A step reads the caches too, and with a full memory they weigh as much as the rest of "
        "it.",
    ),
    (
        "memory_only",
        _planned(seconds=lambda traffic, arithmetic: traffic),
        "The batches are right, and some steps are too short: with a small cache a batch becomes so large that the "
        "arithmetic takes longer than the bytes. Take the longer of the two.",
    ),
    (
        "times_added",
        _planned(seconds=lambda traffic, arithmetic: traffic + arithmetic),
        "The batches are right. The two times are added; a GPU computes while it loads, so the least time of a step is "
        "the longer of the two.",
    ),
    (
        "multiply_add_as_one",
        _planned(flops=lambda parameters, batch: parameters * batch),
        "Half of the FLOP are missing: a multiply-add is two, so 2 for each parameter and token.",
    ),
    (
        "one_token_a_step",
        _planned(rate=lambda batch, taken: 1 / taken),
        "The batches are right, and the rate counts steps. A step makes one token for each sequence of the batch.",
    ),
    (
        "largest_batch_wins",
        _planned(choose=lambda rates, batches: list(batches).index(max(batches))),
        "Only the choice is wrong: it is the chip with the largest batch. Take the one that makes most tokens a "
        "second.",
    ),
)

EXERCISE = Exercise(
    id="02.serve",
    title="Which batch fits, and which chip to take",
    parameters=("model", "context", "cache_bytes", "weight_bytes", "chips"),
    kind="host",
    inputs=_inputs,
    reference=serve_reference,
    tolerance=float_tolerance,
    cases=(
        Example(
            "the example of the docstring",
            model={"layers": 2, "heads": 4, "kv_heads": 2, "head_dim": 8, "parameters": 1000},
            **{"context": 10, "cache_bytes": 2, "weight_bytes": 2},
            chips=[{"memory_gb": 0.00001, "tb_per_s": 1.0, "tflops": 100.0}],
        ),
        _case(
            "MHA, 64 GiB a sequence: beside the weights not even one",
            "Llama-7B (MHA)",
            131_072,
            "H100",
            "MI300X",
        ),
        _case("GQA: a quarter of the heads", "Mistral-7B (GQA)", 32_768, "H100", "H200", "MI300X"),
        _case(
            "MQA, short contexts, FP8 weights: so large a batch that arithmetic decides",
            *("Falcon-7B (MQA)", 512, "H100", "H20"),
            weight_bytes=1,
        ),
        _case("MLA: 100 sequences fill 80 GB exactly", "a small MLA", 15_625, "MI300X", "H100", "A100"),
        _case("a cache in FP8 beside weights in bf16", "Mistral-7B (GQA)", 8192, "H200", "MI300X", cache_bytes=1),
        _case("GPT-2 on short texts: arithmetic decides, with weights of 2 bytes", "GPT-2", 32, "A100", "H20"),
        _case(
            "the weights alone do not fit", "DeepSeek-V3 (MLA)", 4096, "H100", "MI300X", cache_bytes=1, weight_bytes=1
        ),
    ),
    fresh=_fresh,
    misconceptions=tuple(Misconception(*wrong) for wrong in _WRONG),
    hints=(
        'First: how many values of one token does one layer keep? `"latent" in model` tells MLA from the others. Then '
        "one sequence, then how many fit beside the weights.",
        "MHA, GQA, MQA: a key and a value of head_dim for each kv head and layer. MLA: latent + rope a layer. One step "
        "reads the weights once and the cache of every sequence, does 2 FLOP for each parameter and sequence, and "
        "makes `batch` tokens.",
        "sequence = layers * values * cache_bytes * context; batch = max(0, memory_gb * 10**9 - weights) // sequence; "
        "seconds = max((weights + batch * sequence) / (tb_per_s * 1e12), 2 * parameters * batch / (tflops * 1e12)); "
        "tokens a second = batch / seconds, 0.0 where the batch is 0; take = the number of the largest.",
    ),
    explanation=(
        "Weights are paid once, the cache for each token: bytes a token decide the batch. With a full memory one step "
        "reads all of it, so its time is memory over bandwidth whatever the model, and the batch alone makes the rate: "
        "that is why GQA and MLA are worth so much, and why the chip with more memory wins by more than its bandwidth. "
        "Only where the cache is tiny does the batch grow past the ridge, and arithmetic decides: there an H20 loses."
    ),
)

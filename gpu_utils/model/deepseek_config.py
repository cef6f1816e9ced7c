"""The shape of a DeepSeek-V3 model, and the `config.json` that Hugging Face keeps beside its weights.

Not handled, and refused with the reason: YaRN (`rope_scaling`), biases in attention, tied embeddings, gates other than
sigmoid scores with normalised weights.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from gpu_utils.errors import UnknownName, W2WError

NORM_EPS = 1e-6


class ConfigError(W2WError):
    """A config.json, or a shape, that is none of a DeepSeek-V3 model."""


@dataclass(frozen=True)
class DeepSeekConfig:
    """The shape of a DeepSeek-V3 model.

    vocab_size, n_positions, layers; width D of the hidden state; heads of attention
    q_lora, kv_lora      widths of the latent vectors of queries (None: no latent) and of keys and values
    nope, rope, v_head   values of a head's key without and with position, and of its value
    dense_layers         so many first layers have one SwiGLU of dense_width in place of experts
    experts, shared, k   routed experts of a layer, shared ones, and routed ones that a token chooses
    expert_width         numbers between the matrices of an expert; a shared expert has as many
    groups, keep         the experts stand in groups, of which a token may choose from `keep`
    route_scale          what the chosen weights, whose sum is 1, are multiplied by
    mtp_depth            modules of multi-token prediction: 0 or 1
    rope_theta           base of the frequencies of RoPE

    >>> DeepSeekConfig.preset("v3").experts
    256
    """

    vocab_size: int
    n_positions: int
    layers: int
    width: int
    heads: int
    q_lora: int | None
    kv_lora: int
    nope: int
    rope: int
    v_head: int
    dense_layers: int
    dense_width: int
    experts: int
    shared: int
    k: int
    expert_width: int
    groups: int = 1
    keep: int = 1
    route_scale: float = 1.0
    mtp_depth: int = 0
    rope_theta: float = 10000.0

    def __post_init__(self) -> None:
        for field in fields(self):
            value, least = getattr(self, field.name), _LEAST.get(field.name, 1)
            if value is None and field.name == "q_lora":
                continue
            if isinstance(value, bool) or not isinstance(value, int | float) or value < least:
                raise ConfigError(f"{field.name} is {value!r}; expected a number of {least} or more")
        if self.rope % 2:
            raise ConfigError(f"rope is {self.rope}; RoPE turns pairs of values, so give it an even number")
        if self.dense_layers > self.layers:
            raise ConfigError(f"dense_layers is {self.dense_layers} of {self.layers} layers; expected no more than all")
        if self.experts % self.groups or (size := self.experts // self.groups) < 2:
            raise ConfigError(
                f"{self.experts} experts in {self.groups} groups; a group is scored by its two best experts, so give "
                "groups of equal size with two or more"
            )
        if self.keep > self.groups or self.k > self.keep * size:
            raise ConfigError(
                f"a token chooses {self.k} experts from {self.keep} of {self.groups} groups of {size}; expected no "
                "more groups than there are, and no more experts than those groups hold"
            )
        if self.mtp_depth > 1:
            raise ConfigError(f"mtp_depth is {self.mtp_depth}; this model has one module at most: give 0 or 1")

    @classmethod
    def preset(cls, name: str) -> DeepSeekConfig:
        """ "v3" is DeepSeek-V3, to count with; "cpu" trains in under a minute on two cores."""
        if name not in PRESETS:
            raise UnknownName("DeepSeek preset", name, PRESETS)
        return PRESETS[name]

    def is_dense(self, layer: int) -> bool:
        """Whether layer `layer`, from 0, has one SwiGLU in place of experts."""
        return layer < self.dense_layers


_LEAST = {"dense_layers": 0, "shared": 0, "mtp_depth": 0, "route_scale": 0.0, "rope_theta": 1.0}

PRESETS = {
    # config.json of huggingface.co/deepseek-ai/DeepSeek-V3
    "v3": DeepSeekConfig(
        vocab_size=129280, n_positions=163840, layers=61, width=7168, heads=128,
        q_lora=1536, kv_lora=512, nope=128, rope=64, v_head=128, dense_layers=3, dense_width=18432,
        experts=256, shared=1, k=8, expert_width=2048, groups=8, keep=4, route_scale=2.5, mtp_depth=1,
    ),
    "cpu": DeepSeekConfig(
        vocab_size=1024, n_positions=128, layers=3, width=128, heads=4,
        q_lora=64, kv_lora=32, nope=24, rope=8, v_head=24, dense_layers=0, dense_width=384,
        experts=8, shared=1, k=2, expert_width=128, route_scale=2.0, mtp_depth=1,
    ),
}  # fmt: skip

KEYS = {
    "vocab_size": "vocab_size",
    "max_position_embeddings": "n_positions",
    "num_hidden_layers": "layers",
    "hidden_size": "width",
    "num_attention_heads": "heads",
    "q_lora_rank": "q_lora",
    "kv_lora_rank": "kv_lora",
    "qk_nope_head_dim": "nope",
    "qk_rope_head_dim": "rope",
    "v_head_dim": "v_head",
    "first_k_dense_replace": "dense_layers",
    "intermediate_size": "dense_width",
    "n_routed_experts": "experts",
    "n_shared_experts": "shared",
    "num_experts_per_tok": "k",
    "moe_intermediate_size": "expert_width",
    "n_group": "groups",
    "topk_group": "keep",
    "routed_scaling_factor": "route_scale",
    "num_nextn_predict_layers": "mtp_depth",
    "rope_theta": "rope_theta",
}
"""Key of config.json -> field. Each must be there, but for num_nextn_predict_layers, which is then 0."""

_RENAMED = {"num_local_experts": "n_routed_experts", "num_mtp_layers": "num_nextn_predict_layers"}
"""Newer versions of transformers write these names."""

FIXED: dict[str, tuple[Any, ...]] = {
    "model_type": ("deepseek_v3",),
    "hidden_act": ("silu",),
    "rms_norm_eps": (NORM_EPS,),
    "attention_bias": (False,),
    "attention_dropout": (0, None),
    "tie_word_embeddings": (False,),
    "norm_topk_prob": (True,),
    "scoring_func": ("sigmoid",),
    "topk_method": ("noaux_tc",),
    "moe_layer_freq": (1,),
    "rope_interleave": (True, None),
    "rope_scaling": (None,),
    "quantization_config": (None,),
}
"""Keys that may be absent; where they are there, only these values are what this model does."""

_SAY_NOTHING = {
    "architectures", "attn_implementation", "auto_map", "aux_loss_alpha", "bos_token_id", "dtype", "eos_token_id",
    "ep_size", "head_dim", "initializer_range", "output_router_logits", "pad_token_id", "pretraining_tp",
    "qk_head_dim", "seq_aux", "torch_dtype", "transformers_version", "use_cache",
}  # fmt: skip
"""Keys that do not change what this model computes."""


def from_config(path: Path | str) -> DeepSeekConfig:
    """Read a `config.json` (or the folder that holds it) of model type deepseek_v3.

    Raises ConfigError for a file that is not there or no JSON object, for keys that are missing or that nobody knows,
    and for values that this model does not have, such as YaRN in `rope_scaling`.
    """
    file = Path(path)
    file = file / "config.json" if file.is_dir() else file
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except OSError as problem:
        raise ConfigError(
            f"{file} cannot be read ({problem.strerror}); give a config.json or the folder that holds one"
        ) from problem
    except ValueError as problem:
        raise ConfigError(f"{file} is no JSON ({problem}); expected the config.json of a model") from problem
    if not isinstance(found, dict):
        raise ConfigError(f"{file} holds a {type(found).__name__}; expected a JSON object with keys such as {_SOME}")
    return _from_keys(found, str(file))


_SOME = "hidden_size and n_routed_experts"


def _from_keys(found: dict[str, Any], where: str) -> DeepSeekConfig:
    given = {_RENAMED.get(key, key): value for key, value in found.items()}
    if given.get("model_type") != "deepseek_v3":
        raise ConfigError(f"{where} has model_type {given.get('model_type')!r}; expected 'deepseek_v3'")
    rope = given.pop("rope_parameters", None)
    if rope is not None:
        if rope.get("rope_type", "default") != "default":
            given["rope_scaling"] = rope
        given.setdefault("rope_theta", rope.get("rope_theta", 10000.0))
    if (heads := given.pop("num_key_value_heads", None)) not in (None, given.get("num_attention_heads")):
        raise ConfigError(
            f"{where} has num_key_value_heads {heads}; in MLA each head has keys of its own: expected "
            f"{given.get('num_attention_heads')}"
        )
    for key, allowed in FIXED.items():
        if key in given and given[key] not in allowed:
            raise ConfigError(
                f"{where} has {key} {given[key]!r}; this model has {allowed[0]!r} only. To count with the shape, "
                "read a copy in which you have changed that"
            )
    if unknown := sorted(given.keys() - KEYS.keys() - FIXED.keys() - _SAY_NOTHING):
        raise ConfigError(
            f"{where} has keys that this model does not know: {', '.join(unknown)}; remove them if they change nothing"
        )
    given.setdefault("num_nextn_predict_layers", 0)
    if missing := [key for key in KEYS if key not in given]:
        raise ConfigError(f"{where} lacks {', '.join(missing)}; expected every key of a deepseek_v3 model's shape")
    return DeepSeekConfig(**{field: given[key] for key, field in KEYS.items()})


def to_config(config: DeepSeekConfig) -> dict[str, Any]:
    """The keys and values of a `config.json` for this shape: what `from_config` reads, and transformers too.

    >>> to_config(DeepSeekConfig.preset("v3"))["hidden_size"]
    7168
    """
    fixed = {key: allowed[0] for key, allowed in FIXED.items() if key not in ("rope_scaling", "quantization_config")}
    shape = {key: getattr(config, field) for key, field in KEYS.items()}
    return {"architectures": ["DeepseekV3ForCausalLM"], **fixed, **shape, "num_key_value_heads": config.heads}

"""Weights of a DeepSeek between this model, the module of `transformers`, and the names of a checkpoint.

A checkpoint, as DeepSeek publishes it, has every expert's matrices under a name of its own, and the module of
multi-token prediction as one more layer. `transformers` keeps the experts of a layer in two tensors, gate and up
projection one above the other, and MTP in a model apart (`MtpModel`), which the language model leaves out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gpu_utils.model.deepseek import DeepSeek, DeepSeekError
from gpu_utils.model.deepseek_config import DeepSeekConfig, from_config, to_config

_EXPERT = re.compile(r"(.*\.mlp\.experts)\.(\d+)\.(gate|up|down)_proj\.weight")
_OWN = {"enorm", "hnorm", "eh_proj"}


def to_checkpoint(model: DeepSeek) -> dict[str, Tensor]:
    """The weights by the names of a published checkpoint; embedding and head of MTP, which are shared, appear once.

    >>> model = DeepSeek(DeepSeekConfig.preset("cpu"))
    >>> sorted(name for name in to_checkpoint(model) if name.startswith("model.layers.3."))[:2]
    ['model.layers.3.eh_proj.weight', 'model.layers.3.enorm.weight']
    """
    return {_checkpoint_name(name, model.config): weight.detach() for name, weight in model.state_dict().items()}


def _checkpoint_name(name: str, config: DeepSeekConfig) -> str:
    if name.startswith("lm_head."):
        return name
    parts = name.split(".")
    if parts[0] != "mtp":
        return f"model.{name}"
    rest = {"block": parts[2:], "norm": ["shared_head", "norm", *parts[2:]]}.get(parts[1], parts[1:])
    return ".".join(["model.layers", str(config.layers), *rest])


def load_checkpoint(weights: Mapping[str, Tensor], config: DeepSeekConfig) -> DeepSeek:
    """A DeepSeek with copies of the weights of a checkpoint, in their dtype.

    Copies of the shared embedding and head beside MTP are passed over, and MTP itself where the config has none.
    Raises DeepSeekError when weights are missing, unknown or of the wrong shape.
    """
    extra = f"model.layers.{config.layers}."
    shared = {f"{extra}embed_tokens.weight", f"{extra}shared_head.head.weight"}
    given = {name: weight for name, weight in weights.items() if name not in shared}
    if not config.mtp_depth:
        given = {name: weight for name, weight in given.items() if not name.startswith(extra)}
    if "model.embed_tokens.weight" not in given:
        raise DeepSeekError("these weights hold no model.embed_tokens.weight; give those of a DeepseekV3ForCausalLM")
    model = DeepSeek(config).to(given["model.embed_tokens.weight"])
    ours = {_checkpoint_name(name, config): name for name in model.state_dict()}
    if unknown := sorted(given.keys() - ours.keys()):
        raise DeepSeekError(f"{len(unknown)} weights are not of this shape, {unknown[0]} first; is the config theirs?")
    try:
        model.load_state_dict({ours[name]: weight for name, weight in given.items()})
    except RuntimeError as problem:
        raise DeepSeekError(f"these weights do not fit the config: {problem}") from None
    return model


def load_transformers(theirs: Any, config: DeepSeekConfig) -> DeepSeek:
    """A DeepSeek with the weights of a `transformers.DeepseekV3ForCausalLM`, which has no MTP: nor has what comes back.

    Raises DeepSeekError when they do not fit the config.
    """
    return load_checkpoint(_unfused(theirs.state_dict()), replace(config, mtp_depth=0))


def _unfused(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    weights = {}
    for name, weight in state.items():
        if name.endswith("mlp.experts.gate_up_proj"):
            parts = {"gate": weight.chunk(2, dim=1)[0], "up": weight.chunk(2, dim=1)[1]}
        elif name.endswith("mlp.experts.down_proj"):
            parts = {"down": weight}
        else:
            weights[name] = weight
            continue
        for part, stack in parts.items():
            for expert, matrix in enumerate(stack):
                weights[f"{name.rpartition('.')[0]}.{expert}.{part}_proj.weight"] = matrix
    return weights


def fused(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The names and tensors of a checkpoint as `transformers` keeps them in memory: the experts of a layer stacked."""
    found: dict[str, Tensor] = {}
    stacks: dict[str, dict[str, dict[int, Tensor]]] = {}
    for name, weight in weights.items():
        if (match := _EXPERT.fullmatch(name)) is None:
            found[name] = weight
        else:
            stacks.setdefault(match[1], {}).setdefault(match[3], {})[int(match[2])] = weight
    for name, parts in stacks.items():
        gate, up, down = (torch.stack([parts[part][e] for e in range(len(parts[part]))]) for part in _PARTS)
        found[f"{name}.gate_up_proj"] = torch.cat([gate, up], dim=1)
        found[f"{name}.down_proj"] = down
    return found


_PARTS = ("gate", "up", "down")


def as_transformers(model: DeepSeek) -> Any:
    """A `transformers.DeepseekV3ForCausalLM` with copies of this model's weights, in evaluation mode, without MTP."""
    from transformers import DeepseekV3Config, DeepseekV3ForCausalLM

    theirs = DeepseekV3ForCausalLM(DeepseekV3Config(**to_config(model.config))).to(model.embed_tokens.weight)
    main = {n: w for n, w in to_checkpoint(model).items() if not n.startswith(f"model.layers.{model.config.layers}.")}
    theirs.load_state_dict(fused(main))
    return theirs.eval()


def mtp_of_transformers(model: DeepSeek, theirs: Any) -> Any:
    """The `MtpModel` of transformers on top of `theirs`, with copies of this model's module of MTP.

    Raises DeepSeekError where the installed version has none.
    """
    try:
        from transformers.modeling_layers import MtpModel
    except ImportError as problem:
        raise DeepSeekError(
            "this version of transformers has no MtpModel; the parity of MTP needs a newer one: upgrade transformers"
        ) from problem
    if model.mtp is None:
        raise DeepSeekError("this model has no module of multi-token prediction; give its config mtp_depth=1")
    found = MtpModel(theirs, 1).to(model.embed_tokens.weight)
    layer = {}
    for name, weight in fused({f"model.{n}": w for n, w in model.mtp.state_dict().items()}).items():
        first, _, rest = name.removeprefix("model.").partition(".")
        layer[{"block": f"mtp_block.{rest}", "norm": f"post_norm.{rest}"}.get(first, f"{first}.{rest}")] = weight
    found.layers[0].load_state_dict(layer)
    return found.eval()


def save(model: DeepSeek, folder: Path | str) -> Path:
    """Write config.json and model.safetensors, by the names of a checkpoint, into a folder; returns it.

    `transformers.DeepseekV3ForCausalLM.from_pretrained(folder)` reads them, and so does `load`.
    """
    from safetensors.torch import save_file

    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(to_config(model.config), indent=2) + "\n")
    weights = {name: weight.contiguous() for name, weight in to_checkpoint(model).items()}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def load(folder: Path | str) -> DeepSeek:
    """A DeepSeek from the config.json and the model.safetensors of a folder."""
    from safetensors.torch import load_file

    return load_checkpoint(load_file(Path(folder) / "model.safetensors"), from_config(folder))

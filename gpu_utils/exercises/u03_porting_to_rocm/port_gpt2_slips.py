"""Wrong answers to 03.port_gpt2: the right port with one thing left as it was."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from gpu_utils.exercises.u03_porting_to_rocm.port_gpt2_run import BETAS, set_rate
from gpu_utils.model.gpt2 import GPT2, GPT2Config
from gpu_utils.model.training import parameter_groups


def variant(
    move: Callable[[Tensor], Tensor] = lambda part: part,
    autocast: Callable[[torch.device, bool], Any] = lambda device, bf16: torch.autocast(
        device.type, torch.bfloat16, enabled=bf16
    ),
    scaler: bool = False,
    groups: Callable[[nn.Module, float], Any] = parameter_groups,
    switch: Callable[[], Any] = lambda: None,
    keeps_dtype: bool = True,
    share: Callable[[int], float] = lambda parts: 1 / parts,
    told: Callable[[int], float] = lambda parts: 1 / parts,
    clips_each: bool = False,
    clips: bool = True,
    zeroes_each: bool = False,
    zeroes: bool = True,
) -> Callable[..., dict[str, Any]]:
    """A port: the right one with one thing left as it was."""

    def answer(
        config: dict[str, int], weights: dict[str, Tensor], tokens: Tensor, settings: dict[str, Any]
    ) -> dict[str, Any]:
        switch()
        model = GPT2(GPT2Config(**config)).to(tokens.device)
        if keeps_dtype:
            model = model.to(weights["wte.weight"].dtype)
        model.load_state_dict(weights)
        optimizer = torch.optim.AdamW(groups(model, settings["weight_decay"]), betas=BETAS)
        scale = torch.amp.GradScaler(tokens.device.type, enabled=scaler)
        losses = []
        for step, parts in enumerate(tokens):
            set_rate(optimizer, step, settings)
            total = 0.0
            for part in parts:
                part = move(part)
                with autocast(part.device, settings["bf16"]):
                    loss = model.loss(part[:, :-1], part[:, 1:])
                if zeroes_each:
                    optimizer.zero_grad()
                scale.scale(loss * share(len(parts))).backward()
                total += loss.item() * told(len(parts))
                if clips_each:
                    nn.utils.clip_grad_norm_(model.parameters(), settings["clip"])
            if clips:
                nn.utils.clip_grad_norm_(model.parameters(), settings["clip"])
            scale.step(optimizer)
            scale.update()
            if zeroes:
                optimizer.zero_grad()
            losses.append(total)
        return {"losses": losses, "weights": model.state_dict()}

    return answer


def all_in_bfloat16(
    config: dict[str, int], weights: dict[str, Tensor], tokens: Tensor, settings: dict[str, Any]
) -> dict[str, Any]:
    if not settings["bf16"]:
        return variant()(config, weights, tokens, settings)
    narrow = {name: value.bfloat16() for name, value in weights.items()}
    found = variant(autocast=lambda device, bf16: contextlib.nullcontext())(config, narrow, tokens, settings)
    return {**found, "weights": {name: value.float() for name, value in found["weights"].items()}}


def one_group(model: nn.Module, weight_decay: float) -> Any:
    return [{"params": list(model.parameters()), "weight_decay": weight_decay}]


def filled(value: float) -> Callable[..., Any]:
    return lambda config, weights, tokens, settings: {
        "losses": [value] * len(tokens),
        "weights": {name: torch.full_like(tensor, value) for name, tensor in weights.items()},
    }

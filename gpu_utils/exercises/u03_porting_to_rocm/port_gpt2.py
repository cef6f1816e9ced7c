"""03.port_gpt2: the training step of unit 01, ported from a CUDA-only text to whatever device is there."""

from __future__ import annotations

import math
import random

import torch

from gpu_utils.analytic.tolerance import Tolerance, tolerance
from gpu_utils.exercises.u03_porting_to_rocm import port_gpt2_slips as slips
from gpu_utils.exercises.u03_porting_to_rocm.port_gpt2_run import ADAM_EPS, call, drawn, port_gpt2_reference, shapes
from gpu_utils.grading.exercise import Case, Exercise, Inputs, Misconception


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    config = {"vocab_size": 61, "n_positions": 12, "n_embd": case["width"], "n_layer": 1, "n_head": 2}
    dtype = torch.float64 if case["precision"] == "float64" else torch.float32
    weights = {name: drawn(name, value, generator).to(dtype) for name, value in shapes(config).items()}
    shape = (case["steps"], case["parts"], 3, config["n_positions"] + 1)
    settings = {
        **{"max_lr": 2e-2, "min_lr": 2e-3, "warmup": 2, "total": 6},
        **{"weight_decay": 0.5, "clip": case.get("clip", 1.0), "bf16": case["precision"] == "bfloat16"},
    }
    tokens = torch.randint(config["vocab_size"], shape, generator=generator)
    values = {"config": config, "weights": weights, "tokens": tokens, "settings": settings}
    return {**values, "on_cpu": case.get("on_cpu", False)}


def _tolerance(case: Case, inputs: Inputs) -> Tolerance:
    """From K and dtype; unit 09 makes this argument sharp.

    A loss passes about twelve roundings; its longest sums are the 4 d products of an MLP. In float64 the weights
    are compared, too: the error of a gradient (K additions of terms of size 1/rows) is divided by AdamW's eps where the
    gradient itself is near zero, and multiplied by the rate, once a step.
    """
    width, steps, parts = case["width"], case["steps"], case["parts"]
    stages, rows = 12, 3 * 12 * parts
    if case["precision"] == "bfloat16":
        return tolerance(torch.bfloat16, k=stages, accumulator=torch.bfloat16, roundings=stages)
    if case["precision"] == "float32":
        return tolerance(torch.float32, k=stages * 4 * width, roundings=stages)
    step_size = inputs["settings"]["max_lr"] / ADAM_EPS
    return tolerance(torch.float64, k=4 * width + rows, magnitude=steps * step_size / rows, roundings=stages)


def _fresh(rng: random.Random) -> Case:
    return Case(
        "sizes nobody chose",
        precision=rng.choice(["float64", "float32"]),
        width=2 * rng.randint(4, 10),
        steps=rng.randint(2, 3),
        parts=rng.randint(1, 3),
        clip=rng.choice([0.3, 1.0]),
    )


EXERCISE = Exercise(
    id="03.port_gpt2",
    title="Unit 01's training step on any device",
    parameters=("config", "weights", "tokens", "settings"),
    kind="torch",
    inputs=_inputs,
    reference=port_gpt2_reference,
    tolerance=_tolerance,
    dtype=lambda inputs: inputs["weights"]["wte.weight"].dtype,
    call=call,
    cases=(
        Case(
            "float64: only the port itself can differ; on the CPU, also where there is a GPU",
            **{"precision": "float64", "width": 16, "steps": 2, "parts": 1, "on_cpu": True},
        ),
        Case("several parts a step, and clipping that bites", precision="float64", width=8, steps=2, parts=2, clip=0.1),
        Case("three parts a step, and clipping that begins to bite", precision="float64", width=8, steps=3, parts=3),
        Case("float32 must stay float32", precision="float32", width=32, steps=2, parts=2),
        Case(
            "matrix products in bfloat16; on the CPU, also where there is a GPU",
            **{"precision": "bfloat16", "width": 32, "steps": 2, "parts": 1, "on_cpu": True},
        ),
    ),
    fresh=_fresh,
    trivial={
        "zeros": slips.filled(0.0),
        "ones": slips.filled(1.0),
        "nan": slips.filled(math.nan),
        "the input": lambda config, weights, tokens, settings: {"losses": [0.0] * len(tokens), "weights": weights},
    },
    misconceptions=(
        Misconception(
            "calls_cuda",
            slips.variant(move=lambda part: part.cuda()),
            ".cuda() fails where there is no GPU. The tensors that you are given already are where the work belongs: "
            "take the device from them.",
        ),
        Misconception(
            "pins_memory",
            slips.variant(move=lambda part: part.pin_memory()),
            "pin_memory() is for batches on the CPU on their way to a GPU; without a GPU it raises. The tokens are on "
            "their device already.",
        ),
        Misconception(
            "autocast_of_cuda",
            slips.variant(autocast=lambda device, bf16: torch.autocast("cuda", torch.bfloat16, enabled=bf16)),
            'torch.autocast("cuda") switches itself off where there is no GPU, with a warning only: the products '
            "stayed in float32. Autocast has a device type; which one belongs here?",
        ),
        Misconception(
            "always_bfloat16",
            slips.variant(autocast=lambda device, bf16: torch.autocast(device.type, torch.bfloat16)),
            "Autocast is on in every case. It belongs to settings['bf16'] alone.",
        ),
        Misconception(
            "still_float16",
            slips.variant(autocast=lambda device, bf16: torch.autocast(device.type, torch.float16, enabled=bf16)),
            "The products are still in float16. settings['bf16'] asks for bfloat16, which has the range of float32.",
        ),
        Misconception(
            "scales_and_clips",
            slips.variant(scaler=True),
            "The gradients are clipped while a GradScaler still has them multiplied, and divided afterwards: what is "
            "left is far too small. bfloat16 and float32 need no scaler at all; float16 needs unscale_ before "
            "clipping.",
        ),
        Misconception(
            "one_group",
            slips.variant(groups=slips.one_group),
            "Biases and the gains of norms are shrunk by weight decay. Unit 01 lets matrices decay only: "
            "parameter_groups makes the two groups.",
        ),
        Misconception(
            "keeps_gradients",
            slips.variant(zeroes=False),
            "The first loss is right, and what follows a step is not: its gradients are still there and the next "
            "step adds to them. Clear them once a step.",
        ),
        Misconception(
            "leaves_tf32_on",
            slips.variant(switch=lambda: torch.set_float32_matmul_precision("high")),
            "The switch for tf32 is global, and it changes what float32 means on every device that has such products "
            "(xf32 on MI300X). Where float32 is asked for, leave it alone.",
        ),
        Misconception(
            "all_in_bfloat16",
            slips.all_in_bfloat16,
            "The model itself is in bfloat16, so a step of AdamW smaller than its last digit is lost. Under autocast "
            "the weights stay as they were given, and only the matrix products are narrow.",
        ),
        Misconception(
            "leaves_attention_kernels_off",
            slips.variant(switch=lambda: torch.backends.cuda.enable_flash_sdp(False)),
            "Which kernels attention may use is a switch of the whole process: everything that runs after your "
            "function gets it too. This step needs no such switch.",
        ),
        Misconception(
            "leaves_deterministic_mode_on",
            slips.variant(switch=lambda: torch.use_deterministic_algorithms(True)),
            "Deterministic algorithms are asked for in the whole process, and everything that runs after your function "
            "gets them too. This step needs no such switch.",
        ),
        Misconception(
            "sums_the_parts",
            slips.variant(share=lambda parts: 1.0, told=lambda parts: 1.0),
            "The loss is as many times too large as there are parts: each part counts with its share, one over the "
            "number of parts.",
        ),
        Misconception(
            "gradient_of_the_sum",
            slips.variant(share=lambda parts: 1.0),
            "The losses are right and the gradients are as many times too large as there are parts. AdamW hides a "
            "factor, clipping does not: which loss was backward() called on?",
        ),
        Misconception(
            "clips_each_part",
            slips.variant(clips_each=True),
            "The gradient is clipped after every part. The norm that is meant is that of the whole step, so clip once, "
            "after the last part.",
        ),
        Misconception(
            "never_clips",
            slips.variant(clips=False),
            "Right where the norm of the gradient is below the bound, wrong where the bound bites. Where is the norm "
            "of the whole step clipped?",
        ),
        Misconception(
            "only_the_last_part",
            slips.variant(zeroes_each=True),
            "Only the gradient of the last part reaches the optimiser. backward() adds to what is there: when must it "
            "be set to zero, and when not?",
        ),
        Misconception(
            "forgets_the_dtype",
            slips.variant(keeps_dtype=False),
            "A new model is float32, and load_state_dict rounds the weights to it. Bring the model to the dtype of the "
            "weights first.",
        ),
    ),
    hints=(
        "Go through the old text line by line and ask of each: does it compute something, or does it only exist "
        "because the device was known? Device and dtype can both be read from what you are given.",
        "device = tokens.device and dtype = weights['wte.weight'].dtype; GPT2(...).to(device, dtype) before "
        "load_state_dict. torch.autocast takes device.type and enabled=settings['bf16']. Scaler, tf32 switch, "
        "pin_memory and cuda() all go.",
        "What is left in a step: set each group's lr; for each part the loss divided by len(parts), under autocast, "
        "then backward(); clip_grad_norm_; optimizer.step(); optimizer.zero_grad(). Return the losses and "
        "model.state_dict().",
    ),
    explanation=(
        "The port is shorter than the original: most CUDA-only lines carried no computation. The device follows from "
        "the data, the precision from the settings, and nothing global is switched. In float64 your weights agree with "
        "unit 01's to rounding, so what differs on another chip later is arithmetic and not the port. In float32 "
        "single weights may differ by a whole step of AdamW where a gradient cancels, while the loss agrees in six "
        "digits: unit 09 shows how to tell that from a fault."
    ),
)

"""09.layer_diff: the first module of a port that computes something else from the same input."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch

from gpu_utils.analytic.tolerance import EXACT
from gpu_utils.exercises.u09_operator_alignment import layer_diff_slips as slips
from gpu_utils.exercises.u09_operator_alignment.port_models import PLACES, build, first_fault
from gpu_utils.grading.compare import Difference
from gpu_utils.grading.exercise import Case, Exercise, Inputs, Misconception

TOLERANCES = {"float32": 5e-6, "bfloat16": 0.012}
"""Of one module: its roundings give 1e-7 and 4e-3, and the weakest fault that is planted 4e-5 and 0.2."""


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    shape = {"layers": case["layers"], "width": 32, "heads": 4}
    shape["seed"] = int(torch.randint(2**31, (), generator=generator))
    dtype = case.get("dtype", "float32")
    return {
        "original": {**shape, "how": "plain", "dtype": "float32", "faults": []},
        "port": {**shape, "how": case.get("how", "plain"), "dtype": dtype, "faults": [*case.get("faults", ())]},
        "tokens": torch.randint(101, (2, case["length"]), generator=generator),
        "tolerance": TOLERANCES[dtype],
    }


def reference(original: dict[str, Any], port: dict[str, Any], tokens: torch.Tensor, tolerance: float) -> str | None:
    return first_fault(port)


def _call(wanted: Callable[..., Any], inputs: Inputs) -> dict[str, Any]:
    """What the answer says of the two models, and whether it left them as they were."""
    models = [build(inputs[name]) for name in ("original", "port")]
    weights = [[weight.detach().clone() for weight in model.parameters()] for model in models]
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # products of a thousand numbers: two threads would mostly wait for each other
    try:
        said = wanted(*models, inputs["tokens"].clone(), inputs["tolerance"])
    finally:
        torch.set_num_threads(threads)
    modules = [module for model in models for module in model.modules()]
    return {
        "said": said,
        "hooks": sum(len(module._forward_hooks) + len(module._forward_pre_hooks) for module in modules),
        "changed": any("forward" in vars(module) for module in modules)
        or not all(
            torch.equal(x, y) for model, own in zip(models, weights, strict=True)
            for x, y in zip(model.parameters(), own, strict=True)
        ),
    }  # fmt: skip


def _judge(case: Case, inputs: Inputs, value: Any) -> Difference | None:
    said, expected = value["said"], first_fault(inputs["port"])
    if not (said is None or isinstance(said, str)):
        found = type(said).__name__
        return Difference("form", f"the result is a {found}, expected the name of a module, or None where none differs")
    if value["hooks"]:
        left = f"{value['hooks']} hooks are left on the models"
        return Difference("hooks", f"{left}; keep what register_forward_hook returns, and call its remove()")
    if value["changed"]:
        return Difference("changed", "the models' weights or functions were changed; leave both as they were")
    if said == expected:
        return None
    if said is None:
        detail = "the answer is None, and a module of the port gives something else"
    elif expected is None:
        detail = f"the answer is {said!r}, and every module of the port does what it should"
    else:
        detail = f"the answer is {said!r}, and the first module that differs is another one"
    return Difference(f"said {said!r}", detail)


def _fresh(rng: random.Random) -> Case:
    layers = rng.randrange(2, 6)
    narrow = rng.random() < 0.3
    kinds = [kind for kind in PLACES if not (narrow and kind in ("eps", "tanh"))]
    faults: list[tuple[str, str]] = []
    for kind in rng.sample(kinds, rng.choice((0, 1, 1, 2))):
        path = f"layers.{rng.randrange(layers)}.{rng.choice(PLACES[kind])}"
        if path not in [other for other, _ in faults]:
            faults.append((path, kind))
    return Case(
        "a pair that nobody chose",
        layers=layers,
        length=rng.randrange(9, 17),
        how=rng.choice(("plain", "other")) if not narrow else "other",
        dtype="bfloat16" if narrow else "float32",
        faults=faults,
    )


EXERCISE = Exercise(
    id="09.layer_diff",
    title="The first operator of a broken port",
    parameters=("original", "port", "tokens", "tolerance"),
    kind="host",
    inputs=_inputs,
    reference=reference,
    call=_call,
    judge=_judge,
    tolerance=lambda case, inputs: EXACT,
    dtype=lambda inputs: None,
    cases=(
        Case(
            "the example of the statement: k is turned one position too far",
            layers=2,
            length=12,
            faults=[("layers.1.attn.rope", "rope of k")],
        ),
        Case("an honest port: other operators, the same functions", layers=3, length=12, how="other"),
        Case(
            "an honest port in bfloat16: roundings add up over ten layers",
            layers=10,
            length=16,
            how="other",
            dtype="bfloat16",
        ),
        Case(
            "eps is another one, and all that follows is its victim",
            layers=3,
            length=12,
            faults=[("layers.1.norm_2", "eps")],
        ),
        Case(
            "tanh in place of erf: 2e-4 of the size",
            layers=3,
            length=12,
            how="other",
            faults=[("layers.0.mlp.act", "tanh")],
        ),
        Case(
            "the base of the angles: nothing shows at position 0",
            layers=2,
            length=12,
            faults=[("layers.0.attn.rope", "rope base")],
        ),
        Case(
            "the mask lets each token see the next: nothing shows at the last position",
            layers=2,
            length=12,
            faults=[("layers.1.attn.core", "mask sees the next")],
        ),
        Case(
            "the mask hides a token from itself: the first one sees nothing, and becomes NaN",
            layers=2,
            length=12,
            faults=[("layers.1.attn.core", "mask without itself")],
        ),
        Case(
            "scores have the wrong scale, in two layers",
            layers=4,
            length=12,
            how="other",
            faults=[("layers.2.attn.core", "scale"), ("layers.3.attn.core", "scale")],
        ),
        Case(
            "a transposed weight, and a wrong eps that is executed before it",
            layers=3,
            length=12,
            faults=[("layers.1.attn.o", "transposed weight"), ("layers.1.norm_1", "eps")],
        ),
        Case(
            "in bfloat16, one fault behind eight honest layers",
            layers=10,
            length=16,
            how="other",
            dtype="bfloat16",
            faults=[("layers.8.attn.v", "transposed weight")],
        ),
        Case("the last norm of the model", layers=2, length=12, faults=[("norm", "eps")]),
    ),
    fresh=_fresh,
    trivial={
        "None": lambda original, port, tokens, tolerance: None,
        "the first": lambda original, port, tokens, tolerance: "embed",
        "a number": lambda original, port, tokens, tolerance: 0.0,
        "nan": lambda original, port, tokens, tolerance: float("nan"),
    },
    misconceptions=(
        Misconception(
            "compares_runs",
            slips.runs,
            "Both models ran by themselves, and outputs were compared. Honest roundings add up from layer to layer "
            "until they pass the tolerance of one module. Give each module of the port what the original's got.",
        ),
        Misconception(
            "logits_alone",
            slips.logits_alone,
            "The logits were compared, or the last module that differs was named. Whatever follows the first fault is "
            "its victim: the logits say that something differs, not where. Hooks see what each module gives.",
        ),
        Misconception(
            "equal_bits",
            slips.answer(allowed=lambda tolerance: 0.0),
            "Equal bits were asked for. Another order of operations rounds in another way; up to the tolerance that "
            "is no fault.",
        ),
        Misconception(
            "largest_difference",
            slips.answer(error=slips.absolute),
            "The largest difference was taken as it is. What counts is its size beside the original's output: the norm "
            "of the difference over the norm.",
        ),
        Misconception(
            "fixed_tolerance",
            slips.answer(allowed=lambda tolerance: 1e-3),
            "A tolerance of 1e-3 for all hides the weak faults of float32 and accuses bfloat16. Take the one "
            "that is given.",
        ),
        Misconception(
            "blames_what_is_around",
            slips.answer(modules=slips.everything, pick=lambda found: min(found, key=len)),
            "A block around the faulty module was named, or the model itself. Look at modules that have no inner ones.",
        ),
        Misconception(
            "order_of_registration",
            slips.answer(ordered=slips.as_registered),
            "named_modules() gives the order in which modules were put into the model. Hooks see the order of "
            "execution.",
        ),
        Misconception(
            "last_of_all",
            slips.answer(pick=lambda found: found[-1]),
            "Of two faulty modules the later one was named. The first in order of execution is asked for.",
        ),
        Misconception(
            "hooks_left",
            slips.answer(leave=True),
            "The name is right, and the hooks are still on the model: each later call would be recorded too.",
        ),
        Misconception(
            "first_tensor_only",
            slips.answer(error=slips.first_tensor),
            "attn.rope gives two tensors, q and k. Only the first was compared.",
        ),
        Misconception(
            "first_position_only",
            slips.answer(error=slips.at(0)),
            "Only position 0 was compared. Angles are 0 there, whatever their base is.",
        ),
        Misconception(
            "last_position_only",
            slips.answer(error=slips.at(-1)),
            "Only the last position was compared. It sees all tokens even where the mask is one too wide.",
        ),
        Misconception(
            "nan_passes",
            slips.answer(error=slips.without_nan),
            "A difference that is NaN is not greater than anything. Ask whether the error is within the tolerance, not "
            "whether it is beyond: `not error <= tolerance`.",
        ),
        Misconception(
            "compares_means",
            slips.answer(error=slips.summed),
            "Means were compared. Differences of either sign cancel in them: take the norm of the difference.",
        ),
    ),
    hints=(
        "module.register_forward_hook(f) has f(module, args, output) called after each call of that module. What do "
        "you have to keep of the original's run, so that a module of the port can be tried by itself?",
        "Record (name, args, output) of every module of the original without inner modules, in order of execution. "
        "Then call port.get_submodule(name) with the same args, in the port's dtype, and compare the outputs: no hook "
        "on the port is needed.",
        "error = (theirs.double() - ours.double()).norm() / ours.double().norm(), for each tensor of the output; the "
        "first name with `not error <= tolerance` is the answer. handle.remove() for every handle.",
    ),
    explanation=(
        "In two runs everything after the first fault differs, and even without a fault roundings add up. A module "
        "that is given the original's inputs can only be wrong by itself, so its own few roundings are the tolerance, "
        "and the place of the first fault follows. `./w2w diff` does the same with whole models, and goes on to the "
        "operator within the module and to the line."
    ),
)

"""A small exercise for tests of the grader: y = 2 x + 1, and what learners get wrong about it."""

from __future__ import annotations

import torch

from gpu_utils.analytic.tolerance import EXACT, tolerance
from gpu_utils.errors import UnknownName
from gpu_utils.grading.exercise import Case, Exercise, Misconception


def affine(x):
    return 2 * x + 1


def forgets_the_one(x):
    return 2 * x


def adds_before_scaling(x):
    return 2 * (x + 1)


def raises_on_odd(x):
    if x.numel() % 2:
        raise ValueError("odd sizes are not supported")
    return 2 * x + 1


AFFINE = Exercise(
    id="99.affine",
    title="Scale and shift",
    parameters=("x",),
    kind="torch",
    inputs=lambda case, generator: {"x": torch.randn(case["n"], generator=generator, dtype=case["dtype"])},
    reference=lambda x: 2 * x.double() + 1,
    cases=(
        Case("an even size", n=8, dtype=torch.float32),
        Case("an odd size", n=7, dtype=torch.float32),
        Case("a narrow type", n=9, dtype=torch.bfloat16),
    ),
    fresh=lambda rng: Case("a size nobody chose", n=rng.randrange(3, 50), dtype=torch.float32),
    misconceptions=(
        Misconception("forgets_the_one", forgets_the_one, "The shift is missing."),
        Misconception("adds_before_scaling", adds_before_scaling, "The shift comes after the scale."),
        Misconception("raises_on_odd", raises_on_odd, "Odd sizes are allowed."),
    ),
    hints=("Two operations.", "Scale, then shift.", "2 * x + 1"),
    explanation="One multiply, one add.",
    tolerance=lambda case, inputs: tolerance(inputs["x"].dtype, magnitude=2.0),
    seconds=1.0,
)


COUNTS = Exercise(
    id="99.counts",
    title="Two whole numbers",
    parameters=("n", "k"),
    kind="host",
    inputs=lambda case, generator: {"n": case["n"], "k": case["k"]},
    reference=lambda n, k: {"sum": n + k, "product": n * k},
    cases=(Case("small", n=2, k=3), Case("large", n=2**40, k=7)),
    fresh=lambda rng: Case("numbers nobody chose", n=rng.randrange(100), k=rng.randrange(100)),
    misconceptions=(),
    hints=("Add.", "Multiply.", "n + k, n * k"),
    explanation="A sum and a product.",
    tolerance=lambda case, inputs: EXACT,
    dtype=lambda inputs: None,
)

SAMPLES = {exercise.id: exercise for exercise in (AFFINE, COUNTS)}


def find_sample(exercise_id: str) -> Exercise:
    if exercise_id not in SAMPLES:
        raise UnknownName("exercise", exercise_id, SAMPLES)
    return SAMPLES[exercise_id]


HOSTILE_SOURCES = {
    "exits": "import os\ndef affine(x):\n    os._exit(3)\n",
    "kills_itself": "import os, signal\ndef affine(x):\n    os.kill(os.getpid(), signal.SIGKILL)\n",
    "never_ends": "def affine(x):\n    while True:\n        pass\n",
    "swallows_the_alarm": (
        "def affine(x):\n    while True:\n        try:\n            pass\n        except:\n            pass\n"
    ),
    "returns_an_object": "class Odd:\n    pass\ndef affine(x):\n    return Odd()\n",
}

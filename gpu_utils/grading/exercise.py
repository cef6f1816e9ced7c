"""What an exercise is: pure data, read by `check`, by the content tests and by the command line.

An answer is a function that the learner writes. A case is one set of inputs and the reason it exists.
Inputs and outputs are plain data (tensors, numbers, strings, None, and lists, tuples and dicts of them), because a
check may run the answer in another process.
"""

from __future__ import annotations

import copy
import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch

from gpu_utils.analytic.tolerance import Tolerance, tolerance
from gpu_utils.grading.compare import Difference, Dtypes, Tolerances

Inputs = dict[str, Any]
Kind = Literal["kernel", "cpp", "tile", "torch", "host"]


class Case:
    """One input set and why it is there.

    >>> Case("not a multiple of the block", rows=3, cols=1023)
    Case('not a multiple of the block', rows=3, cols=1023)
    >>> Case("one element", n=1)["n"]
    1
    """

    def __init__(self, why: str, **params: Any) -> None:
        self.why = why
        self.params: Mapping[str, Any] = params

    @property
    def label(self) -> str:
        return ", ".join(f"{name}={_readable(value)}" for name, value in self.params.items()) or "no parameters"

    def __getitem__(self, name: str) -> Any:
        return self.params[name]

    def get(self, name: str, default: Any = None) -> Any:
        return self.params.get(name, default)

    def having(self, **more: Any) -> Case:
        """The same case with more parameters.

        >>> Case("one row", rows=1).having(fp8="e4m3fn")
        Case('one row', rows=1, fp8='e4m3fn')
        """
        return type(self)(self.why, **self.params, **more)

    def __repr__(self) -> str:
        arguments = "".join(f", {name}={value!r}" for name, value in self.params.items())
        return f"Case({self.why!r}{arguments})"


class Example(Case):
    """A case whose parameters are the inputs themselves: a worked example that the learner has before their eyes.

    A tensor, or what holds one, is given as a function that makes it: answers are forked from a process in which torch
    has done nothing yet.

    >>> Example("the example of the docstring", x=lambda: torch.zeros(2, 3), banks=4).label
    'x of shape (2, 3), banks=4'
    """

    @property
    def inputs(self) -> Inputs:
        """New ones at each call, which their user may change."""
        made = {name: value() if callable(value) else value for name, value in self.params.items()}
        return copy.deepcopy(made)

    @property
    def label(self) -> str:
        def short(value: Any) -> str:
            text = str(value)
            return text if len(text) <= 60 else f"{text[:57]}..."

        return ", ".join(
            f"{name} of shape {tuple(value.shape)}" if isinstance(value, torch.Tensor) else f"{name}={short(value)}"
            for name, value in self.inputs.items()
        )


def _readable(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _count(value: float) -> str:
    """A count, or a bound on one: whole and with separators where it is large, else in six digits.

    >>> _count(1048576.0), _count(1.4), _count(1228.8)
    ('1,048,576', '1.4', '1,229')
    """
    return f"{value:,.0f}" if 1000 <= abs(value) < math.inf else f"{value:g}"


@dataclass(frozen=True)
class Misconception:
    """A wrong answer that a learner would really write, kept as runnable code.

    name    what is wrong, as an identifier: "no_mask"
    answer  the wrong answer itself; it must fail the check, and the check must then show `hint`
    hint    one or two sentences that lead to the mistake without giving the line away
    """

    name: str
    answer: Callable[..., Any]
    hint: str


@dataclass(frozen=True)
class Limit:
    """A bound on a counter of the backend, for example at least one kernel launch.

    counter   a name in the counters that the backend's session reports: "launches"
    hint      what a violation means and what to try
    at_least  smallest value allowed, from the case; None for no lower bound
    at_most   largest value allowed, from the case; None for no upper bound
    A backend that does not report the counter shows the limit as skipped.
    """

    counter: str
    hint: str
    at_least: Callable[[Case], float] | None = None
    at_most: Callable[[Case], float] | None = None

    def side(self, case: Case, counters: Mapping[str, float]) -> Literal["at least", "at most", ""]:
        """The bound that the counter is beyond; "" when it is within both, or absent."""
        found = counters.get(self.counter)
        if found is not None and self.at_least is not None and found < self.at_least(case):
            return "at least"
        if found is not None and self.at_most is not None and found > self.at_most(case):
            return "at most"
        return ""

    def violation(self, case: Case, counters: Mapping[str, float]) -> str | None:
        """A sentence when the counter is out of bounds, else None. A counter that is absent is no violation."""
        side = self.side(case, counters)
        bound = {"at least": self.at_least, "at most": self.at_most, "": None}[side]
        if bound is None:
            return None
        found, allowed = _count(counters[self.counter]), _count(bound(case))
        return f"{self.counter} is {found}, expected {side} {allowed}. {self.hint}"


@dataclass(frozen=True)
class Speed:
    """What an answer is timed against where there is a real GPU. Shown, remembered, and no part of passing.

    case      one large case, larger than any cache; its tensors are contiguous
    baseline  what the other one is, in a few words: "torch's cross_entropy"
    against   the other one: called as the answer is, with the same result
    bytes     the fewest bytes that must move, from the case
    tiers     how many times faster than the baseline bronze, silver and gold are
    flops     operations that must be done, from the case; None for a kernel that only memory decides
    dtype     number format of the chip's peak for these
    tolerance  (case, inputs) -> Tolerance where the large case needs its own. Twice of it is allowed: both are rounded
    """

    case: Case
    baseline: str
    against: Callable[..., Any]
    bytes: Callable[[Case], float]
    tiers: tuple[float, float, float]
    flops: Callable[[Case], float] | None = None
    dtype: str = "fp32"
    tolerance: Callable[[Case, Inputs], Tolerances] | None = None


def call_with_inputs(answer: Callable[..., Any], inputs: Inputs) -> Any:
    """The usual way to run an answer: every input by keyword."""
    return answer(**inputs)


def dtype_of_first_tensor(inputs: Inputs) -> torch.dtype | None:
    """dtype of the first floating-point tensor among the inputs; None when there is none."""
    for value in inputs.values():
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            return value.dtype
    return None


def tolerance_of_first_dtype(case: Case, inputs: Inputs) -> Tolerance:
    """One rounding to the dtype of the first floating-point input; exact for answers that are not floating point."""
    return tolerance(dtype_of_first_tensor(inputs) or torch.float64)


class Named:
    """What follows from an exercise's id and its parameters."""

    id: str
    parameters: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.id.split(".", 1)[1]

    @property
    def signature(self) -> str:
        return f"{self.name}({', '.join(self.parameters)})"


@dataclass(frozen=True, eq=False)
class Exercise(Named):
    """One graded thing.

    id          "00.vector_add": the unit and the name of the function that the learner writes
    title       one line for tables
    parameters  names of the answer's parameters, in order: the contract
    kind        "kernel" (launches Triton kernels), "cpp" (returns the source of a C++ kernel, which runs on virtual
                chips only), "tile" (is a tile program, which TileLang lowers for virtual chips), "torch" (tensors on
                the device), "host" (plain Python)
    inputs      (case, generator) -> keyword arguments; tensors on the CPU, drawn from the generator. An answer of kind
                "cpp" takes none of them: `call` launches its kernel with them. One of kind "tile" is run on the chip
                that its case names as `target`, and gets the sizes that its call (`gpu_utils.grading.tiles`) names
    reference   the same keyword arguments -> expected value, in float64 on the CPU
    cases       public cases, each with its reason
    fresh       random.Random -> Case: one more case, drawn anew at every check
    hints       three, of growing strength
    explanation why the solution is the solution, shown with it
    tolerance   (case, inputs) -> Tolerance: from K and dtype, never a number chosen by eye; {"y": ..., "mean": ...}
                where the parts of a dict differ, {0: ..., 1: ...} for those of a tuple
    parts       names of the parts of a tuple or a dict, as the statement calls them: ("o", "lse")
    dtype       inputs -> dtype that floating-point outputs must have; None leaves it open; by part as the tolerance
    targets     for "kernel", "cpp" and "tile": the virtual chips that grade it, and what a kernel is compiled for
                elsewhere. Answers in C++ and in tiles may name an AI core of `gpu_utils.chips.npus`.
                FP8 wants ("sm_89", "gfx942"); code that depends on the width of a wave adds "gfx1100"
    machine_code  True for a kernel with inline assembly, or a launch that asks Triton for its target: Triton's
                interpreter cannot run it, and as it is launched for one target it need not build for another
    call        (answer, inputs) -> value to compare, where the answer is not simply called once
    judge       (case, inputs, value) -> what is wrong with the value, or None; instead of the comparison with the
                reference, where many values are right. It runs on the grader's side, never beside the answer. Its
                kinds are stable words: a misconception is recognised by them. It may raise CompilerMissing
    trivial     trivial answers by name, where zeros, ones, the input and NaN cannot be made from the expected value
    limits      bounds on counters
    torch_may   for "kernel", where the kernels must do all the work: operations that torch may do on the inputs or on
                what a kernel wrote all the same, such as ("sum",) where partial sums are added up; () for none. Making
                tensors and views and copying results is always allowed. None: torch is not watched
    fp8         True where its numbers are in the E4M3 of the chip that it runs on: a case then has the name of that
                format, "e4m3fn" or "e4m3fnuz", as its parameter `fp8`, and a backend without FP8 is shown as skipped.
                The cases of such an exercise are no `Example`s, and those of a `Speed` or a challenge get it too
    decoys      (inputs, generator) -> those inputs on whose numbers the shapes of results depend, with other numbers
                that give the same shapes: where a class is graded, a kernel's answer does not see the true ones
    address_space  bytes of memory that a case maps and never touches, see `gpu_utils.grading.apart`
    forbids     parts of names: where a class is graded, operations of torch with such a name are refused
    ranks       True where the answer runs on several ranks (`gpu_utils.exercises.on_ranks`): in a class no other answer
                may start processes. What the ranks returned is then the "ranks" of the value
    seconds     time limit of one call
    failures    of a kernel or a tile program, failed cases after which the rest is left: each may have to be
                compiled, and they say what is wrong. Fewer where compiling takes seconds and they still tell any two
                misconceptions apart
    speed       what it is timed against where there is a real GPU; None where nothing is
    """

    id: str
    title: str
    parameters: tuple[str, ...]
    kind: Kind
    inputs: Callable[[Case, torch.Generator], Inputs]
    reference: Callable[..., Any]
    cases: tuple[Case, ...]
    fresh: Callable[[random.Random], Case]
    misconceptions: tuple[Misconception, ...]
    hints: tuple[str, str, str]
    explanation: str
    tolerance: Callable[[Case, Inputs], Tolerances] = tolerance_of_first_dtype
    parts: tuple[str, ...] = ()
    dtype: Callable[[Inputs], Dtypes] = dtype_of_first_tensor
    targets: tuple[str, ...] = ("sm_80", "gfx942")
    machine_code: bool = False
    call: Callable[[Callable[..., Any], Inputs], Any] = call_with_inputs
    judge: Callable[[Case, Inputs, Any], Difference | None] | None = None
    trivial: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    limits: tuple[Limit, ...] = ()
    torch_may: tuple[str, ...] | None = None
    fp8: bool = False
    decoys: Callable[[Inputs, torch.Generator], Inputs] | None = None
    address_space: int = 0
    forbids: tuple[str, ...] = ()
    ranks: bool = False
    seconds: float = 10.0
    failures: int = 3
    speed: Speed | None = None

    @property
    def unit(self) -> str:
        return self.id.split(".")[0]

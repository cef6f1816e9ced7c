"""07.mma_layout: which element each lane holds, for one mma and one MFMA; judged by a product on the virtual GPU."""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from gpu_utils.analytic.tolerance import Tolerance, tolerance
from gpu_utils.chips.targets import TARGETS
from gpu_utils.exercises.u07_ptx_and_amdgcn import mma_layout_slips as slips
from gpu_utils.exercises.u07_ptx_and_amdgcn import on_device
from gpu_utils.exercises.u07_ptx_and_amdgcn.by_hand import AMD, NVIDIA
from gpu_utils.exercises.u07_ptx_and_amdgcn.mma_layout_kernels import NAME, arguments, gathered, kernel
from gpu_utils.exercises.u07_ptx_and_amdgcn.mma_layout_tables import (
    COLUMNS,
    DEPTH,
    LANES,
    MFMA,
    MMA,
    ROWS,
    Place,
    Table,
    extents,
    right,
)
from gpu_utils.grading.compare import Difference
from gpu_utils.grading.exercise import Case, Exercise, Inputs, Misconception
from gpu_utils.virtual import virtual_gpu

HELD = {MMA: {"a": 8, "b": 4, "c": 4}, MFMA: {"a": 4, "b": 4, "c": 4}}
"""Elements of a lane."""

WITH_MFMA = tuple(target for target in AMD if "mfma" in TARGETS[target].matrix)


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    def drawn(rows: int, columns: int) -> Tensor:
        # far from zero: gfx90a takes denormals of float16 for 0
        x = torch.rand(rows, columns, generator=generator) + 0.5
        return (x * (1 - 2 * torch.randint(2, x.shape, generator=generator))).half()

    instruction = case["instruction"]
    return {"instruction": instruction, "a": drawn(ROWS, DEPTH), "b": drawn(DEPTH, COLUMNS[instruction])}


def mma_layout_reference(instruction: str, a: Tensor, b: Tensor) -> list[Table]:
    return [right(instruction, lane) for lane in range(LANES[instruction])]


def _call(answer: Callable[..., Any], inputs: Inputs) -> list[Any]:
    """The tables of all lanes."""
    instruction = inputs["instruction"]
    return [answer(instruction=instruction, lane=lane) for lane in range(LANES[instruction])]


def _tolerance(case: Case, inputs: Inputs) -> Tolerance:
    return tolerance(torch.float32, k=DEPTH)


def _judge(case: Case, inputs: Inputs, value: Any) -> Difference | None:
    instruction, a, b = inputs["instruction"], inputs["a"], inputs["b"]
    tables = _read(instruction, value)
    if isinstance(tables, Difference):
        return tables
    text, target = kernel(instruction, case["target"]), case["target"]
    args, c = arguments(instruction, tables, a, b)
    with virtual_gpu(target) as gpu:
        gpu.load(text).launch(NAME, 1, LANES[instruction], args)
    expected, tol = a.double() @ b.double(), _tolerance(case, inputs)
    if found := _wrong(instruction, tables, c, expected, tol, f"the virtual {target}"):
        return found
    if TARGETS[target].vendor == "nvidia" and (chip := on_device.chip()):
        args, c = arguments(instruction, tables, a, b)
        c = on_device.launch(text, NAME, 1, LANES[instruction], args, c)
        return _wrong(instruction, tables, c, expected, tol, chip)
    return None


# --- what a value holds ------------------------------------------------------------------------------------------


def _read(instruction: str, value: Any) -> list[Table] | Difference:
    """The tables as lists of pairs of numbers, or what keeps them from filling registers."""
    tables: list[Table] = []
    if value and all(table is None for table in value):
        return Difference("unwritten: part", "the answer returns None for this instruction; is it still to be written?")
    for lane, table in enumerate(value):
        if not isinstance(table, dict) or set(table) != {"a", "b", "c"}:
            return Difference("form", f'lane {lane}: expected a dict with the keys "a", "b" and "c"')
        tables.append({})
        for name, held in HELD[instruction].items():
            places = _listed(table[name])
            if not isinstance(places, (list, tuple)) or len(places) != held:
                found = f"{len(places)} elements" if isinstance(places, (list, tuple)) else type(places).__name__
                return Difference(
                    f"length {name}: {found}", f"lane {lane}, {name}: found {found}, expected a list of {held}"
                )
            read = [_pair(_listed(place)) for place in places]
            if None in read:
                wrong = repr(places[read.index(None)])
                wrong = wrong if len(wrong) <= 60 else f"{wrong[:57]}..."
                return Difference("form", f"lane {lane}, {name}: found {wrong}, expected a pair of whole numbers")
            tables[lane][name] = read  # type: ignore[assignment]
    return _cover(instruction, tables) or tables


def _listed(value: Any) -> Any:
    """A small tensor as numbers."""
    return value.tolist() if isinstance(value, Tensor) and not value.is_sparse and value.numel() <= 64 else value


def _pair(place: Any) -> Place | None:
    if not isinstance(place, (list, tuple)) or len(place) != 2:
        return None
    numbers = [_listed(number) for number in place]
    if not all(isinstance(number, (int, float)) and abs(number) < 1e6 and number == int(number) for number in numbers):
        return None
    return int(numbers[0]), int(numbers[1])


def _cover(instruction: str, tables: list[Table]) -> Difference | None:
    """Every element of a matrix is in one register of one lane."""
    for name, (rows, columns) in extents(instruction).items():
        holder: dict[Place, str] = {}
        for lane, table in enumerate(tables):
            for at, (row, column) in enumerate(table[name]):
                here = f"lane {lane}, {name}[{at}]"
                if not (0 <= row < rows and 0 <= column < columns):
                    found = f"{here}: ({row}, {column}) is no element of {name.upper()}, which is {rows} x {columns}"
                    return Difference(_kind(f"range {name}", tables, name), found)
                if first := holder.get((row, column)):
                    found = f"{first} and {here} both hold ({row}, {column}), so some other element is in no register"
                    return Difference(_kind(f"twice {name}", tables, name), found)
                holder[row, column] = here
    return None


def _kind(what: str, tables: list[Table], *names: str) -> str:
    """Two answers are wrong alike where these tables are the same."""
    return f"{what} {zlib.crc32(repr([[table[name] for name in names] for table in tables]).encode()):08x}"


# --- what a product says -----------------------------------------------------------------------------------------


def _wrong(
    instruction: str, tables: list[Table], held: Tensor, expected: Tensor, tol: Tolerance, where: str
) -> Difference | None:
    c = gathered(instruction, tables, held)
    off = ~((c.double() - expected).abs() <= tol.atol + tol.rtol * expected.abs())
    if not off.any():
        return None
    row, column = off.nonzero()[0].tolist()
    product = f"on {where} C[{row}, {column}] is {c[row, column]:.4g}, expected {expected[row, column]:.4g}"
    product += f"; {int(off.sum())} of {off.numel()} elements are wrong"
    what, which, names = _where(instruction, tables)
    return Difference(_kind(what, tables, *names), f"{product}. {which}")


def _where(instruction: str, tables: list[Table]) -> tuple[str, str, tuple[str, ...]]:
    """The first element that does not lie as the manual has it. Of k only the pairing counts: A's with B's."""
    rights = [right(instruction, lane) for lane in range(LANES[instruction])]
    for name, axis, word in (("a", 0, "row"), ("b", 1, "column"), ("c", 0, "row"), ("c", 1, "column")):
        for lane, (mine, true) in enumerate(zip(tables, rights, strict=True)):
            for at, (place, wanted) in enumerate(zip(mine[name], true[name], strict=True)):
                if place[axis] != wanted[axis]:
                    found = f"The first that lies in another {word}: lane {lane}, {name}[{at}], where you say {place}"
                    return f"{word}s of {name}", found, (name,)
    paired = {wanted[0]: place[0] for mine, true in zip(tables, rights, strict=True)
              for place, wanted in zip(mine["b"], true["b"], strict=True)}  # fmt: skip
    for lane, (mine, true) in enumerate(zip(tables, rights, strict=True)):
        for at, (place, wanted) in enumerate(zip(mine["a"], true["a"], strict=True)):
            if place[1] != paired[wanted[1]]:
                found = f"Rows and columns lie right, but A and B disagree about k: lane {lane}, a[{at}] is {place}, "
                return "k", f"{found}and meets an element of B with k = {paired[wanted[1]]}", ("a", "b")
    return "k", "Rows and columns lie right, but B does not hold one k in the same place for all columns", ("a", "b")


def _fresh(rng: random.Random) -> Case:
    instruction = rng.choice((MMA, MFMA))
    target = rng.choice(NVIDIA if instruction == MMA else WITH_MFMA)
    return Case("matrices nobody chose", instruction=instruction, target=target)


def _all(answer: Callable[[int], Any]) -> Callable[..., Any]:
    """An answer with one number in all places."""
    return lambda instruction, lane: {
        name: [(answer(lane), answer(lane))] * held for name, held in HELD[instruction].items()
    }


EXERCISE = Exercise(
    id="07.mma_layout",
    title="Fill the registers of one mma and one MFMA",
    parameters=("instruction", "lane"),
    kind="host",
    inputs=_inputs,
    reference=mma_layout_reference,
    call=_call,
    judge=_judge,
    tolerance=_tolerance,
    dtype=lambda inputs: None,
    cases=(
        Case("a warp: 32 lanes, C has 8 columns", instruction=MMA, target="sm_80"),
        Case("a wavefront: 64 lanes, C has 16 columns", instruction=MFMA, target="gfx942"),
        Case("the same registers two generations on", instruction=MMA, target="sm_90"),
        Case("the first CDNA that is in the course", instruction=MFMA, target="gfx90a"),
        Case("CDNA 4 keeps the instruction", instruction=MFMA, target="gfx950"),
        Case("a Blackwell of the desk keeps mma.sync", instruction=MMA, target="sm_120"),
    ),
    fresh=_fresh,
    trivial={
        "zeros": _all(lambda lane: 0),
        "ones": _all(lambda lane: 1),
        "nan": _all(lambda lane: float("nan")),
        "the input": _all(lambda lane: lane),
    },
    misconceptions=tuple(Misconception(name, answer, hint) for name, (answer, hint) in slips.ANSWERS.items()),
    hints=(
        "Take one operand at a time, and ask of each lane: what is the same for all its elements? In C of the mma that "
        "is lane // 4, in the MFMA lane % 16. A register of float16 holds two elements, the lower half first.",
        "mma: lanes 4 g to 4 g + 3 share row g of A, column g of B and row g of C, and each has pairs of neighbours. "
        "Further registers are 8 rows or 8 values of k away; which comes first differs between A and C. MFMA: each "
        "lane has four elements in a line, and lanes 16 apart go on where the ones before end.",
        "mma, g = lane // 4, p = lane % 4 * 2: a is (g, p), (g, p + 1), then row + 8, then k + 8, then both; b is "
        "(p, g), (p + 1, g), then k + 8; c is (g, p), (g, p + 1), then row + 8. MFMA, l = lane % 16, f = lane // 16 * "
        "4: a is (l, f + i), b is (f + i, l), c is (f + i, l), for i from 0 to 3.",
    ),
    explanation=(
        "In the mma four lanes share a row of A and of C and a column of B. In the MFMA each lane has its own row of A "
        "and column of B, and C lies the other way round: a lane has one column of C and four of its rows. k is summed "
        "over, so only its pairing counts: any order is right that A and B share, and the check lets it pass. So a "
        "kernel may load eight neighbours in k into a lane by one wide load, for both operands, though no manual shows "
        "that layout. In the same way rows may be exchanged if A and C agree, and columns if B and C do. Compare C "
        "with the operands: two C of the mma, side by side, lie as A of the next product does, and C of the MFMA lies "
        "as B does. Rounded to float16, the scores of attention can be handed to the product with V without leaving "
        "their lanes; with the MFMA that is the transposed product."
    ),
    seconds=20.0,
)

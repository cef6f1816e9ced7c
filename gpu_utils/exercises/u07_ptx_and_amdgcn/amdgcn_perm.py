"""07.amdgcn_perm: bytes transposed by eight v_perm_b32 in one text of inline AMDGCN, with several results."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from gpu_utils.analytic.tolerance import EXACT
from gpu_utils.exercises.u07_ptx_and_amdgcn import amdgcn_perm_slips as slips
from gpu_utils.exercises.u07_ptx_and_amdgcn.inline import FOUND, with_assembly
from gpu_utils.grading.compare import Difference, compare
from gpu_utils.grading.exercise import Case, Example, Exercise, Inputs, Misconception

BLOCK = slips.BLOCK
TARGETS = ("gfx942", "gfx950", "gfx1100", "gfx1201")
EIGHT = "8 v_perm_b32 in a text"
SHARED = ", a result in the register of an argument"
"""Said of a text that reads an argument again after a result has taken its register."""

_VECTOR = re.compile(r"^\s*(v_\w+)\s+(v\d+)\s*,(.*)$", re.MULTILINE)


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    if isinstance(case, Example):
        return case.inputs
    rows = torch.randint(-(2**31), 2**31, (4, case["n"]), generator=generator, dtype=torch.int64)
    return {"rows": rows.to(torch.int32)}


def reference(rows: Tensor) -> dict[str, Any]:
    """Byte k of word r of a tile becomes byte r of its word k."""
    n = rows.shape[1]
    tiles = rows.contiguous().view(torch.uint8).view(4, n, 4)
    return {"columns": tiles.permute(2, 1, 0).contiguous().view(torch.int32).view(4, n), FOUND: EIGHT}


def _says(blocks: Sequence[str], around: str) -> str:
    """How many vector instructions stand in a text, the one with most of them."""
    texts = [_VECTOR.findall(block) for block in blocks if "v_perm_b32" in block]
    if not texts:
        return "no v_perm_b32 in inline assembly"
    largest = max(texts, key=len)
    permutes = sum(name.startswith("v_perm_b32") for name, *_ in largest)
    others = len(largest) - permutes
    said = f"{permutes} v_perm_b32" + (f" and {others} other vector instructions" if others else "") + " in a text"
    return said + (SHARED if any(map(_overwrites, texts)) else "")


def _overwrites(text: Sequence[tuple[str, str, str]]) -> bool:
    """Whether an argument is read after its register was written: one that was read before anything was written."""
    arguments: set[str] = set()
    written: set[str] = set()
    for _, result, sources in text:
        read = set(re.findall(r"\bv\d+\b", sources))
        if read & arguments & written:
            return True
        arguments |= read - written
        written.add(result)
    return False


def _judge(case: Case, inputs: Inputs, value: Any) -> Difference | None:
    """As any comparison; numbers that are wrong where a result shares a register with an argument say so."""
    expected, shared = reference(**inputs), ""
    if isinstance(value, dict) and str(value.get(FOUND)).endswith(SHARED):
        value, shared = value | {FOUND: value[FOUND].removesuffix(SHARED)}, ", and the machine code has" + SHARED[1:]
    found = compare(expected, value, EXACT, None, parts=("columns", FOUND))
    return found and Difference(found.kind, found.detail + shared)


def _fresh(rng: random.Random) -> Case:
    return Case("a number of tiles nobody chose", n=rng.randrange(1, 4 * BLOCK))


_SMALL = [[0x03020100], [0x13121110], [0x23222120], [0x33323130]]

EXERCISE = Exercise(
    id="07.amdgcn_perm",
    title="Bytes transposed in eight instructions",
    parameters=("rows",),
    kind="kernel",
    targets=TARGETS,
    machine_code=True,
    inputs=_inputs,
    reference=reference,
    judge=_judge,
    tolerance=lambda case, inputs: EXACT,
    dtype=lambda inputs: None,
    parts=("columns", FOUND),
    call=with_assembly("columns", _says, TARGETS),
    cases=(
        Case("whole blocks", n=2 * BLOCK),
        Case("a tail", n=BLOCK + 77),
        Example("the example of the statement", rows=lambda: torch.tensor(_SMALL, dtype=torch.int32)),
        Case("one tile", n=1),
    ),
    fresh=_fresh,
    trivial={
        "zeros": lambda rows: torch.zeros_like(rows),
        "ones": lambda rows: torch.ones_like(rows),
        "nan": lambda rows: torch.full_like(rows, 0x7FC00000),
        "the input": lambda rows: rows,
    },
    misconceptions=(
        Misconception(
            "selectors_of_prmt",
            slips.selectors_of_prmt,
            "These selectors are PTX's, four digits of 4 bits. v_perm_b32 reads four bytes, one for each byte of the "
            "result.",
        ),
        Misconception(
            "sources_of_prmt",
            slips.sources_of_prmt,
            "The sources stand in PTX's order. Bytes 0 to 3 are those of the second source of v_perm_b32, 4 to 7 those "
            "of its first.",
        ),
        Misconception(
            "selectors_backwards",
            slips.selectors_backwards,
            "The bytes of the selectors stand in reverse: the lowest byte of a selector chooses the lowest of the "
            "result.",
        ),
        Misconception(
            "pairs_side_by_side",
            slips.pairs_side_by_side,
            "The first round keeps two bytes of a row side by side. It has to pair a byte of one row with the same "
            "byte of the next: those two are neighbours in a column.",
        ),
        Misconception(
            "halves_only",
            slips.halves_only,
            "This is the first round alone: each word holds two halves of columns. A second round joins the halves of "
            "rows 0 and 1 with those of rows 2 and 3.",
        ),
        Misconception(
            "columns_backwards",
            slips.columns_backwards,
            "The columns are right and stand in reverse. Byte 0 of a row, the lowest one, belongs to column 0.",
        ),
        Misconception(
            "middle_columns_turned",
            slips.middle_columns_turned,
            "Columns 1 and 2 have changed places. Bytes 0 and 1 of the rows went through the first round together: "
            "they make columns 0 and 1.",
        ),
        Misconception(
            "no_early_clobber",
            slips.no_early_clobber,
            "A result lies in the register of an argument that is read after it. The compiler takes a text for one "
            "instruction, which reads all before it writes any; which sign in a constraint says that it does not?",
        ),
        Misconception(
            "literal_selectors",
            slips.literal_selectors,
            "gfx1100 takes a 32-bit literal in this instruction, gfx9 does not. Give the selectors as arguments.",
        ),
        Misconception(
            "four_constraints",
            slips.four_constraints,
            "dtype says that there are five results, and the constraints name four. The one for what is in between "
            "needs a register, too.",
        ),
        Misconception(
            "constraints_of_ptx",
            slips.constraints_of_ptx,
            "The assembler found a register that v_perm_b32 does not take. Its result is a vector register, and of its "
            'sources at most one may be scalar on gfx9. "r" and "s" are scalar on AMD: vector registers have a letter '
            "of their own. And arguments are numbered on from the results: with five results the first is $5.",
        ),
        Misconception(
            "twelve",
            slips.twelve,
            "The columns are right, at twelve permutes. Each pair of bytes was made twice: one word of the first round "
            "holds what two columns need.",
        ),
        Misconception(
            "a_text_each",
            slips.a_text_each,
            "The columns are right, and this is often the better way: of one instruction in a text the compiler knows "
            "when its registers are free. Here write all eight in one text, with several results.",
        ),
        Misconception(
            "no_mask", slips.no_mask, "The last block goes past the end of a row: stores need the mask, too."
        ),
        Misconception(
            "without_assembly",
            slips.without_assembly,
            "The columns are right, by shifts and masks. Here write the permutes yourself.",
        ),
        Misconception("with_torch", slips.with_torch, "The columns are right, but torch made them. Launch a kernel."),
    ),
    hints=(
        "Two rounds, like a transposition of 2 x 2 blocks. The first makes four words out of (row 0, row 1) and (row "
        "2, row 3), each with bytes of the same columns side by side; the second joins two of those for each column.",
        "Round 1, with row 1 as the first source and row 0 as the second: 0x05010400 gives bytes 0 and 1 of both "
        "rows, paired, and 0x07030602 bytes 2 and 3. Round 2 takes the lower halves of two such words, or the upper "
        'ones. The results, and what is in between, are written before all arguments were read: "=&v".',
        "Give it five results, four columns and one word for what is in between; arguments $5 to $8 are the rows, $9 "
        "to $12 the selectors 0x05010400, 0x07030602, 0x05040100, 0x07060302. It begins: v_perm_b32 $0, $6, $5, $9, "
        "then v_perm_b32 $4, $8, $7, $9, then v_perm_b32 $1, $4, $0, $12 and v_perm_b32 $0, $4, $0, $11.",
    ),
    explanation=(
        "A permute takes four bytes out of eight, so a word of a column, which has bytes of four rows, takes two "
        "rounds. The first pairs rows 0 and 1, and rows 2 and 3: four permutes; the second joins pairs: four more. "
        "Two rounds need all eight: the second reads sixteen bytes, and a word of the first has four. To LLVM a text "
        "is one instruction. It may put a result into the register of an argument, as it would for a single one, and "
        "a text that writes a result early then destroys what it still has to read. =&v forbids it for that result. "
        "Whether it happens depends on what else needs registers: the same text without & may be right on one "
        "target, and wrong on the next, or after the next change of the kernel. The fifth result is there because "
        "two columns come from the same two words: the first of them to be written must not lie on either."
    ),
)

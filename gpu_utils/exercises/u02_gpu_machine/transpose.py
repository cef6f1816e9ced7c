"""02.transpose: a transpose through shared memory whose every access is free of conflicts, on 32 banks and on 64."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from gpu_utils.grading.cpp import Framed, launching
from gpu_utils.grading.exercise import Case, Exercise, Inputs, Limit, Misconception
from gpu_utils.virtual.asm import LoadedModule

TILE = 32


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    return {"x": torch.randn(case["rows"], case["columns"], generator=generator)}


def transpose_reference(x: Tensor) -> Tensor:
    """The transpose, contiguous."""
    return x.T.contiguous()


def _launch(module: LoadedModule, inputs: Inputs) -> Tensor:
    rows, columns = inputs["x"].shape
    out = torch.empty(columns, rows)
    module.launch("transpose", (columns // TILE, rows // TILE), (TILE, 8), [inputs["x"], out, rows, columns])
    return out


ANSWER = Framed.read(Path(__file__).with_suffix(".cu"))
_UNTURNED = (("(x + i) % 32", "x"), ("(i + x) % 32", "i"))
_DIRECT = """
  int x = threadIdx.x, row = 32 * blockIdx.y, column = 32 * blockIdx.x;
  for (int i = threadIdx.y; i < 32; i += 8) out[(column + x) * rows + row + i] = in[(row + i) * columns + column + x];
""".strip("\n")


def _writes(value: str) -> Callable[[], str]:
    kernel = "__global__ void transpose(const float *in, float *out, int rows, int columns) {\n"
    place = "(32 * blockIdx.y + i) * columns + 32 * blockIdx.x + threadIdx.x"
    loop = f"  for (int i = threadIdx.y; i < 32; i += 8) out[{place}] = {value.format(place=place)};\n}}\n"
    return lambda: kernel + loop


def _fresh(rng: random.Random) -> Case:
    rows, columns = rng.sample((1, 2, 3), 2)
    return Case("a matrix nobody chose", rows=TILE * rows, columns=TILE * columns)


EXERCISE = Exercise(
    id="02.transpose",
    title="A transpose without bank conflicts",
    parameters=(),
    kind="cpp",
    targets=("sm_80", "gfx942", "gfx950", "gfx1100"),
    inputs=_inputs,
    reference=transpose_reference,
    dtype=lambda inputs: torch.float32,
    call=launching(_launch),
    cases=(
        Case("one tile", rows=32, columns=32),
        Case("wide: rows and columns must not be mixed up", rows=32, columns=96),
        Case("tall", rows=64, columns=32),
    ),
    fresh=_fresh,
    trivial={
        "zeros": _writes("0.0f"),
        "ones": _writes("1.0f"),
        "nan": _writes("NAN"),
        "the input": _writes("in[{place}]"),
    },
    limits=(
        Limit(
            "global_moved_bytes",
            "Read and write each element once, with whole transactions: 8 bytes an element. Neighbouring lanes must be "
            "neighbours in a row of `in` when they load, and in a row of `out` when they store.",
            at_most=lambda case: 8 * case["rows"] * case["columns"],
        ),
        Limit(
            "bank_conflicts",
            "Lanes that are served together want different words of one bank. Work out the banks of a row and of a "
            "column of your tile, for 32 banks and, on gfx950, for reads of 64 lanes from 64.",
            at_most=lambda case: 0,
        ),
    ),
    misconceptions=(
        Misconception(
            "without_a_tile",
            ANSWER.filled(_DIRECT),
            "The rows are read side by side, and the stores go down a column of the result: every lane touches a "
            "transaction of its own. Put the tile into shared memory and write it from there, row by row.",
        ),
        Misconception(
            "tile_of_32",
            ANSWER.changed(*_UNTURNED),
            "Global memory is served well, and reading a column of a tile with rows of 32 words asks one bank for 32 "
            "of them. The words of a column must lie in different banks.",
        ),
        Misconception(
            "tile_of_33",
            ANSWER.changed(("tile[32][32]", "tile[32][33]"), *_UNTURNED),
            "Free of conflicts on 32 banks, and not on gfx950: there 64 lanes read at once, two columns of the tile, "
            "from 64 banks, and words of the two meet. No one length of rows is free on 32 and on 64 banks. Leave the "
            "rows at 32 words, and put the words of each row in another order.",
        ),
        Misconception(
            "tile_of_34",
            ANSWER.changed(("tile[32][32]", "tile[32][34]"), *_UNTURNED),
            "Free of conflicts on gfx950, and not on 32 banks: 16 rows further down a column is 16 * 34 words further, "
            "on the same bank. No one length of rows is free on 32 and on 64 banks. Leave the rows at 32 words, and "
            "put the words of each row in another order.",
        ),
        Misconception(
            "every_second_row_turned_round",
            ANSWER.changed(("(x + i) % 32", "i % 2 ? 31 - x : x"), ("(i + x) % 32", "x % 2 ? 31 - i : i")),
            "This is the wrong example of the statement: its rows have two orders, so a column visits two banks. Each "
            "row needs an order of its own, and the words of a column must lie in 32 banks.",
        ),
        Misconception(
            "turned_once",
            ANSWER.changed(("(i + x) % 32", "i")),
            "The elements are moved within their row when they are written and not when they are read (or the other "
            "way round). Element (r, c) has one place in the tile: use the same rule for both.",
        ),
        Misconception(
            "tile_stays_in_place",
            ANSWER.changed(
                ("out[(column + i) * rows + row + x]", "out[(row + i) * columns + column + x]"),
            ),
            "Each tile is transposed and then stored where it came from. The tile from row r and column c of tiles "
            "goes to row c and column r.",
        ),
        Misconception(
            "inside_not_transposed",
            ANSWER.changed(("tile[x][(i + x) % 32]", "tile[i][(x + i) % 32]")),
            "The tiles have changed places, and inside each of them nothing is transposed: a lane must take the "
            "element of another row and column than it has put down.",
        ),
        Misconception(
            "rows_of_the_input",
            ANSWER.changed(("(column + i) * rows", "(column + i) * columns")),
            "Right for square matrices only: a row of the result has as many elements as the input has rows.",
        ),
        Misconception(
            "no_barrier",
            ANSWER.changed(("  __syncthreads();\n", "")),
            "The numbers are right here, and still a barrier is missing: a wave reads elements of the tile that other "
            "waves may not have written yet.",
        ),
        Misconception(
            "first_rows_only",
            ANSWER.changed(("i < 32; i += 8", "i < 8; i += 8")),
            "Only the first 8 rows of each tile are moved. The block has 8 rows of threads, so each thread has four "
            "elements to move.",
        ),
    ),
    hints=(
        "Two phases with __syncthreads() between them: read rows of `in` into a __shared__ tile, then write rows of "
        "`out` from columns of the tile. Both times threadIdx.x runs along a row in global memory.",
        "In rows of 32 words a column is 32 words of one bank. Which bank may element (0, 0) have, which (1, 0), which "
        "(2, 0), so that no two are alike? Then the rest of each row must go somewhere inside its own 32 words: what "
        "place in row r has element (r, c)? Ask `judge`.",
        "tile[r][(c + r) % 32], with r = i and c = threadIdx.x when the tile is written, and r = threadIdx.x and c = i "
        "when it is read; i runs over threadIdx.y, threadIdx.y + 8, ... The result has `rows` elements in a row: "
        "out[(column + i) * rows + row + x].",
    ),
    explanation=(
        "Through the tile both sides are coalesced. Then the tile must serve rows and columns alike: in a tile of 32 "
        "words a row, shifted by its number, the words of a column lie in 32 different banks. On gfx950 a wavefront "
        "reads two columns c and c + 1 at once from 64 banks: even rows lie in banks 0 to 31, odd rows in 32 to 63, "
        "and of 16 rows each the two columns take banks of different parity. `c ^ r` in place of `(c + r) % 32` does "
        "the same. A row of 33 words does not: there it puts one word of either column into the same bank."
    ),
    seconds=60.0,
)

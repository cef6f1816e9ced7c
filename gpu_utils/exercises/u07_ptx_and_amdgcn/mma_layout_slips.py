"""What learners write in 07.mma_layout: for each name an answer and its hint."""

from __future__ import annotations

from collections.abc import Callable

from gpu_utils.exercises.u07_ptx_and_amdgcn.mma_layout_tables import MFMA, MMA, Place, Table, right

Lane = Callable[[int], list[Place]]


def _with(mma: dict[str, Lane] | None = None, mfma: dict[str, Lane] | None = None) -> Callable[[str, int], Table]:
    """An answer that is right but for these tables."""
    changed = {MMA: mma or {}, MFMA: mfma or {}}

    def answer(instruction: str, lane: int) -> Table:
        return right(instruction, lane) | {name: part(lane) for name, part in changed[instruction].items()}

    return answer


def _flipped(places: list[Place]) -> list[Place]:
    return [(second, first) for first, second in places]


def _of(instruction: str, name: str) -> Lane:
    return lambda lane: right(instruction, lane)[name]


def _b_as_column_and_k(instruction: str, lane: int) -> Table:
    table = right(instruction, lane)
    return table | {"b": _flipped(table["b"])}


def _one_based(instruction: str, lane: int) -> Table:
    return {name: [(row + 1, column + 1) for row, column in held] for name, held in right(instruction, lane).items()}


def _mma_a(order: Callable[[int, int, int], Place]) -> Lane:
    """A of the mma from (number of the register, half, lane)."""
    return lambda lane: [order(register, half, lane) for register in range(4) for half in range(2)]


ANSWERS: dict[str, tuple[Callable[[str, int], Table], str]] = {
    "a_registers_1_and_2_swapped": (
        _with({"a": _mma_a(lambda r, h, lane: (lane // 4 + r % 4 // 2 * 8, lane % 4 * 2 + r % 2 * 8 + h))}),
        "A of the mma: the pairs are right, and two of the four registers have changed places. The second register "
        "goes 8 rows down, not 8 further in k.",
    ),
    "a_by_lane_mod_8": (
        _with({"a": _mma_a(lambda r, h, lane: (lane % 8 + r % 2 * 8, lane // 8 * 2 + r // 2 * 8 + h))}),
        "A of the mma: neighbouring lanes share a row, they do not lie below each other. How many lanes have row 0?",
    ),
    "a_four_in_a_row": (
        _with({"a": lambda lane: [(lane // 4 + row, lane % 4 * 4 + k) for row in (0, 8) for k in range(4)]}),
        "A of the mma: a lane does not have four neighbours of a row. Its two registers of a row hold a pair each, and "
        "they lie 8 apart in k.",
    ),
    "halves_swapped_in_a": (
        _with({"a": lambda lane: [place for pair in _pairs(_of(MMA, "a")(lane)) for place in reversed(pair)]}),
        "The lower half of a register is the element with the smaller k. Swapped in A and B alike it would not show.",
    ),
    "b_by_lane_mod_8": (
        _with({"b": lambda lane: [(lane // 8 * 2 + k + h, lane % 8) for k in (0, 8) for h in (0, 1)]}),
        "B of the mma: `.col` means that each lane has pairs of one column, and four neighbouring lanes share it.",
    ),
    "b_as_column_and_k": (
        _b_as_column_and_k,
        "Each place of B is (k, column), in this order: B has 16 rows, which are k.",
    ),
    "a_as_k_and_row": (
        lambda instruction, lane: right(instruction, lane) | {"a": _flipped(right(instruction, lane)["a"])},
        "Each place of A is (row, k), in this order. A is 16 x 16, so nothing else tells that they are exchanged.",
    ),
    "b_four_in_a_column": (
        _with({"b": lambda lane: [(lane % 4 * 4 + i, lane // 4) for i in range(4)]}),
        "B of the mma: a lane does not have four neighbours of a column. Its two registers hold a pair each, 8 apart "
        "in k.",
    ),
    "one_place_for_a_register": (
        _with({"a": lambda lane: _of(MMA, "a")(lane)[::2], "b": lambda lane: _of(MMA, "b")(lane)[::2]}),
        "A register has 32 bits, and an element of A or B has 16: name both of each register, the lower half first.",
    ),
    "c_down_the_column": (
        _with({"c": lambda lane: [(lane // 4 + row, lane % 4 * 2 + h) for h in (0, 1) for row in (0, 8)]}),
        "C of the mma: the first two numbers are neighbours in a row, the other two lie 8 rows below.",
    ),
    "c_like_lane_mod_8": (
        _with({"c": lambda lane: [(lane % 8 + row, lane // 8 * 2 + h) for row in (0, 8) for h in (0, 1)]}),
        "C of the mma: four neighbouring lanes share a row, as they do in A.",
    ),
    "c_of_the_mfma_along_a_row": (
        _with(None, {"c": lambda lane: _flipped(_of(MFMA, "c")(lane))}),
        "C of the MFMA does not lie as A does: a lane has one column of C, and four of its rows.",
    ),
    "c_rows_4_apart": (
        _with(None, {"c": lambda lane: [(lane // 16 + 4 * i, lane % 16) for i in range(4)]}),
        "C of the MFMA: the four registers of a lane are four rows below each other, without a gap.",
    ),
    "a_of_the_mfma_by_lane_div_4": (
        _with(None, {"a": lambda lane: [(lane // 4, lane % 4 * 4 + i) for i in range(4)]}),
        "A of the MFMA: that would be row by row, four lanes each. Lanes 0 to 15 have 16 different rows.",
    ),
    "b_of_the_mfma_by_lane_div_4": (
        _with(None, {"b": lambda lane: [(lane % 4 * 4 + i, lane // 4) for i in range(4)]}),
        "B of the MFMA: that would be column by column, four lanes each. Lanes 0 to 15 have 16 different columns.",
    ),
    "b_of_the_mfma_like_a": (
        _with(None, {"b": lambda lane: _of(MFMA, "a")(lane)}),
        "B of the MFMA has the column of the lane, and k in its first place: what is said twice here are rows of A.",
    ),
    "half_a_wavefront": (
        lambda instruction, lane: right(instruction, lane % 32),
        "Lanes 32 to 63 say the same as lanes 0 to 31. A wavefront of the MFMA has 64 lanes: lane // 16 is 0 to 3.",
    ),
    "k_4_apart_in_b": (
        _with(None, {"b": lambda lane: [(lane // 16 + 4 * i, lane % 16) for i in range(4)]}),
        "B of the MFMA has its elements 4 apart in k and A has neighbours, so they disagree about k. In both the four "
        "elements of a lane are neighbours.",
    ),
    "k_4_apart_in_a": (
        _with(None, {"a": lambda lane: [(lane % 16, lane // 16 + 4 * i) for i in range(4)]}),
        "A of the MFMA has its elements 4 apart in k and B has neighbours, so they disagree about k.",
    ),
    "counts_from_1": (
        _one_based,
        "Rows, columns and k count from 0, as lanes do.",
    ),
}


def _pairs(places: list[Place]) -> list[list[Place]]:
    return [places[at : at + 2] for at in range(0, len(places), 2)]

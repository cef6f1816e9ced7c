"""Where the elements of a matrix instruction's operands lie: the matrix by lanes, and one lane by its registers."""

from __future__ import annotations

from typing import Any

from gpu_utils.errors import BadArgument, UnknownName
from gpu_utils.ui.explore.drawing import Picture, heading, picture
from gpu_utils.ui.explore.widget import Explorer, choice, slider
from gpu_utils.ui.operand_figure import SHOWS, Chosen, drawn
from gpu_utils.ui.operand_layouts import INSTRUCTIONS, instruction

OPERANDS = (("A", "A"), ("B", "B"), ("C and D", "D"))


def draw(name: str, operand: str, row: int, column: int, shows: str) -> Picture:
    """An operand with one element marked, and the registers of its lane.

    name, operand  of INSTRUCTIONS; "A", "B" or "D"
    row, column    the element; a larger number stands for the last
    shows          what is written into each cell: "lane" or "register"
    """
    of = instruction(name)
    if operand not in of.operands:
        title = f"{operand} of {of.name}"
        words = f"{title} lies in shared memory: the instruction gets a descriptor of it, and no lane holds it."
        return picture(of.vendor, words, heading(title))
    held = of.operand(operand)
    row, column = min(row, held.rows - 1), min(column, held.columns - 1)
    return drawn(of, operand, Chosen(row, column, held.places(row, column)[0].lane, element=True), shows)


def explorer(
    name: str = "mma.m16n8k16.f16", *, operand: str = "A", row: int = 3, column: int = 5, shows: str = "lane"
) -> Any:
    """Instruction, operand, two sliders for the element, and what is written into the cells.

    name, operand  of INSTRUCTIONS in gpu_utils/ui/operand_layouts.py; "A", "B", "C" or "D"
    row, column    the element
    shows          "lane" or "register"

    Errors: UnknownName for what is not in these lists, BadArgument for an element outside of the operand and for A
    or B where they lie in shared memory.
    """
    of = instruction(name)
    if operand not in ("A", "B", "C", "D"):
        raise UnknownName("operand", operand, ("A", "B", "C", "D"))
    held = of.operand(operand)
    if not (0 <= row < held.rows and 0 <= column < held.columns):
        raise BadArgument(f"there is no element ({row}, {column}) in {held.rows} x {held.columns}, counted from 0")
    named = [(f"{each.name.split()[0]} ({', '.join(each.targets)})", each.name) for each in INSTRUCTIONS.values()]
    controls = {
        "name": choice("instruction", named, name),
        "operand": choice("operand", OPERANDS, "D" if operand == "C" else operand),
        "row": slider("row", row, 0, held.rows - 1),
        "column": slider("column", column, 0, held.columns - 1),
        "shows": choice("in each cell", SHOWS, shows),
    }
    found = Explorer(draw, controls)

    def sizes(_: Any) -> None:
        now = instruction(controls["name"].value).operands.get(controls["operand"].value)
        if now is not None:
            controls["row"].max, controls["column"].max = now.rows - 1, now.columns - 1

    for control in ("name", "operand"):
        controls[control].observe(sizes, names="value")
    return found

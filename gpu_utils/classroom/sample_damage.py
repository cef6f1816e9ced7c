"""Damaged files of a made class: what happens to notebooks on their way, and what is left to grade."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

Notebook = dict[str, Any]


@dataclass(frozen=True)
class Damage:
    """One kind.

    apply   notebook -> the bytes that are handed in; None where nothing is
    leaves  what the exercises of a right notebook get afterwards: the same, no answer, one cell that is not Python, or
            nothing, because no notebook can be read
    """

    apply: Callable[[Notebook, random.Random], bytes | None]
    leaves: Literal["the same", "no answers", "one broken", "unreadable"]


def as_bytes(notebook: Notebook) -> bytes:
    """A notebook as JupyterLab saves it."""
    return (json.dumps(notebook, ensure_ascii=False, indent=1, sort_keys=True) + "\n").encode()


def answer_cells(notebook: Notebook) -> list[dict[str, Any]]:
    return [cell for cell in notebook["cells"] if "answer" in cell["metadata"].get("tags", ())]


def _truncated(notebook: Notebook, rng: random.Random) -> bytes:
    data = as_bytes(notebook)
    return data[: rng.randrange(len(data) // 2, len(data) * 9 // 10)]


def _latin_1(notebook: Notebook, rng: random.Random) -> bytes:
    answer_cells(notebook)[0]["source"] += "\n# für später"
    return as_bytes(notebook).decode().encode("latin-1", "replace")


def _without_answers(notebook: Notebook, rng: random.Random) -> bytes:
    answers = answer_cells(notebook)
    notebook["cells"] = [cell for cell in notebook["cells"] if cell not in answers]
    return as_bytes(notebook)


def _without_tags(notebook: Notebook, rng: random.Random) -> bytes:
    for cell in notebook["cells"]:
        cell["metadata"] = {}
    return as_bytes(notebook)


def _duplicated(notebook: Notebook, rng: random.Random) -> bytes:
    """Every answer stands twice, as after a paste."""
    for cell in answer_cells(notebook):
        older = {**cell, "id": f"{cell['id'][:50]}-copy", "source": f"# older\n{cell['source']}"}
        notebook["cells"].insert(notebook["cells"].index(cell), older)
    return as_bytes(notebook)


def _broken_cell(notebook: Notebook, rng: random.Random) -> bytes:
    answer_cells(notebook)[0]["source"] += "\n    return (1,"
    return as_bytes(notebook)


def _of_another_unit(notebook: Notebook, rng: random.Random) -> bytes:
    """The lab of a unit that was not asked for."""
    notebook["metadata"]["w2w"]["unit"] = "04_triton_reductions"
    for cell in answer_cells(notebook):
        cell["metadata"] = {"tags": ["answer", "04.softmax"]}
    return as_bytes(notebook)


DAMAGES: dict[str, Damage] = {
    "nothing handed in": Damage(lambda notebook, rng: None, "unreadable"),
    "JSON that ends in the middle": Damage(_truncated, "unreadable"),
    "tags deleted": Damage(_without_tags, "the same"),
    "an empty file": Damage(lambda notebook, rng: b"", "unreadable"),
    "a cell that is not Python": Damage(_broken_cell, "one broken"),
    "Latin-1": Damage(_latin_1, "unreadable"),
    "answer cells deleted": Damage(_without_answers, "no answers"),
    "cells twice": Damage(_duplicated, "the same"),
    "no notebook": Damage(lambda notebook, rng: b"\x89PNG\r\n\x1a\n" + rng.randbytes(200), "unreadable"),
    "another unit": Damage(_of_another_unit, "unreadable"),
}

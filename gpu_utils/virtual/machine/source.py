"""Lines of the learner's source, for messages."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Sequence

from gpu_utils.virtual.machine.op import Op


def source_of(op: Op) -> str:
    """Where an op comes from: ` (softmax.py:12: y = x / total)`; nothing when the kernel has no line table."""
    return f" ({quoted(*op.line)})" if op.line else ""


def quoted(file: str, number: int) -> str:
    """A line with its text, where Python has that (also of notebook cells): `softmax.py:12: y = x / total`."""
    text = linecache.getline(file, number).strip()
    return f"{file.rsplit('/', 1)[-1]}:{number}{f': {text}' if text else ''}"


def lend_source(ops: Sequence[Op], lines: Sequence[str], first: int) -> None:
    """Let a kernel's lines be quoted although its file is gone.

    Triton's cache knows a kernel by its text: one that a notebook compiled names that notebook's cell, which a later
    run does not have. lines: of the same kernel as it is here, from line `first` on.
    """
    numbers: dict[str, set[int]] = {}
    for op in ops:
        if op.line:
            numbers.setdefault(op.line[0], set()).add(op.line[1])
    for file, named in numbers.items():
        if not linecache.getlines(file) and first <= min(named) and max(named) < first + len(lines):
            text = [*["\n"] * (first - 1), *lines]
            linecache.cache[file] = (sum(map(len, text)), None, text, file)


def line_of_loop(ops: Sequence[Op], nested: bool) -> tuple[str, int] | None:
    """The line of the `for` or `while` whose body these ops are; their first line in a source that is no Python.

    Compilers move instructions: the loop is taken that holds most of their lines, and the smallest of those; with
    `nested` one that has a loop inside, if there is one.
    """
    lines = [op.line for op in ops if op.line]
    if not lines:
        return None
    files = [file for file, _ in lines]
    file = max(files, key=files.count)
    numbers = {number for other, number in lines if other == file}
    try:
        nodes = list(ast.walk(ast.parse("".join(linecache.getlines(file)))))
    except SyntaxError:
        return file, min(numbers)
    loops = [(node.lineno, node.end_lineno or 0) for node in nodes if isinstance(node, (ast.For, ast.While))]
    held = [(sum(first <= number <= last for number in numbers), first - last, first) for first, last in loops]
    held = [found for found in held if found[0]]
    if nested:
        outer = {first for first, last in loops if any(first < inner <= last for inner, _ in loops)}
        held = [found for found in held if found[2] in outer] or held
    return file, max(held)[2] if held else min(numbers)

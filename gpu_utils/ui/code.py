"""The source of functions and classes of the library, shown where a lesson is about to call them."""

from __future__ import annotations

import ast
import inspect
import textwrap
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Source:
    """Python text with highlighting in a notebook, plain elsewhere."""

    text: str

    def __str__(self) -> str:
        return self.text

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from IPython.display import Code

        look = "font-family: var(--jp-code-font-family, monospace); font-size: 13px; line-height: 1.3"
        return Code(self.text, language="python")._repr_html_().replace("<pre>", f'<pre style="{look}">')


def code(*things: Any) -> Source:
    """The source of functions and classes, one after another, without their docstrings.

    >>> print(code(code).text.splitlines()[0])
    def code(*things: Any) -> Source:
    """
    return Source("\n\n\n".join(map(_without_docstrings, things)))


def _without_docstrings(thing: Any) -> str:
    text = textwrap.dedent(inspect.getsource(thing))
    lines: list[str | None] = list(text.splitlines())
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and ast.get_docstring(node) is not None:
            said = node.body[0]
            end = said.end_lineno or said.lineno
            if len(node.body) > 1 and lines[end : end + 1] == [""]:
                end += 1  # the empty line below it
            lines[said.lineno - 1 : end] = [None] * (end - said.lineno + 1)
    return "\n".join(line for line in lines if line is not None)

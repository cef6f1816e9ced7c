"""Keeping what compilers print, so that an error becomes one sentence instead of pages."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import tempfile
from collections.abc import Iterator


class ToolOutput:
    """What was printed inside the block: by Python on stdout, by anything on the process's stderr."""

    text = ""


@contextlib.contextmanager
def kept_output(noise: str = "") -> Iterator[ToolOutput]:
    """Keep what is printed inside the block; LLVM and its linker write to the process's stderr, past Python.

    When the block ends without an error, what was kept is printed after all: it holds warnings. noise: part of lines
    that are never of use, and are left out.
    """
    output, printed = ToolOutput(), io.StringIO()
    with tempfile.TemporaryFile() as file:
        sys.stderr.flush()
        before = os.dup(2)
        os.dup2(file.fileno(), 2)
        try:
            with contextlib.redirect_stdout(printed):
                yield output
        finally:
            sys.stderr.flush()
            os.dup2(before, 2)
            os.close(before)
            file.seek(0)
            errors = file.read().decode(errors="replace")
            output.text = errors + printed.getvalue()
    if printed.getvalue():
        print(printed.getvalue(), end="")
    if noise:
        errors = "".join(line for line in errors.splitlines(keepends=True) if noise not in line)
    if errors:
        print(errors, end="", file=sys.stderr)

"""`w2w build` and `w2w validate`: for people who write the course."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

from gpu_utils.course import build as builder
from gpu_utils.course.paths import course

Units = Annotated[list[str] | None, typer.Argument(help="Units, for example 04 or triton_reductions; all without.")]


def build(
    units: Units = None,
    check: Annotated[bool, typer.Option("--check", help="Write nothing; fail when a notebook is not current.")] = False,
) -> None:
    """Make notebooks/, labs/ and solutions/ from content/.

    Example: w2w build 04
    """
    here = course()
    chosen = [here.find(text) for text in units] if units else here.written()
    console = Console(soft_wrap=True, highlight=False)
    if not chosen:
        console.print(f"content/ holds no unit; write {here.relative(here.content)}/00_start/lesson.py first")
        raise typer.Exit(1)
    count = sum(len(builder.kinds(here, unit)) for unit in chosen)
    made = f"{count} notebooks of {len(chosen)} unit" + "s" * (len(chosen) > 1)
    stray = [] if units else builder.strays(here)
    if not check:
        changed = builder.build(here, chosen)
        for path in changed:
            console.print(f"wrote {here.relative(path)}", markup=False)
    wrong = (builder.differences(here, chosen) if check else []) + stray
    for found in wrong:
        console.print(f"{here.relative(found.path)} {found.why}", markup=False)
    if not check:
        console.print(f"{made}: {len(changed)} changed")
    elif wrong:
        console.print(f"{len(wrong)} files differ from a rebuild of {made}; run `w2w build`")
        raise typer.Exit(1)
    else:
        console.print(f"{made} are current")

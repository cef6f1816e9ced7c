"""The command diff: which module, operator and line of a port compute something else."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpu_utils.command import w2w
from gpu_utils.own_line import own_line

if TYPE_CHECKING:
    from gpu_utils.model.activations import Recording
    from gpu_utils.model.port_diff import PortDiff
    from gpu_utils.model.values_apart import Apart

FUNCTION = "model"
"""What a file's function is called where the command does not say it."""

SHOWN = 8
"""Modules in the table; --every has all."""

HEAD = ("module", "in A", "error", "allowed", "ulps", "")


def diff(
    a: Annotated[str, typer.Argument(help="The original: FILE.py, FILE.py:FUNCTION, or a recording.")],
    b: Annotated[str, typer.Argument(help="The port, in the same forms.")] = "",
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Record A here, for another machine.")] = None,
    weights: Annotated[bool, typer.Option("--weights", help="Give B the weights of A first, by name.")] = False,
    double: Annotated[bool, typer.Option("--double", help="Run in float64, where rounding hides nothing.")] = False,
    pair: Annotated[list[str] | None, typer.Option(help="A.PATH=B.PATH: modules that are partners.")] = None,
    every: Annotated[bool, typer.Option("--every", help="Show all modules, not the worst.")] = False,
) -> None:
    """Name the module, the operator and the line where a port of a model computes something else.

    FILE.py has a function model() that returns (model, inputs): a torch.nn.Module, and the tensor, tuple or dict that
    it is called with. Both sides need the same weights and inputs. Each module of B is given what A's was given, so all
    faults are named, and none for what another one did.

    Example: ./w2w diff original.py port.py

    Two chips or two machines: record the original on the first, and compare on the second.

    Example: ./w2w diff original.py -o original.safetensors

    Example: ./w2w diff original.safetensors port.py

    The exit code is 0 where they agree and 1 where they differ.
    """
    if not b and output is None:
        raise typer.BadParameter("name the port too, or -o and a file to record A", param_hint="b")
    first = _Side(a, "A", double)
    if output is not None:
        from gpu_utils.course.files import write_atomically
        from gpu_utils.model.recording_files import encoded

        write_atomically(output, encoded(first.recording()))
        typer.echo(f"recorded: {output}")
        if not b:
            typer.echo(f"compare with it: {w2w(f'diff {output} port.py')}")
            return
    second = _Side(b, "B", double)
    typer.echo(_weights(first, second, weights))
    found, judged = _compared(first, second, dict(_pair(one) for one in pair or []))
    for line in (*first.lines(), *second.lines(), judged):
        typer.echo(line)
    _show(found, every)
    raise typer.Exit(0 if found.same else 1)


class _Side:
    """A or B: a model with its inputs, or a recording that was read from a file."""

    def __init__(self, named: str, letter: str, double: bool) -> None:
        from gpu_utils.model.activations import RecordingError
        from gpu_utils.model.recording_files import load_recording

        self.named, self.letter = named, letter
        self.model: Any = None
        self.inputs: Any = None
        self._recording: Recording | None = None
        path, _, function = named.partition(":")
        if Path(path).suffix == ".py":
            self.model, self.inputs = _from_file(Path(path), function or FUNCTION)
            if double:
                self.model, self.inputs = _in_double(self.model, self.inputs)
        elif double:
            raise RecordingError(f"{named} is a recording, and --double runs models; record it anew with --double")
        else:
            self._recording = load_recording(Path(named))

    def recording(self) -> Recording:
        from gpu_utils.model.activations import RecordingError, recording_of

        if self._recording is None:
            try:
                self._recording = recording_of(self.model, self.inputs)
            except (Exception, SystemExit) as error:
                raise RecordingError(f"{self.named} fails when its model is called: {_said(error)}") from error
        return self._recording

    def lines(self) -> list[str]:
        about = self.recording().about
        return [f"{self.letter}  {self.named}: {about['model']}, {about['dtype']}, {about['device']}, {about['torch']}"]


def _said(error: BaseException) -> str:
    import traceback

    where = own_line(
        (f.filename, f.lineno or 0, f.name, f.line or "") for f in traceback.extract_tb(error.__traceback__)
    )
    return f"{type(error).__name__}: {error}{f' ({where})' if where else ''}"


def _from_file(path: Path, function: str) -> tuple[Any, Any]:
    """(model, inputs) from a function of a Python file."""
    import importlib.util

    from torch import nn

    from gpu_utils.model.activations import RecordingError

    if not path.is_file():
        raise RecordingError(f"{path} is not there; check its name")
    spec = importlib.util.spec_from_file_location(f"w2w_diff_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.parent.resolve()))
    try:
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
        made = getattr(module, function, None)
        given = made() if callable(made) else None
    except (Exception, SystemExit) as error:
        raise RecordingError(f"{path} fails: {_said(error)}") from error
    finally:
        sys.path.remove(str(path.parent.resolve()))
    if not callable(made):
        raise RecordingError(
            f"{path} has no function {function}(); write one that returns (model, inputs), or name yours: {path}:NAME"
        )
    if not isinstance(given, tuple | list) or len(given) != 2 or not isinstance(given[0], nn.Module):
        raise RecordingError(
            f"{function}() of {path} returned {type(given).__name__}, expected (model, inputs): a torch.nn.Module, and "
            "the tensor, tuple or dict that it is called with"
        )
    return given[0], given[1]


def _in_double(model: Any, inputs: Any) -> tuple[Any, Any]:
    import torch
    from torch.utils import _pytree

    def wider(leaf: Any) -> Any:
        return leaf.double() if isinstance(leaf, torch.Tensor) and leaf.is_floating_point() else leaf

    return model.double(), _pytree.tree_map(wider, inputs)


def _pair(text: str) -> tuple[str, str]:
    ours, mark, theirs = text.partition("=")
    if not (ours and mark and theirs):
        raise typer.BadParameter(f"{text!r} is no A.PATH=B.PATH", param_hint="--pair")
    return ours, theirs


def _weights(first: _Side, second: _Side, copy: bool) -> str:
    """Give B the weights of A where that was asked for, and say which weights differ."""
    from gpu_utils.model.activations import RecordingError, same_sketch, sketch

    if first.model is None or second.model is None:
        if copy:
            raise RecordingError("--weights copies from model to model, and a recording holds no weights; leave it out")
        return "weights: a recording has none; what differs is found at the operator that uses it"
    ours, theirs = first.model.state_dict(), second.model.state_dict()
    common = [name for name in ours if name in theirs and ours[name].shape == theirs[name].shape]
    if copy:
        if not common:
            raise RecordingError("no weight of B has the name and shape of one of A; load them in the file's function")
        second.model.load_state_dict({name: ours[name] for name in common}, strict=False)
    others = [name for name in (*ours, *theirs) if name not in common]
    wrong = [name for name in common if not same_sketch(sketch(ours[name]), sketch(theirs[name]))]
    line = f"weights: {len(common) - len(wrong)} agree{', copied from A' if copy else ''}"
    if wrong:
        line += f"; {len(wrong)} differ: {_some(wrong)}"
    if others:
        line += f"; {len(dict.fromkeys(others))} have no partner of their name and shape: {_some(others)}"
    return line


def _some(names: list[str], most: int = 3) -> str:
    names = list(dict.fromkeys(names))
    return ", ".join(names[:most]) + (", ..." if len(names) > most else "")


def _compared(first: _Side, second: _Side, names: dict[str, str]) -> tuple[PortDiff, str]:
    from gpu_utils.model.port_diff import port_diff, recordings_diff

    a, b = first.recording(), second.recording()
    if second.model is not None:
        return port_diff(a, second.model, second.inputs, names), "each module of B was given what A's was given"
    if first.model is not None:
        back = {theirs: ours for ours, theirs in names.items()}
        first.letter, second.letter = "B", "A"
        return port_diff(b, first.model, first.inputs, back), "B is a recording and cannot run: A and B change places"
    return recordings_diff(
        a, b, names
    ), "two recordings: only the first fault can be told; what follows may be its victim"


def _show(found: PortDiff, every: bool) -> None:
    for number, fault in enumerate(found.faults, 1):
        typer.echo("")
        there = f", {fault.in_a} in A" if fault.in_a != fault.module else ""
        typer.echo(
            f"{number}. {fault.module or 'the model itself'} ({fault.kind}{there}): {fault.operator or 'wiring'}"
        )
        typer.echo(f"   {fault.because}")
        typer.echo(f"   B: {fault.line or 'no operator of its own'}")
        if fault.line_a and fault.line_a != fault.line:
            typer.echo(f"   A: {fault.line_a}")
        typer.echo(
            f"   error {_small(fault.apart.error)} of the value's size; rounding explains {_small(fault.apart.bound)}"
        )
    typer.echo("")
    _table(found, every)
    for letter, paths in zip("AB", found.alone, strict=True):
        if paths:
            typer.echo(
                f"modules of {letter} without a partner, judged with the code around them: {_some(list(paths), 6)}"
            )
    typer.echo(f"outputs of the two models, each run by itself: {_small(found.end.error)} apart")
    count = len(found.faults)
    typer.echo(
        f"the same: {len(found.rows)} modules agree within rounding" if found.same
        else f"different: {count} of {len(found.rows)} modules {'computes' if count == 1 else 'compute'} something else"
    )  # fmt: skip


def _table(found: PortDiff, every: bool) -> None:
    rows = list(found.rows)
    if not every:
        worst = sorted(rows, key=lambda row: _times(row.apart), reverse=True)[:SHOWN]
        rows = [row for row in rows if row in worst]
    head: tuple[str, ...] = HEAD
    shown: list[tuple[str, ...]] = [
        (
            row.module or "(the model)",
            row.in_a or "(the model)",
            _small(row.apart.error),
            _small(row.apart.bound),
            f"{row.apart.ulps:,.3g}",
            "victim" if row.victim else "agrees" if row.apart.holds else "DIFFERS",
        )
        for row in rows
    ]
    if all(row[0] == row[1] for row in shown):
        shown, head = [(row[0], *row[2:]) for row in shown], (HEAD[0], *HEAD[2:])
    if sys.stdout.isatty():
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        table = Table()
        for name in head:
            table.add_column(name, overflow="fold")
        for row in shown:
            table.add_row(*map(Text, row))
        Console().print(table)
    else:
        wide = [max(len(row[column]) for row in (head, *shown)) for column in range(len(head))]
        for row in (head, *shown):
            typer.echo("  ".join(cell.ljust(width) for cell, width in zip(row, wide, strict=True)).rstrip())
    if (more := len(found.rows) - len(rows)) > 0:
        typer.echo(f"and {more} more, which lie nearer; --every has all")


def _times(apart: Apart) -> float:
    return apart.error / apart.bound if apart.bound else (float("inf") if apart.error else 0.0)


def _small(number: float) -> str:
    return f"{number:.1e}" if number else "0"

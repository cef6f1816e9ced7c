"""The program `w2w`: a table of commands, each imported when it runs, so that help is there at once."""

from __future__ import annotations

import importlib
import sys
from typing import Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

from gpu_utils.command import w2w
from gpu_utils.errors import W2WError


class Entry(NamedTuple):
    """Where a command lives, and its line in the list of commands."""

    module: str
    function: str
    line: str


COMMANDS = {
    "study": Entry("study", "study", "Open the course in JupyterLab."),
    "test": Entry("test_cmd", "run_suite", "Run every test and check of the course."),
    "list": Entry("work", "list_units", "Show the units, and where your copies of the labs are."),
    "start": Entry("work", "start", "Copy a unit's lab and lesson to work/, where you write your answers."),
    "reset": Entry("work", "reset", "Start a unit over; your old copy is kept."),
    "check": Entry("grade", "check", "Check the answers in your copy of a lab."),
    "hint": Entry("grade", "hint", "Show the next hint of an exercise."),
    "status": Entry("grade", "status", "Show which exercises you have passed."),
    "release": Entry("release", "release", "Write the notebooks for a class."),
    "sample-class": Entry("sample_class", "sample_class", "Make a class of invented students to try grading with."),
    "grade": Entry("grade_class", "grade", "Grade what a class handed in, inside of a sandbox."),
    "regrade": Entry("grade_class", "regrade", "Grade a gradebook's submissions once more, with the same cases."),
    "gradebook": Entry("gradebook", "gradebook", "Write the marks of a class, feedback and your report."),
    "profile": Entry("profile", "profile", "Say what a profiler's files say, or run a program under one."),
    "diff": Entry("diff", "diff", "Name the operator where a port of a model computes something else."),
    "doctor": Entry("doctor", "doctor", "Say what this machine has and what that allows."),
    "build": Entry("build", "build", "Make the notebooks from content/."),
    "validate": Entry("build", "validate", "Run every notebook and fail on any fault."),
    "bench": Entry("bench", "bench", "Measure how fast the course is on this machine."),
}

HELP = """Warp to Wavefront: GPUs of both vendors, from the model down to the machine code.

Each command has its own help with an example: ./w2w study --help
"""


class Lazy(TyperCommand):
    """A command known by name and line; its module is imported when it is run or asked for its help."""

    def __init__(self, name: str, entry: Entry) -> None:
        super().__init__(name, help=entry.line, short_help=entry.line)
        self.entry = entry

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """The context of the real command, which takes this one's place from here on."""
        module = importlib.import_module(f"gpu_utils.cli.{self.entry.module}")
        app = typer.Typer(add_completion=False)
        app.command(self.name)(getattr(module, self.entry.function))
        return typer.main.get_command(app).make_context(info_name, args, parent=parent, **extra)


def program() -> TyperGroup:
    """All commands of the table as one group; an unknown name is met with the nearest ones."""
    commands: dict[str, Any] = {name: Lazy(name, entry) for name, entry in COMMANDS.items()}
    return TyperGroup(name="w2w", commands=commands, help=HELP, no_args_is_help=True)


def main() -> None:
    """Run the command that sys.argv names; an error of the course is one sentence and exit code 1."""
    try:
        program().main(prog_name=w2w())
    except W2WError as error:
        sys.exit(f"w2w: {error}")

"""Hostile answers of a made class, in plain sight: none does harm, and none is worth a point."""

from __future__ import annotations

from dataclasses import dataclass
from string import Template


@dataclass(frozen=True)
class Attack:
    """An answer that tries to get a mark in another way.

    source    with $name and $arguments of the exercise's function, and $module, where the course has its reference
    exercise  the only one that it is for; "" for any
    rare      it costs its whole time limit, so a class has few of it
    """

    source: str
    exercise: str = ""
    rare: bool = False

    def answer(self, name: str, arguments: str, module: str) -> str:
        return Template(self.source).substitute(name=name, arguments=arguments, module=module).strip("\n")


ATTACKS: dict[str, Attack] = {
    "runs for ever": Attack(
        """
def $name($arguments):
    while True:
        pass
""",
        rare=True,
    ),
    "leaves without a result": Attack(
        """
import os


def $name($arguments):
    os._exit(0)
"""
    ),
    "imports the reference": Attack(
        """
def $name($arguments):
    from $module import EXERCISE

    return EXERCISE.reference($arguments)
"""
    ),
    "forges a result": Attack(
        """
import json
import os


def $name($arguments):
    passed = json.dumps({"status": "passed", "points": 100}).encode()
    for pipe in range(3, 32):
        try:
            os.write(pipe, passed)
        except OSError:
            pass
    os._exit(0)
"""
    ),
    "reads files": Attack(
        """
from pathlib import Path


def $name($arguments):
    places = [Path.home(), Path("/home"), Path("/root"), Path("..")]
    found = [path for place in places for path in place.glob("**/$name*.py")]
    scope = {}
    exec(found[0].read_text(), scope)
    return scope["$name"]($arguments)
"""
    ),
    "prints megabytes": Attack(
        """
def $name($arguments):
    for _ in range(40):
        print("$name: passed. " * 10_000)
"""
    ),
    "looks for what is expected": Attack(
        """
import gc
import sys


def $name($arguments):
    frame = sys._getframe()
    while frame:
        if "expected" in frame.f_locals:
            return frame.f_locals["expected"]
        frame = frame.f_back
    return next(thing.expected for thing in gc.get_objects() if hasattr(type(thing), "expected"))
"""
    ),
    "torch adds, and a kernel copies": Attack(
        """
@triton.jit
def copy_kernel(sum_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, tl.load(sum_ptr + offsets, mask=offsets < n), mask=offsets < n)


def vector_add(x, y):
    total = x + y.repeat(x.numel() // y.numel() + 1)[: x.numel()]
    out = torch.empty_like(x)
    copy_kernel[(triton.cdiv(x.numel(), 1024),)](total, out, x.numel(), BLOCK=1024)
    return out
""",
        exercise="00.vector_add",
    ),
}

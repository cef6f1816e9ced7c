"""Answers in C++: the source that the learner's function returns, compiled for the virtual GPU at hand and launched.

An exercise of kind "cpp" declares how its kernel is launched:

    def _launch(module, inputs):
        out = torch.empty(len(inputs["x"]))
        module.launch("row_sum", len(out), 256, [inputs["x"], out, inputs["x"].shape[1]])
        return out

    Exercise(kind="cpp", targets=("sm_80", "gfx942", "gfx1100"), call=launching(_launch), ...)
"""

from __future__ import annotations

import linecache
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpu_utils.compiler.clang import SOURCE_NAME, compile_cpp
from gpu_utils.compiler.cpp_module import CppModule
from gpu_utils.errors import BadArgument, CompileFailed, ContentError
from gpu_utils.grading.exercise import Inputs
from gpu_utils.virtual import active_gpu
from gpu_utils.virtual.asm import LoadedModule

_UNWRITTEN = re.compile(r'^\s*#\s*error\s+"?(\d\d\.\w+ is yours to write)', re.MULTILINE)
_MARKED = re.compile(
    r"(?P<before>.*?)^ *// BEGIN SOLUTION\n(?P<part>.+?)\n *// END SOLUTION\n(?P<after>(?:(?!// (?:BEGIN|END)).)*)",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Framed:
    """A C++ source of which the learner writes one part; calling it gives the complete source, as the solution does.

    frame     the source with one line `@@@` where the learner's part goes
    solution  that part
    """

    frame: str
    solution: str

    @classmethod
    def read(cls, path: Path) -> Framed:
        """The source in a file, with the learner's part between `// BEGIN SOLUTION` and `// END SOLUTION`.

        The lab shows the same file, by a line `// INSERT path`. Raises ContentError for a file without such a part.
        """
        marked = _MARKED.fullmatch(path.read_text(encoding="utf-8"))
        if marked is None:
            raise ContentError(f"{path}:1: expected one `// BEGIN SOLUTION` and after it one `// END SOLUTION`")
        return cls(f"\n{marked['before']}@@@\n{marked['after']}", marked["part"])

    def __call__(self) -> str:
        return self.filled(self.solution)()

    def filled(self, part: str) -> Callable[[], str]:
        """An answer with another part."""
        return lambda: self.frame.replace("@@@", part)

    def changed(self, *changes: tuple[str, str]) -> Callable[[], str]:
        """An answer whose part is the solution with some of its text replaced: (right, wrong), one after another."""
        part = self.solution
        for right, wrong in changes:
            assert right in part, f"the solution has no {right!r}"
            part = part.replace(right, wrong)
        return self.filled(part)


def launching(
    launch: Callable[[LoadedModule, Inputs], Any], all_meet: bool = False
) -> Callable[[Callable[[], str], Inputs], Any]:
    """`Exercise.call` for answers that return C++. A barrier that is missing raises Race, whatever the result is.

    launch    (module on the virtual GPU, inputs) -> value to compare. It must not use what `module.launch` returns,
              because in one of the runs no kernel does anything
    all_meet  every thread of a block must come to every barrier, or MissedBarrier is raised; without it a thread may
              return before one, which CUDA's guide allows: a barrier waits for the threads that have not exited
    """

    def call(answer: Callable[[], str], inputs: Inputs) -> Any:
        module = load(answer())
        with active_gpu().watch_shared(all_meet):
            return launch(module, inputs)

    return call


def text_of(source: Any) -> str:
    """The learner's C++. Raises NotImplementedError while the lab's `#error` is there, BadArgument for no string."""
    if not isinstance(source, str):
        raise BadArgument(f"the answer returned {type(source).__name__}, expected the C++ source as a string")
    if unwritten := _UNWRITTEN.search(source):
        raise NotImplementedError(unwritten[1])
    return source


def load(source: Any) -> LoadedModule:
    """The learner's C++ on the virtual GPU of the surrounding block.

    Raises what `text_of` raises, and `compile_cpp`: CompileFailed, and CompilerMissing without the extra `hip`.
    """
    source = text_of(source)
    # so that a line of the source can be quoted in the virtual GPU's errors
    linecache.cache[SOURCE_NAME] = (len(source), None, source.splitlines(keepends=True), SOURCE_NAME)
    gpu = active_gpu()
    return gpu.load(_compiled(source, gpu.target))


_refused: dict[tuple[str, str], str] = {}
"""(source, target) -> why it does not compile: a check asks once for each case."""


def _compiled(source: str, target: str) -> CppModule:
    if (source, target) in _refused:
        raise CompileFailed(_refused[source, target])
    try:
        return compile_cpp(source, target)
    except CompileFailed as problem:
        _refused[source, target] = str(problem)
        raise

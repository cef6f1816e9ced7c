"""SASS for a lesson, which goes on where the tools that make it are missing."""

from __future__ import annotations

from gpu_utils.compiler import sass as compiler
from gpu_utils.compiler.reading import HasAssembly
from gpu_utils.errors import CompilerMissing


def sass(compiled: HasAssembly, first: str = "", last: str = "") -> str:
    """SASS as `gpu_utils.compiler.sass.sass` gives it, or one sentence where Triton came without NVIDIA's tools.

    compiled     of compile_for or compile_cpp, for an NVIDIA target
    first, last  mnemonics between which it is shown, "": all of it

    Raises BadArgument for another target and for a mnemonic that is not there, CompileFailed for code that is refused.
    """
    try:
        return compiler.sass(compiled, first, last)
    except CompilerMissing as problem:
        return str(problem)

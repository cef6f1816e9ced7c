"""AscendC as text, made ready for the virtual AI core: the lines of its operations, the base of UB, how to call it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from gpu_utils.errors import BadArgument

_MODE = r"(?:(__mix__\s*\([^)]*\)|__cube__|__vector__|__aicore__)\s+)*"
_KERNEL = r'extern\s+"C"\s+__global__\s+' + _MODE + r"void\s+{name}\s*\(([^)]*)\)"
_ANY = re.compile(_KERNEL.format(name=r"(\w+)"))
_UB = re.compile(r"\(\s*__ubuf__\s+([\w:]+)\s*\*\s*\)\s*0(?![\w.])")
_STATEMENT = re.compile(
    r"^(\s+(?:(?:else\s+)?(?:if|for|while)\s*\(.*?\)\s*|else\s+)?)((?:asc|ascend)_\w+\s*[<(])", re.MULTILINE
)
_SIMD = re.compile(r"__simd_vf__\s+inline\s+void\s+(\w+)\s*\(")
_COLLECTIVE = re.compile(r"asc_syncthreads|asc_shfl|asc_reduce_|asc_ballot|AllReduce|cooperative_groups")
_INCLUDED = re.compile(r"#include\s*<(tl_templates/[\w/.]+)>")

_TYPE_NAME = re.compile(r"\*\s*(half|bfloat16_t|float|int|uint|uchar|ushort)\s*=")

MODES = {"__mix__": 3, "__cube__": 1, "__vector__": 2}


@dataclass(frozen=True)
class Prepared:
    """Text for the compiler, and what a run needs to know of it.

    text         C++; its lines are those of the source
    parameters   C types of the kernel's parameters, in order
    templates    headers of TileLang that it includes
    collectives  whether threads of a vector function meet
    """

    text: str
    parameters: tuple[str, ...]
    templates: tuple[str, ...]
    collectives: bool


def prepare(source: str, kernel: str) -> Prepared:
    """The source of a kernel for the virtual AI core. Raises BadArgument where there is no such kernel.

    >>> prepare('extern "C" __global__ __vector__ void k(__gm__ float* a) {\\n  asc_init();\\n}', "k").parameters
    ('float*',)
    """
    found = re.search(_KERNEL.format(name=re.escape(kernel)), source)
    if found is None:
        there = ", ".join(name for _, name, _ in _ANY.findall(source)) or "none"
        raise BadArgument(
            f'the source has no kernel `extern "C" __global__ __vector__ void {kernel}(...)`; kernels in it: {there}'
        )
    taken = _TYPE_NAME.search(source)
    if taken and re.search(rf"\b{taken[1]}\s*(?:\*\s*\)|>)", source):
        raise BadArgument(f"a buffer is called {taken[1]}, the name of a type in AscendC; give it another name")
    mode = next((number for word, number in MODES.items() if (found[1] or "").startswith(word)), 2)
    parameters = tuple(_type(one) for one in found[2].split(",") if one.strip())
    called = re.compile(rf"^(\s+)((?:{'|'.join(_SIMD.findall(source)) or '(?!)'})\(.*\));$")
    lines = [_numbered(line, number, called) for number, line in enumerate(source.split("\n"), 1)]
    text = _UB.sub(r"(__ubuf__ \1 *)w2w_ub()", "\n".join(lines))
    call = ", ".join(f"({kind})tensors[{place}]" for place, kind in enumerate(parameters))
    return Prepared(
        '#include "w2w_run.h"\n#line 1 "ascendc"\n'
        + text
        + f'\nextern "C" const int w2w_mode = {mode};\n'
        + f'extern "C" void w2w_entry(void **tensors) {{ {kernel}({call}); }}\n',
        parameters,
        tuple(_INCLUDED.findall(source)),
        _COLLECTIVE.search(source) is not None,
    )


def _numbered(line: str, number: int, called: re.Pattern[str]) -> str:
    """A line that starts with an operation says its number first; a call of a SIMD function becomes one."""
    line = called.sub(lambda one: f"{one[1]}w2w_at({number}), w2w_simd([=] {{ {one[2]}; }});", line)
    return _STATEMENT.sub(lambda one: f"{one[1]}w2w_at({number}), {one[2]}", line)


def _type(parameter: str) -> str:
    """`__gm__ float* c` without its name and qualifiers: `float*`."""
    plain = re.sub(r"\b(?:__gm__|__restrict__|__grid_constant__|const)\b", "", parameter).strip()
    name = re.search(r"[\s*](\w+)$", plain)
    return "".join((plain[: name.start(1)] if name else plain).split())

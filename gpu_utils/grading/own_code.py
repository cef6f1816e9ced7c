"""Tile programs that bring C++ of their own: refused before anything of it is compiled."""

from __future__ import annotations

import re
from typing import Any

from gpu_utils.errors import BadArgument

_BRINGS = re.compile(r"import_source|pragma_import_\w+|call_(?:pure_)?extern|call_llvm\w*|inline_asm|asm_volatile")
_LINE = re.compile(r"\s*#\s*(?:include <tl_templates/ascend/\w+\.h>|pragma unroll)\s*")
_TYPE = (
    r"(?:(?:__gm__|__ubuf__|__cbuf__|__c[abc]__|const|unsigned|void|bool|char|short|int|long|float|half|u?int\d+_t|"
    r"u?(?:int|char|short|long)\d?|float\d|half\d|bfloat16\w*|fp8_\w+|hif\w+|event_t|size_t|[\s*])+)"
)
_FORBIDDEN = re.compile(
    r"\b(?:w2w\w*|__builtin\w*|__?asm(?:__)?|asm|struct|class|union|enum|template|typedef|using|namespace|operator|new|"
    r"delete|goto|decltype|throw|catch|std|union|register|thread_local|__attribute__)\b|\\|\?\?|%:|<:|->\*|\"(?!C\")(?<!\"C\")"
)
_MATH = (
    "exp exp2 exp10 expm1 log log2 log10 log1p sqrt rsqrt fabs fmin fmax fma tanh tan sin cos sinh cosh erf pow floor "
    "ceil round trunc rint fmod copysign atan atan2 asin acos"
)
_WORDS = "for while if return static_cast reinterpret_cast max min abs isnan isinf run __launch_bounds__ __mix__"
_CALLED = frozenset(_WORDS.split()) | {f"{name}{end}" for name in _MATH.split() for end in ("", "f")}
_CALL = re.compile(r"([A-Za-z_]\w*)\s*(?:<[^;{}()]*?>)?\s*\(")
_OF_ASCENDC = re.compile(r"asc_\w+|ascend_\w+|dim3|make_\w+|__\w*2\w+|h(?:exp|log|sqrt|rsqrt|tanh|sin|cos)2?")
_VF = re.compile(r"asc_vf_call\s*<\s*([^>]*?)\s*>")


def refuse_extern(program: Any) -> None:
    """Raises BadArgument for a `T.prim_func` that has foreign source, or a call of a function by its name as text."""
    script = getattr(program, "script", None)  # what is no kernel is refused where it is lowered
    if script is not None and (found := _BRINGS.search(script())) is not None:
        raise BadArgument(
            f"the program brings code of its own ({found[0]}), expected what the tile language has; leave out "
            "T.import_source, prelude and T.call_extern"
        )


def refuse_foreign(source: str, kernel: str) -> None:
    """Raises BadArgument for AscendC that has more than TileLang writes: it is compiled for this machine's CPU.

    >>> refuse_foreign('extern "C" __global__ __vector__ void k(__gm__ float* a) { asc_init(); }', "k")
    >>> refuse_foreign('extern "C" __global__ __vector__ void k(__gm__ float* a) { system(0); }', "k")
    Traceback (most recent call last):
    gpu_utils.errors.BadArgument: the lowered program has `system`, which TileLang does not write by itself; leave out \
T.import_source, prelude and T.call_extern
    """
    found = _foreign(source, kernel)
    if found is not None:
        raise BadArgument(
            f"the lowered program has `{found}`, which TileLang does not write by itself; leave out T.import_source, "
            "prelude and T.call_extern"
        )


def _foreign(source: str, kernel: str) -> str | None:
    for line in source.split("\n"):
        if "#" in line and _LINE.fullmatch(line) is None:
            return line.strip()[:80]
    code = "\n".join(line for line in source.split("\n") if "#" not in line)
    if (found := _FORBIDDEN.search(code)) is not None:
        return found[0]
    function = re.compile(rf"{re.escape(kernel)}(?:_\w*vf_\d+)?")
    for name in _VF.findall(code):
        if function.fullmatch(name) is None:
            return str(name)
    for name in _CALL.findall(code):
        known = name in _CALLED or _OF_ASCENDC.fullmatch(name) or function.fullmatch(name)
        if not known and not re.fullmatch(_TYPE, name):
            return str(name)
    return _called_by_value(code)


def _called_by_value(code: str) -> str | None:
    """What is called without its name: `(f)(0)`, `f[0](0)`. A type in parentheses is a cast."""
    if (found := re.search(r"\]\s*\(|\}[ \t]*\(", code)) is not None:
        return found[0]
    for one in re.finditer(r"\)\s*\(", code):
        end = one.start()
        begin = _opening(code, end)
        inside, before = code[begin + 1 : end], code[:begin].rstrip()
        heads = re.search(r"\b(?:for|if|while|__launch_bounds__|__mix__)$", before)
        if not heads and re.fullmatch(_TYPE, inside) is None:
            return code[begin : one.end()][-80:]
    return None


def _opening(code: str, end: int) -> int:
    """Where the parenthesis opens that closes at `end`."""
    depth = 0
    for place in range(end, -1, -1):
        depth += {")": 1, "(": -1}.get(code[place], 0)
        if depth == 0:
            return place
    return 0

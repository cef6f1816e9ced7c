"""What the answer to 14.flags may hold, as text: it is native code, so it is read before it is compiled."""

from __future__ import annotations

import re

from gpu_utils.errors import BadArgument
from gpu_utils.grading.cpp import Framed

CALLS = ("load", "compute", "store", "event", "asc_sync_notify", "asc_sync_wait", "asc_sync", "asc_sync_pipe")
TYPES = ("int", "unsigned", "bool", "auto", "const", "constexpr", "event_t")
WORDS = ("for", "while", "do", "if", "else", "break", "continue", "return", "true", "false", "static_cast")
PIPES = ("PIPE_MTE2", "PIPE_V", "PIPE_MTE3", "PIPE_S", "PIPE_ALL")
KNOWN = frozenset((*CALLS, *TYPES, *WORDS, *PIPES, "TILES"))
OF_THE_KERNEL = frozenset(("x", "y", "tiles", "ub", "first", "TILE", "TILES", "silu", "silu_tiles", *CALLS))
"""Names outside of the part, which no name of its own may hide."""

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_OPERATORS = r"<<=?|>>=?|&&|\|\||\+\+|--|[-+*/%&|^=!<>]="
_TOKEN = re.compile(rf"[A-Za-z_]\w*|\d[\w']*|{_OPERATORS}|::|->|<:|:>|<%|%>|%:|[-+*/%&|^=!<>?:;,()\[\]]|\S")
_PLAIN = re.compile(rf"[A-Za-z_]\w*|\d+|{_OPERATORS}|[-+*/%&|^=!<>?:;,(){{}}\[\]]")
_TYPE = r"(?:int|unsigned|bool|auto|event_t)"
_DECLARED = re.compile(rf"\b{_TYPE}\s+([A-Za-z]\w*)\s*(?=[=;,)({{:])")
_LIST = re.compile(rf"\b{_TYPE}\s+\w+\s*=[^;{{]*")
_NEXT = re.compile(r",\s*([A-Za-z]\w*)\s*=(?!=)")


def check_part(source: str, answer: Framed) -> None:
    """Raises BadArgument where the source is more than the given kernel with a part that only orders its operations.

    >>> from pathlib import Path
    >>> answer = Framed.read(Path(__file__).with_name("flags.cpp"))
    >>> check_part(answer(), answer)
    >>> check_part(answer.filled("load(0); system(0);")(), answer)
    Traceback (most recent call last):
    gpu_utils.errors.BadArgument: line 1 of your part has `system`, expected load, compute, store, flags, loops, \
conditions and whole numbers with names of your own
    """
    before, after = (_lines(each) for each in answer.frame.split("@@@"))
    lines = _lines(source)
    ends = len(lines) - len(after)
    if ends < len(before) or lines[: len(before)] != before or lines[ends:] != after:
        raise BadArgument(
            "the kernel around your part was changed, expected it as it was given; write only where it says YOUR CODE"
        )
    part = lines[len(before) : ends]
    while part and not part[0]:  # the blank line before it
        part.pop(0)
    refused(part)


def refused(lines: list[str]) -> None:
    """Raises BadArgument at the first token of a part that such a part does not need."""
    part = "\n".join(lines)
    if "\\" in part or "??" in part:
        raise BadArgument("your part has a backslash or `??`, expected lines of C++ without either")
    plain = _COMMENT.sub(lambda one: "\n" * one[0].count("\n") or " ", part)
    own = set(_DECLARED.findall(plain)) | {name for one in _LIST.findall(plain) for name in _NEXT.findall(one)}
    tokens = [(one[0], plain.count("\n", 0, one.start()) + 1) for one in _TOKEN.finditer(plain)]
    hidden = sorted(own & OF_THE_KERNEL)
    if hidden:
        raise BadArgument(f"your part declares `{hidden[0]}`, a name of the kernel; give it another name")
    texts = ["", *(text for text, _ in tokens), ""]
    for place, (text, line) in enumerate(tokens, 1):
        if not _may_stand(text, texts[place - 1], texts[place + 1], own):
            raise BadArgument(
                f"line {line} of your part has `{text}`, expected load, compute, store, flags, loops, conditions and "
                "whole numbers with names of your own"
            )


def _may_stand(text: str, before: str, behind: str, own: set[str]) -> bool:
    """Whether a token is one of such a part. No address is taken or followed, and nothing has elements."""
    if _PLAIN.fullmatch(text) is None:
        return False
    if text[0].isalpha() or text[0] == "_":
        return text in KNOWN or (text in own and "__" not in text and not text.startswith(("w2w", "asc_")))
    if text == "[":  # a function of its own: [&], [=], []
        return before in ("=", "(", ",") and behind in ("&", "=", "]")
    if text == "]":
        return before in ("&", "=", "[")
    if text == "&" and before == "[":
        return behind == "]"
    if text in ("&", "*", "&&"):  # with two numbers, and of no type
        return (before in (")", "TILES") or before.isdigit() or before in own) and behind not in ("=", ">", ")", ",")
    return True


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.strip("\n").split("\n")]

"""Reading PTX and AMDGCN text: which lines are instructions, of which class, from which source line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePath

GLOBAL_LOAD, GLOBAL_STORE, GLOBAL_ATOMIC = "global load", "global store", "global atomic"
SHARED_LOAD, SHARED_STORE, SHARED_ATOMIC = "shared load", "shared store", "shared atomic"
ASYNC_COPY, TENSOR_MEMORY, ARGUMENTS, SCRATCH = "copy to shared", "tensor memory", "argument load", "scratch"
MATRIX, VECTOR, SCALAR, CROSS_LANE = "matrix", "vector", "scalar", "cross-lane"
BARRIER, WAIT, BRANCH = "barrier", "wait", "branch"

CLASSES = (
    GLOBAL_LOAD,
    GLOBAL_STORE,
    GLOBAL_ATOMIC,
    ASYNC_COPY,
    SHARED_LOAD,
    SHARED_STORE,
    SHARED_ATOMIC,
    TENSOR_MEMORY,
    ARGUMENTS,
    SCRATCH,
    MATRIX,
    VECTOR,
    SCALAR,
    CROSS_LANE,
    BARRIER,
    WAIT,
    BRANCH,
)
"""Classes of instructions, the same for both vendors. PTX is written for one thread: it has no scalar class."""

_PTX_RULES = (
    (r"(ld|ldu)\b.*\.global|ld\.(relaxed|acquire|volatile)", GLOBAL_LOAD),
    (r"ld\b.*\.shared|ldmatrix", SHARED_LOAD),
    (r"ld\b.*\.(param|const)", ARGUMENTS),
    (r"(ld|st)\b.*\.local", SCRATCH),
    (r"st\b.*\.shared|stmatrix", SHARED_STORE),
    (r"st\b.*\.param", VECTOR),
    (r"ld\b", GLOBAL_LOAD),
    (r"st\b", GLOBAL_STORE),
    (r"(atom|red)\b.*\.shared", SHARED_ATOMIC),
    (r"(atom|red)\b", GLOBAL_ATOMIC),
    (r"cp\.async\..*(wait|commit)|cp\.async\.wait", WAIT),
    (r"cp\.(async|reduce)", ASYNC_COPY),
    (r"(wgmma|tcgen05)\.(fence|commit|wait|relinquish)", WAIT),
    (r"tcgen05\.(ld|st|cp|alloc|dealloc|shift)", TENSOR_MEMORY),
    (r"(mma|wgmma|wmma|tcgen05)\b", MATRIX),
    (r"mbarrier\..*wait|nanosleep|griddepcontrol", WAIT),
    (r"bar\b|barrier|mbarrier|fence|membar", BARRIER),
    (r"bra\b|brx|ret\b|exit|call\b|trap", BRANCH),
    (r"shfl|vote|match|redux|activemask|elect", CROSS_LANE),
    (r"", VECTOR),
)

_AMD_RULES = (
    (r"(global|buffer)_load_lds|global_load_async|tensor_load", ASYNC_COPY),
    (r"(global|buffer|flat)_atomic", GLOBAL_ATOMIC),
    (r"(global|buffer|flat)_load", GLOBAL_LOAD),
    (r"(global|buffer|flat)_store", GLOBAL_STORE),
    (r"scratch_", SCRATCH),
    (r"ds_(bpermute|permute|swizzle)", CROSS_LANE),
    (r"ds_(read|load)", SHARED_LOAD),
    (r"ds_(write|store)", SHARED_STORE),
    (r"ds_nop", WAIT),
    (r"ds_", SHARED_ATOMIC),
    (r"s_(buffer_)?load", ARGUMENTS),
    (r"v_(mfma|smfmac|wmma|swmmac)", MATRIX),
    (r"s_barrier", BARRIER),
    (r"(buffer|global)_(wbl2|inv|wb|gl\d_inv)|s_dcache|s_icache", BARRIER),
    (r"s_wait|s_nop|s_sleep|s_delay_alu|s_setprio|s_sched|s_clause|s_set_gpr", WAIT),
    (r"s_(c?branch|endpgm|setpc|swappc|call|trap|code_end)", BRANCH),
    (r"v_(readlane|readfirstlane|writelane|permlane)|v_\w+_dpp", CROSS_LANE),
    (r"s_", SCALAR),
    (r"", VECTOR),
)

_RULES = {
    vendor: [(re.compile(pattern), name) for pattern, name in rules]
    for vendor, rules in (("nvidia", _PTX_RULES), ("amd", _AMD_RULES))
}


@dataclass(frozen=True)
class Instruction:
    """One instruction in an assembly text.

    number    line of the text, from 1
    text      as written, without comments, blanks as single spaces
    mnemonic  "ld.global.v4.b32", "buffer_load_dwordx4"
    kind      one of CLASSES
    source    line of the kernel's file that it comes from; None when the compiler names none
    """

    number: int
    text: str
    mnemonic: str
    kind: str
    source: int | None

    @property
    def bits(self) -> int | None:
        """Bits that one lane moves, for loads, stores and copies; None for other instructions.

        >>> Instruction(1, "", "buffer_load_dwordx4", GLOBAL_LOAD, None).bits
        128
        """
        return _bits(self.mnemonic, self.text) if self.kind in _MOVING else None

    @property
    def masks(self) -> bool:
        """Whether it makes or uses a mask of lanes: comparisons, predicates, selections, EXEC and branches on it.

        >>> texts = ("@%p1 ld.global.b32 {%r1}, [%rd1];", "v_cndmask_b32_e32 v0, v1, v2, vcc", "v_mov_b32 v0, 0")
        >>> [next(instructions(text, "nvidia" if "%" in text else "amd")).masks for text in texts]
        [True, True, False]
        """
        return bool(_MASKS.search(self.text))


_MASKS = re.compile(r"^@|^(setp|selp|v_cmpx?_|v_cndmask|s_cbranch_(exec|vcc))|\b(exec|vcc)(_lo|_hi)?\b|saveexec")
_MOVING = {GLOBAL_LOAD, GLOBAL_STORE, SHARED_LOAD, SHARED_STORE, ASYNC_COPY}


def _bits(mnemonic: str, text: str) -> int | None:
    if found := re.search(r"_(?:dword|d16_hi|d16|ubyte|sbyte|ushort|sshort|byte|short)(?:x(\d))?", mnemonic):
        unit = 32 if "dword" in found.group() else 8 if "byte" in found.group() else 16
        return unit * int(found.group(1) or 1)
    if found := re.search(
        r"(?:read|load|write|store)(2)?(?:st64|_2addr)?(?:_stride64)?_(?:tr\w*_)?[biuf](\d+)", mnemonic
    ):
        return int(found.group(2)) * (2 if found.group(1) or "_2addr" in mnemonic else 1)
    if found := re.search(r"(?:ld|st)matrix.*\.x(\d)", mnemonic):
        return 32 * int(found.group(1))
    if mnemonic.startswith("cp.async.bulk"):
        return None
    if mnemonic.startswith("cp.async"):
        sizes = re.findall(r",\s*(0x[0-9a-fA-F]+|\d+)\b", text)
        return 8 * int(sizes[0], 0) if sizes else None
    if found := re.search(r"(?:\.v(\d))?\.[busf](\d+)(?:x2)?$", mnemonic):
        return int(found.group(2)) * int(found.group(1) or 1)
    return None


def instructions(text: str, vendor: str, source_file: str = "") -> Iterator[Instruction]:
    """The instructions of an assembly text, in order.

    text         PTX (vendor "nvidia") or AMDGCN ("amd")
    source_file  file of the kernel: an instruction inlined from elsewhere gets the line of the kernel that called it
    """
    rules, marker = _RULES[vendor], "//" if vendor == "nvidia" else ";"
    locations, source = _Locations(text, source_file), None
    for number, line in enumerate(text.splitlines(), 1):
        code, _, comment = line.partition(marker)
        code = code.strip()
        if code.startswith(".loc"):
            source = locations.line(code, comment)
        elif code.startswith(".amdgpu_metadata"):
            return
        elif code and code[0] not in ".$}":
            for part in _statements(code) if vendor == "nvidia" else [code]:
                if found := _MNEMONIC.match(part):
                    mnemonic = found.group("name")
                    kind = next(kind for rule, kind in rules if rule.match(mnemonic))
                    if kind == VECTOR and _DPP.search(part):
                        kind = CROSS_LANE
                    if kind == GLOBAL_LOAD and vendor == "amd" and part.endswith(" lds"):
                        kind = ASYNC_COPY
                    yield Instruction(number, " ".join(part.split()), mnemonic, kind, source)


_MNEMONIC = re.compile(r"(?:@!?%?\w+\s+)?(?P<name>[a-z][\w.]*(?:::[\w.]+)*)(?=[\s;]|$)")
_DPP = re.compile(r"\b(quad_perm|row_(shl|shr|ror|share|xmask|mirror|half_mirror|bcast|newbcast)|wave_sh[lr])")


def _statements(code: str) -> list[str]:
    """Statements of one PTX line; inline assembly may hold several in braces.

    >>> _statements("{ mov.b32 a, b; }"), _statements("@%p1 st.global.v2.b32 [ %rd2 ], { %r3, %r4 };")
    (['mov.b32 a, b;'], ['@%p1 st.global.v2.b32 [ %rd2 ], { %r3, %r4 };'])
    """
    return [inner + ";" for part in code.split(";") if (inner := _without_scope(part.strip()))]


def _without_scope(part: str) -> str:
    """A statement without the braces of a scope that begins or ends beside it; those of its operands stay."""
    while part.startswith("{") and part.count("{") > part.count("}"):
        part = part[1:].strip()
    while part.endswith("}") and part.count("}") > part.count("{"):
        part = part[:-1].strip()
    return part


class _Locations:
    """Which line of the kernel's file each .loc stands for: the outermost place where its code was inlined.

    LLVM writes the chain of places into the comment of AMDGCN, and of PTX before Triton 3.9; newer PTX says
    `inlined_at file line column`, which names an earlier .loc that may itself have been inlined.
    """

    def __init__(self, text: str, source_file: str) -> None:
        files = re.findall(r'^\s*\.file\s+(\d+)\s+(?:"[^"]*"\s+)?"([^"]*)"', text, re.MULTILINE)
        self._files = {number: PurePath(path).name for number, path in files}
        self._name = PurePath(source_file).name
        self._parents: dict[tuple[str, ...], tuple[str, ...]] = {}

    def line(self, code: str, comment: str) -> int | None:
        places = re.findall(r"([^\s\[\]@:]+):(\d+):\d+", comment)
        if len(places) > 1 or (places and "inlined_at" not in code):
            inside = [int(line) for file, line in places if not self._name or file == self._name]
            return (inside[-1] or None) if inside else None
        numbers = re.findall(r"(\d+)\s+(\d+)\s+(\d+)", re.sub(r"function_name\s+\S+", "", code))
        if not numbers:
            return None
        if len(numbers) > 1:
            self._parents[numbers[0]] = numbers[1]
        else:
            self._parents.pop(numbers[0], None)
        place, seen = numbers[0], set()
        while place in self._parents and place not in seen:
            seen.add(place)
            place = self._parents[place]
        if self._name and self._files.get(place[0], self._name) != self._name:
            return None
        return int(place[1]) or None

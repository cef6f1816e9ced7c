"""What a machine translation from CUDA to HIP leaves behind, found in the text: `leftovers(files)`.

Only code that a ROCm build would see counts: comments, strings and branches of `#if` that are not taken are skipped.
The kinds are those of KINDS. Some are certain to fail the build, others only deserve a look (`certain`).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from gpu_utils.compiler.source_text import Directive, Reading, Token, evaluate, includes, read

KINDS: Mapping[str, tuple[bool, str]] = {
    "cuda-header": (True, "a header that only CUDA has"),
    "no-counterpart": (True, "a feature of NVIDIA's chips: keep it out of a ROCm build, or write it anew"),
    "broken-header": (True, "a path that exists in neither toolkit: NVTX's folder in front of roctx's header"),
    "cuda-name": (True, "a name of CUDA: look whether HIP has one for it"),
    "fake-arch": (True, "__CUDA_ARCH__ defined by hand: every header that asks for it now believes this is CUDA"),
    "ptx": (True, "inline PTX, which is NVIDIA's instruction set"),
    "mask-32": (True, "a mask of 32 lanes; ROCm's _sync functions take 64 bits on every chip"),
    "lds": (True, "more than 64 KiB of shared memory: too much for every AMD target here but gfx950"),
    "build-file": (True, "a flag or library of nvcc that a ROCm build would get too"),
    "cuda-guard": (False, "a condition that only an NVIDIA compiler can meet: this code is gone on AMD"),
    "lanes-32": (False, "32 lanes taken for granted; a wavefront of CDNA has 64"),
    "fp8-max": (False, "448 is the largest FP8 number on NVIDIA; gfx942's FP8 ends at 240 (section 5)"),
}
"""kind -> (is it certain to be wrong on ROCm?, what it is)."""

LDS_BYTES = 64 * 1024


@dataclass(frozen=True)
class Leftover:
    """One place. text: the line as written, stripped; what: the name, number or header that was found there."""

    file: str
    line: int
    kind: str
    what: str
    text: str

    @property
    def certain(self) -> bool:
        return KINDS[self.kind][0]

    @property
    def why(self) -> str:
        return KINDS[self.kind][1]

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.what}"


_FROM_COMMAND_LINE = {"USE_ROCM": "1", "__HIP_PLATFORM_AMD__": "1", "HIPBLAS_V2": "1"}
_HIPCC = {**_FROM_COMMAND_LINE, "__HIPCC__": "1", "__HIP__": "1", "__clang__": "1"}
_DEVICE = {
    **_HIPCC,
    "__HIP_DEVICE_COMPILE__": "1",
    "__AMDGCN__": "1",
    "__GFX9__": "1",
    "__gfx942__": "1",
    "HIP_FP8_TYPE_FNUZ": "1",
    "HIP_FP8_TYPE_OCP": "0",
}


def readings(files: Mapping[str, str]) -> list[Reading]:
    """What a ROCm build sees: each source for the host, sources for hipcc for gfx942 too.

    A header that nothing includes is read as a source. The macros are those that torch's BuildExtension passes on ROCm
    and that hipcc defines.
    """
    return list(_readings(tuple(files.items())))


@lru_cache(maxsize=4)
def _readings(items: tuple[tuple[str, str], ...]) -> tuple[Reading, ...]:
    files = dict(items)
    cpp = [path for path in files if path.endswith((".cpp", ".cc", ".hip", ".cu", ".h", ".cuh", ".hpp"))]
    included = {local for path in cpp for _, _, local in includes(files, path)}
    found: list[Reading] = []
    for path in cpp:
        if path in included and path.endswith((".h", ".cuh", ".hpp")):
            continue
        passes = [_FROM_COMMAND_LINE] if path.endswith((".cpp", ".cc")) else [_HIPCC, _DEVICE]
        found += [read(files, path, macros) for macros in passes]
    return tuple(found)


def leftovers(files: Mapping[str, str]) -> list[Leftover]:
    """Every place in a hipified project that needs a look, by file and line.

    files  path -> text, as from `gpu_utils.compiler.hipify.hipify(...).files`
    """
    seen = readings(files)
    own = _own_names(seen)
    places = {place for reading in seen for place in _in_code(reading, own, files)}
    places |= set(_in_shared_memory(seen))
    places |= {
        ("build-file", *place) for path in files if path.endswith(".py") for place in _in_build_file(files, path)
    }
    result = []
    for kind, file, line, what in places:
        rows = files[file].split("\n")
        result.append(Leftover(file, line, kind, what, rows[line - 1].strip() if line <= len(rows) else ""))
    return sorted(result, key=lambda one: (one.file, one.line, list(KINDS).index(one.kind), one.what))


Place = tuple[str, str, int, str]
"""(kind, file, line, what)"""

_CUDA_HEADER = re.compile(
    r"cuda\w*\.(h|hpp|cuh)|cuda/.*|mma\.h|nv\w*\.h|nvtx3/nv.*|cu(blas|dnn|fft|rand|solver|sparse)\w*\.h|nccl\.h|"
    r"cooperative_groups\.h|cub/.*|cutlass/.*|cute/.*"
)
_CUDA_NAME = re.compile(
    r"cuda[A-Z]\w*|cu[A-Z]\w+|CU(DA|BLAS|DNN|FFT|RAND|SPARSE|SOLVER)?_\w+|CU[a-z]\w*|CUDA\w*|cuuint\d+_t|__nv_\w+|__NV_\w+|nvtx[A-Z]\w*|nvcuda|"
    r"cublas\w*|cudnn\w*|cutlass"
)
_NO_COUNTERPART = re.compile(r"cuda/|mma\.h|cute/|cutlass|nvcuda|(?i:cu_?tensor_?map)|cuuint")
_TORCH_SCOPES = {"at", "c10", "torch"}
_MASK_32 = r"0[xX][fF]{8}[uUlL]?"
_LANES = re.compile(r"(31u?|0[xX]1[fF]u?)$")


def _in_code(reading: Reading, own: set[str], files: Mapping[str, str]) -> Iterator[Place]:
    for directive in reading.directives:
        yield from _in_directive(directive, files)
    tokens = reading.tokens
    for i, token in enumerate(tokens):
        before = tokens[i - 1].text if i else ""
        kind = ""
        if token.kind == "name" and _CUDA_NAME.fullmatch(token.text):
            if token.text not in own and not _of_torch(tokens, i):
                kind = "no-counterpart" if _NO_COUNTERPART.match(token.text) else "cuda-name"
        elif token.kind == "text" and _is_ptx(token.text) and _in_asm(tokens, i):
            kind = "ptx"
        elif token.kind == "number":
            kind = _number_kind(token.text, before, tokens[i - 2].text if i > 1 else "")
        if kind:
            yield kind, token.file, token.line, token.text


def _in_directive(directive: Directive, files: Mapping[str, str]) -> Iterator[Place]:
    place = (directive.file, directive.line)
    if directive.word == "include" and (found := re.match(r'[<"]([^>"]+)', directive.rest)):
        beside = directive.file.rpartition("/")[0]
        if found[1] in files or f"{beside}/{found[1]}".lstrip("/") in files:
            return
        if re.match(r"nvtx3/(roctracer|rocprofiler)", found[1]):
            yield "broken-header", *place, found[1]
        elif _CUDA_HEADER.fullmatch(found[1]):
            yield "no-counterpart" if _NO_COUNTERPART.match(found[1]) else "cuda-header", *place, found[1]
    elif directive.word == "define":
        if directive.rest.split("(")[0].split()[:1] in (["__CUDA_ARCH__"], ["__CUDACC__"]):
            yield "fake-arch", *place, directive.rest.split()[0]
        elif found := re.match(r"(\w*(?:WARP|WAVE|LANES)\w*)\s+32u?$", directive.rest):
            yield "lanes-32", *place, found[1]
        elif found := re.match(rf"\w*mask\w*\s+\(?({_MASK_32})\b", directive.rest, re.IGNORECASE):
            yield "mask-32", *place, found[1]
    elif directive.word in ("if", "ifdef", "elif"):
        found = re.search(r"__CUDA_ARCH__|__CUDACC__|__NVCC__", directive.rest)
        if found and not re.search(r"ROCM|HIP|AMD|GFX|gfx", directive.rest):
            yield "cuda-guard", *place, found[0]


def _number_kind(text: str, before: str, further: str) -> str:
    """The kind of a number by the two tokens before it: `__shfl_sync(0xffffffff`, `mask = 0xffffffff`, `x & 31`."""
    is_mask = (before == "(" and further.endswith("_sync")) or (before == "=" and "mask" in further.lower())
    if is_mask and re.fullmatch(_MASK_32, text):
        return "mask-32"
    if (before == "&" and _LANES.match(text)) or (before == ">>" and text in ("5", "5u")):
        return "lanes-32"
    return "fp8-max" if re.fullmatch(r"448(\.0*)?[fF]?", text) else ""


def _is_ptx(text: str) -> bool:
    """Whether a string holds PTX: opcodes there have dots (`ex2.approx.f32`), AMD's have none (`v_exp_f32`)."""
    return (
        re.search(r'(?:^"|[;{}]|\\n|\\t|\s)\s*(?:@!?%?\w+\s+)?[a-z][a-z0-9_]*(?:\.[a-z0-9_:]+)+\s+[%{\[]', text)
        is not None
    )


def _in_asm(tokens: tuple[Token, ...], at: int) -> bool:
    while at and tokens[at].kind == "text":
        at -= 1
    names = [token.text for token in tokens[max(0, at - 2) : at]]
    return tokens[at].text == "(" and any(
        name in ("asm", "__asm__", "__asm", "volatile", "__volatile__") for name in names
    )


def _of_torch(tokens: tuple[Token, ...], at: int) -> bool:
    """Whether a name stands behind at::cuda::, c10::cuda:: or torch::: PyTorch keeps these names on ROCm."""
    first = at
    while first >= 2 and tokens[first - 1].text == "::":
        first -= 2
    return first < at and tokens[first].text in _TORCH_SCOPES


def _own_names(seen: list[Reading]) -> set[str]:
    """Names that the project itself declares: macros, aliases and types. A fix may keep CUDA's name as an alias."""
    names = set()
    for reading in seen:
        for directive in reading.directives:
            if directive.word == "define" and (found := re.match(r"\w+", directive.rest)):
                names.add(found[0])
        for i, token in enumerate(reading.tokens[:-2]):
            if token.text in ("using", "struct", "class", "enum") and reading.tokens[i + 2].text in ("=", "{", ":"):
                names.add(reading.tokens[i + 1].text)
            if token.text == "typedef":
                rest = reading.tokens[i : i + 40]
                end = next((j for j, one in enumerate(rest) if one.text == ";"), 0)
                names.add(rest[end - 1].text)
    return names


_CONSTANT = ("constexpr", "const")


def _in_shared_memory(seen: list[Reading]) -> Iterator[Place]:
    """Constants of the project that say how many bytes of shared memory to ask for, where they can be computed."""
    for reading in seen:
        values = _constants(reading)
        uses = reading.tokens
        for i, token in enumerate(uses):
            if "DynamicSharedMemorySize" not in token.text:
                continue
            for name in uses[i + 1 : i + 12]:
                size = values.get(name.text)
                if size and size[0] > LDS_BYTES:
                    yield "lds", size[1].file, size[1].line, f"{name.text} = {size[0]} bytes"
                elif name.kind == "number" and re.fullmatch(r"\d+", name.text) and int(name.text) > LDS_BYTES:
                    yield "lds", name.file, name.line, f"{name.text} bytes"


def _constants(reading: Reading) -> dict[str, tuple[int, Token]]:
    """Whole-number constants of the project: name -> (value, where)."""
    texts: dict[str, tuple[str, Token]] = {}
    tokens = reading.tokens
    for i, token in enumerate(tokens[:-2]):
        if token.text == "=" and i >= 2 and tokens[i - 1].kind == "name":
            start = next((j for j in range(i, max(-1, i - 6), -1) if tokens[j].text in _CONSTANT), None)
            if start is not None:
                end = next((j for j in range(i, min(len(tokens), i + 60)) if tokens[j].text == ";"), i)
                texts[tokens[i - 1].text] = (_plain([one.text for one in tokens[i + 1 : end]]), tokens[i - 1])
    macros = {name: text for name, (text, _) in texts.items()}
    for directive in reading.directives:
        if directive.word == "define" and (found := re.match(r"(\w+)\s+(\S.*)", directive.rest)):
            macros.setdefault(found[1], found[2])
    values = {}
    for name, (text, where) in texts.items():
        try:
            values[name] = evaluate(text, macros), where
        except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, MemoryError):
            continue
    return values


def _plain(words: list[str]) -> str:
    text = " ".join(words)
    text = re.sub(r"sizeof \( (float|int|unsigned) \)", "4", text)
    return re.sub(r"static_cast < (int|size_t|unsigned|std :: size_t) >", "", text)


_NVCC_ONLY = re.compile(
    r"-gencode.*|--generate-code.*|-arch=(sm|compute)_.*|--?use_fast_math|--expt-.*|-lineinfo|--generate-line-info|-Xptxas.*|--ptxas.*"
)
_CUDA_LIBRARIES = {"cublas", "cublasLt", "cudart", "cuda", "nccl", "nvToolsExt", "nvtx3", "cudnn"}


def _in_build_file(files: Mapping[str, str], path: str) -> Iterator[tuple[str, int, str]]:
    """CUDA's flags and libraries in setup.py that a ROCm build would get: those of branches for CUDA are left out."""
    try:
        strings = list(strings_on_rocm(files[path]))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as problem:
        yield path, getattr(problem, "lineno", None) or 1, f"not Python: {problem}"[:80]
        return
    for line, text in strings:
        if text in _CUDA_LIBRARIES or _NVCC_ONLY.fullmatch(text):
            yield path, line, text


def strings_on_rocm(text: str) -> Iterator[tuple[int, str]]:
    """(line, string) of every string in a Python file but those in branches that only a CUDA build takes.

    Conditions are understood when they ask torch.version, IS_HIP_EXTENSION, or a name that was set to such a question;
    of others both branches count. Raises SyntaxError, ValueError, RecursionError or MemoryError for what is not Python.

    >>> source = "amd = torch.version.hip is not None\\nlibs = ['hipblas'] if amd else ['cublas']"
    >>> [text for _, text in strings_on_rocm(source)]
    ['hipblas']
    """
    tree = ast.parse(text)
    known: dict[str, bool] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            truth = _on_rocm(node.value, known)
            if truth is not None:
                known[node.targets[0].id] = truth
    yield from _strings(tree, known)


def _strings(node: ast.AST, known: Mapping[str, bool]) -> Iterator[tuple[int, str]]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.lineno, node.value
    skipped: list[ast.AST] = []
    if isinstance(node, (ast.If, ast.IfExp)):
        truth = _on_rocm(node.test, known)
        body, other = (part if isinstance(part, list) else [part] for part in (node.body, node.orelse))
        skipped = [] if truth is None else [*other] if truth else [*body]
    for child in ast.iter_child_nodes(node):
        if child not in skipped:
            yield from _strings(child, known)


def _on_rocm(test: ast.expr, known: Mapping[str, bool]) -> bool | None:
    """Whether a condition holds in a ROCm build; None when it does not say."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        truth = _on_rocm(test.operand, known)
        return None if truth is None else not truth
    if isinstance(test, ast.BoolOp):
        parts = [_on_rocm(part, known) for part in test.values]
        decisive = isinstance(test.op, ast.Or)
        return decisive if decisive in parts else None if None in parts else not decisive
    if isinstance(test, ast.Compare) and isinstance(test.ops[0], (ast.Is, ast.IsNot, ast.Eq, ast.NotEq)):
        truth, nothing = _on_rocm(test.left, known), test.comparators[0]
        if truth is None or not (isinstance(nothing, ast.Constant) and nothing.value in (None, "", False)):
            return None
        return truth == isinstance(test.ops[0], (ast.IsNot, ast.NotEq))
    if isinstance(test, ast.Name) and test.id in known:
        return known[test.id]
    if isinstance(test, (ast.Name, ast.Attribute, ast.Call)):
        asked = ast.unparse(test)
        if re.search(r"version\W+hip|HIP_EXTENSION|(?i:rocm)", asked):
            return True
        if re.search(r"version\W+cuda", asked):
            return False
    return None

"""The device code of a ported project, compiled for a target and executed on its virtual GPU, against float64."""

from __future__ import annotations

import re
from functools import lru_cache

import torch
from torch import Tensor

from gpu_utils.analytic.tolerance import tolerance
from gpu_utils.chips.targets import TARGETS
from gpu_utils.compiler.clang import SOURCE_NAME, compile_cpp
from gpu_utils.compiler.source_text import includes, joined_lines, without_comments
from gpu_utils.errors import BackendUnavailable, CompileFailed, W2WError
from gpu_utils.exercises.u03_porting_to_rocm.hipify_project import KERNELS, Variant
from gpu_utils.grading.compare import Difference
from gpu_utils.virtual import VirtualGpu, virtual_gpu
from gpu_utils.virtual.asm import LoadedModule

ENCODINGS = {448.0: torch.float8_e4m3fn, 240.0: torch.float8_e4m3fnuz}
LARGEST: dict[str, tuple[float, ...]] = {
    "sm_80": (448.0,),
    "gfx942": (240.0,),
    "gfx950": (448.0,),
    "gfx1100": (240.0, 448.0),
}
"""Largest E4M3 numbers that a target may use. gfx1100 has no FP8 in hardware: HIP's header has both there."""

CLIP_VALUES, GELU_VALUES, EPS, LIMIT = 2500, 1501, 0.5, 1.5
_MOST_LINES = 20_000


def device_problem(fixed: dict[str, str], variant: Variant, target: str, tokens: int) -> Difference | None:
    """The first thing wrong with the device code on a target; None when every result is right.

    fixed   path -> text; the kernels are in csrc/kernels_hip.cuh and what it includes
    tokens  how many the norm kernel gets
    Raises BackendUnavailable where there is no compiler.
    """
    return _problem(tuple(sorted(fixed.items())), variant, target, tokens)


@lru_cache(maxsize=256)
def _problem(files: tuple[tuple[str, str], ...], variant: Variant, target: str, tokens: int) -> Difference | None:
    try:
        source, origin = unit(dict(files), KERNELS, variant)
        if place := outside(source):
            return Difference("outside", f"{origin[place[0] - 1]}: `{place[1]}` reads a file outside the project")
        module = compile_cpp(source, target)
    except CompileFailed as problem:
        return _compile_problem(str(problem), origin, target)
    except ValueError as problem:
        return Difference("compile", str(problem))
    if re.search(r"\.inc(bin|lude)\b", module.asm):
        return Difference("outside", "an inline assembly reads a file outside the project")
    with virtual_gpu(target) as gpu:
        run = _Run(gpu, gpu.load(module), origin, variant, target, tokens)
        for part in (run.sizes, run.norm, run.clip, run.gelu):
            if found := part():
                return found
    return None


# One source out of a header and what it includes

_PROBE = """
namespace {team} {{
__global__ void w2w_probe(int *sizes, float *largest) {{
  sizes[0] = kTileTokens; sizes[1] = kStageBytes; sizes[2] = kThreads; sizes[3] = kHidden; largest[0] = kFp8Max;
}}
}}
"""


def unit(files: dict[str, str], root: str, variant: Variant) -> tuple[str, list[str]]:
    """(source, "file:line" of each of its lines): `root` with the project's own headers in place, once each.

    Raises ValueError when the headers include each other without end.
    """
    lines = placed(files, (root,))
    lines += [(line, "the grader's probe of the sizes") for line in _PROBE.format(team=variant.team).split("\n")]
    return "\n".join(line for line, _ in lines), [where for _, where in lines]


def placed(files: dict[str, str], roots: tuple[str, ...]) -> list[tuple[str, str]]:
    """(line, "file:line") of the roots with the project's own headers in place, once each, as a ROCm build sees them.

    Raises ValueError when the headers include each other without end.
    """
    lines: list[tuple[str, str]] = [("#define USE_ROCM 1", "the build's -DUSE_ROCM=1")]
    # to clang a carriage return ends a line as well
    files = {path: re.sub(r"\r\n?", "\n", text) for path, text in files.items()}
    for root in roots:
        _place(files, root, lines, ())
    return lines


_READS = re.compile(r"\s*(?:#|%:)\s*(include|include_next|import|embed)\b\s*(.*)")


def outside(source: str) -> tuple[int, str] | None:
    """(line, text) of the first line that makes the compiler read a file of the machine; None when there is none.

    The grader compiles what it was handed, so a source must not reach the files around it.
    """
    for number, row in joined_lines(without_comments(source)):
        row = re.sub(r'"\s*"', "", row.replace("\n", ""))
        found = _READS.match(row)
        plain = found and found[1] == "include" and re.fullmatch(r'[<"][A-Za-z_][\w/.-]*[>"]\s*', found[2])
        if (found and (not plain or ".." in found[2])) or re.search(r"incbin|\.include|__has_embed", row):
            return number, row.strip()[:80]
    return None


def _place(files: dict[str, str], path: str, lines: list[tuple[str, str]], above: tuple[str, ...]) -> None:
    if len(lines) > _MOST_LINES:
        raise ValueError(
            f"the headers behind {KERNELS} make more than {_MOST_LINES} lines; do they include each other?"
        )
    guard = "W2W_ONCE_" + re.sub(r"\W", "_", path)
    local = {number: found for number, _, found in includes(files, path) if found}
    lines += [(f"#ifndef {guard}", path), (f"#define {guard}", path)]
    for number, row in enumerate(files[path].split("\n"), 1):
        where = f"{path}:{number}"
        if number in local:
            if local[number] not in (*above, path):
                _place(files, local[number], lines, (*above, path))
        else:
            lines.append(("" if re.match(r"\s*#\s*pragma\s+once", row) else row, where))
    lines.append(("#endif", path))


_AT_RUN_TIME = "warpSize is known when the kernel runs, an array needs its size before"
_COMPILE_KINDS = (
    ("expected only headers", "outside", "the project has only its own files"),
    ("with the directive", "outside", "the project has only its own files"),
    ("mask must be a 64-bit", "mask-32", "a mask has 64 bits on AMD, on chips with 32 lanes too"),
    ("constant expression", "warpsize-constant", _AT_RUN_TIME),
    ("variable length array", "warpsize-constant", _AT_RUN_TIME),
    ("this target has FP8 in", "fp8-type", "a target has only the FP8 type of its own encoding"),
    ("in asm", "asm", "this target's inline assembly knows other operands and instructions"),
    ("refused", "asm", "this target's inline assembly knows other operands and instructions"),
)


def _place_of(origin: list[str], line: int) -> str:
    return origin[line - 1] if line <= len(origin) else f"line {line}"


def _compile_problem(message: str, origin: list[str], target: str) -> Difference:
    """The compiler's first error at the learner's own file and line."""

    text = re.sub(r"\bline (\d+)\b", lambda found: _place_of(origin, int(found[1])), message, count=1)
    for words, kind, why in _COMPILE_KINDS:
        if words in message.rpartition("`")[2]:
            return Difference(kind, f"{text} ({why})")
    return Difference("compile", f"{text}; sizes and names of kernels are used by other files and by the grader")


# Running it


class _Run:
    """The kernels of one compiled project. Each method launches one and judges it."""

    def __init__(
        self, gpu: VirtualGpu, module: LoadedModule, origin: list[str], variant: Variant, target: str, tokens: int
    ) -> None:
        self.gpu, self.module, self.origin, self.variant, self.target, self.tokens = (
            gpu,
            module,
            origin,
            variant,
            target,
            tokens,
        )
        self.generator = torch.Generator().manual_seed(variant.hidden * 1000 + variant.threads)
        self.tile, self.stage, self.threads, self.hidden, self.largest = 1, 0, 1, variant.hidden, 0.0

    def sizes(self) -> Difference | None:
        sizes, largest = torch.zeros(4, dtype=torch.int32), torch.zeros(1)
        self.module.launch("w2w_probe", 1, 1, [sizes, largest])
        self.tile, self.stage, self.threads, self.hidden = sizes.tolist()
        self.largest = largest.item()
        limit = TARGETS[self.target].shared_per_block
        if self.hidden != self.variant.hidden or not 32 <= self.threads <= 1024:
            return Difference(
                "sizes",
                f"kHidden is {self.hidden} and kThreads {self.threads}; the width of the model stays "
                f"{self.variant.hidden}, and a block has 32 to 1024 threads",
            )
        needed = self.tile * self.hidden * 4
        if self.tile < 1 or self.stage < needed:
            return Difference(
                "lds-overrun",
                f"kStageBytes is {self.stage}, but kTileTokens = {self.tile} tokens of {self.hidden} floats take "
                f"{needed} bytes: the kernel would write past its shared memory",
            )
        if self.stage > limit:
            return Difference(
                "lds", f"kStageBytes is {self.stage}; a block on {self.target} has {limit} bytes of LDS (64 KiB)"
            )
        allowed = LARGEST[self.target]
        if self.largest not in allowed:
            expected = " or ".join(f"{value:g}" for value in allowed)
            return Difference(
                "fp8-max",
                f"kFp8Max is {self.largest:g} in the code for {self.target}, expected {expected}: "
                f"{_encoding(allowed[0])} is what its FP8 units read",
            )
        return None

    def _launch(self, index: int, blocks: int, args: list, shared: int, kind: str) -> Difference | None:
        name = self.variant.kernels[index]
        try:
            with self.gpu.watch_shared():
                self.module.launch(name, blocks, self.threads, args, shared=shared)
        except BackendUnavailable:
            raise
        except W2WError as problem:
            found = {"ResourceLimit": "lds", "Race": "barrier"}.get(type(problem).__name__, kind)
            place = re.sub(rf"{SOURCE_NAME}:(\d+)", lambda line: _place_of(self.origin, int(line[1])), str(problem))
            return Difference(found, f"{name} on the virtual {self.target}: {re.sub(r'kernel _Z[^ ]* ', '', place)}")
        return None

    def norm(self) -> Difference | None:
        x, before = self._normal(self.tokens, self.hidden), self._normal(self.tokens, self.hidden)
        weight = torch.rand(self.hidden, generator=self.generator) + 0.5
        residual, scales = before.clone(), torch.full((self.tokens,), torch.nan)
        bits = torch.full((self.hidden, self.tokens), 0x80, dtype=torch.uint8)
        blocks = -(-self.tokens // self.tile)
        args = [x, residual, weight, bits, scales, self.tokens, EPS]
        if failed := self._launch(0, blocks, args, self.stage, "lanes"):
            return failed
        total = x.double() + before.double()
        y = total * (total.square().mean(1, keepdim=True) + EPS).rsqrt() * weight.double()
        if found := self._differs("residual", residual, total, 1e-6, 1e-6, "lanes"):
            return found
        wanted = y.abs().amax(1) / self.largest
        if found := self._differs("scales", scales, wanted, 1e-4, 0.0, "lanes"):
            return found
        decoded = bits.view(ENCODINGS[self.largest]).double().T * scales.double()[:, None]
        # half a step of three mantissa bits, and half the smallest number
        return self._differs("out_t, decoded", decoded, y, 2.0**-4 * 1.001, float(wanted.max()) * 2.0**-10, "fp8-type")

    def clip(self) -> Difference | None:
        x = self._normal(CLIP_VALUES)
        where, count = torch.full((CLIP_VALUES,), -1, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
        args = [x, CLIP_VALUES, LIMIT, where, count]
        if failed := self._launch(1, 3, args, 0, "ballot"):
            return failed
        wanted = (x.abs() > LIMIT).nonzero().flatten().tolist()
        on = f"on the virtual {self.target}"
        if int(count) != len(wanted):
            return Difference("ballot", f"the clip counter {on} found {int(count)} values, expected {len(wanted)}")
        got = sorted(where[: len(wanted)].tolist())
        if got != wanted:
            i = next(i for i, (one, other) in enumerate(zip(got, wanted, strict=True)) if one != other)
            return Difference(
                "ballot-place",
                f"the list of clipped positions {on} has {got[i]}, expected {wanted[i]}: lanes overwrite each other",
            )
        return None

    def gelu(self) -> Difference | None:
        x = (self._normal(GELU_VALUES) * 3).bfloat16()
        out = torch.full((GELU_VALUES,), torch.nan, dtype=torch.bfloat16)
        if failed := self._launch(2, 3, [x, out, GELU_VALUES], 0, "gelu"):
            return failed
        if bool(out.isnan().all()):
            return Difference(
                "empty-kernel",
                f"{self.variant.kernels[2]} wrote nothing on the virtual {self.target}: its body was compiled away",
            )
        wanted = torch.nn.functional.gelu(x.double(), approximate="tanh")
        tol = tolerance(torch.bfloat16, magnitude=8.0)
        return self._differs("gelu", out, wanted, tol.rtol, tol.atol + 1e-5, "gelu")

    def _normal(self, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=self.generator)

    def _differs(
        self, name: str, got: Tensor, wanted: Tensor, rtol: float, atol: float, kind: str
    ) -> Difference | None:
        bad = ~((got.double() - wanted).abs() <= atol + rtol * wanted.abs())
        if not bool(bad.any()):
            return None
        at = tuple(bad.nonzero()[0].tolist())
        return Difference(
            kind,
            f"{name}[{', '.join(map(str, at))}] = {got[at].item():.6g} on the virtual {self.target}, expected "
            f"{wanted[at].item():.6g}; {int(bad.sum())} of {bad.numel()} differ",
        )


def _encoding(largest: float) -> str:
    return "OCP E4M3" if largest == 448.0 else "E4M3 FNUZ"

"""Kernels written by hand: the text around a body, the vendor's assembler, and a launch on the targets of a vendor.

    text = ptx_kernel("double", "x_ptr y_ptr", body)
    amdgcn_kernel("double", "x_ptr y_ptr", body, "gfx942")

What stands around a body is the same for every kernel: what the loader of a GPU must know of it.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from functools import lru_cache
from pathlib import Path

from gpu_utils.chips.targets import TARGETS
from gpu_utils.compiler.cubin import nvidia_tool
from gpu_utils.compiler.quiet import kept_output
from gpu_utils.compiler.triton import ptxas
from gpu_utils.errors import BadArgument, CompileFailed
from gpu_utils.virtual import MODELS

NVIDIA = tuple(target for target in MODELS if TARGETS[target].vendor == "nvidia")
AMD = tuple(target for target in MODELS if TARGETS[target].vendor == "amd")
"""The targets of which a virtual GPU executes the machine code."""

COMMENTS = {
    "nvidia": re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL),
    "amd": re.compile(r"/\*.*?\*/|(?://|;)[^\n]*", re.DOTALL),
}
"""What is a comment in PTX and in AMDGCN; in PTX `;` ends an instruction."""

_PTX = """.version {version}
.target {target}
.address_size 64

.visible .entry {name}(
{parameters}
)
{{
{body}
}}
"""

_AMDGCN = """  .amdgcn_target "amdgcn-amd-amdhsa--{target}"
  .text
  .globl {name}
  .p2align 8
  .type {name},@function
{name}:
{body}
  .section .rodata,"a",@progbits
  .p2align 6
  .amdhsa_kernel {name}
    .amdhsa_group_segment_fixed_size {shared}
    .amdhsa_kernarg_size {size}
    .amdhsa_user_sgpr_kernarg_segment_ptr 1
    .amdhsa_next_free_vgpr {vgprs}
    .amdhsa_next_free_sgpr {sgprs}
{accum}  .end_amdhsa_kernel
  .amdgpu_metadata
---
amdhsa.kernels:
  - .name: {name}
    .symbol: {name}.kd
    .kernarg_segment_size: {size}
    .kernarg_segment_align: 8
    .group_segment_fixed_size: {shared}
    .private_segment_fixed_size: 0
    .wavefront_size: {lanes}
    .sgpr_count: {sgprs}
    .vgpr_count: {vgprs}
    .max_flat_workgroup_size: 1024
    .args:
{arguments}
amdhsa.version: [1, 2]
...
  .end_amdgpu_metadata
"""

_ARGUMENT = """      - .offset: {offset}
        .size: {size}
        .value_kind: {kind}"""

_VERSION = {"sm_89": "8.4", "sm_90": "8.0", "sm_90a": "8.0", "sm_100a": "8.6"}


def ptx_kernel(name: str, parameters: str, body: str, target: str = "sm_80") -> str:
    """A PTX module with one kernel.

    parameters  names between blanks: one that ends in `_ptr` is an address (.u64), another one a number (.u32)
    body        declarations of registers and instructions
    target      what is written behind `.target`: "sm_80" runs on every later chip, "sm_90a" on sm_90 alone
    """
    declared = ",\n".join(f"  .param .{'u64' if n.endswith('_ptr') else 'u32'} {n}" for n in parameters.split())
    return _PTX.format(
        version=_VERSION.get(target, "7.0"), target=target, name=name, parameters=declared, body=body.strip("\n")
    )


def amdgcn_kernel(name: str, parameters: str, body: str, target: str, shared: int = 0) -> str:
    """An AMDGCN module with one kernel: s[0:1] holds the address of its arguments, v0 the number of the thread.

    The number of the block is in s2, and on gfx12 in ttmp9. On gfx90a and later CDNA v0 also holds the y and z of a
    thread in bits 10 to 29; blocks here are one-dimensional, so it is the number itself.
    name        no word that YAML takes for yes or no ("on", "off", "n"): older assemblers of LLVM refuse its metadata
    parameters  names between blanks: one that ends in `_ptr` is an address of 8 bytes, another one a number of 4
    body        instructions, as the target's assembler takes them
    shared      bytes of LDS of a block
    """
    arguments, end = [], 0
    for one in parameters.split():
        size = 8 if one.endswith("_ptr") else 4
        offset = -(-end // size) * size
        end = offset + size
        kind = "global_buffer" if size == 8 else "by_value"
        arguments.append(_ARGUMENT.format(offset=offset, size=size, kind=kind))
    vgprs, agprs = _most(body, "v"), _most(body, "a")
    split = -(-max(vgprs, 1) // 4) * 4
    unified = target in ("gfx90a", "gfx942", "gfx950")
    return _AMDGCN.format(
        name=name,
        target=target,
        body=body.strip("\n"),
        shared=shared,
        size=end,
        lanes=TARGETS[target].lanes,
        vgprs=split + agprs if agprs else max(vgprs, 1),
        sgprs=max(_most(body, "s"), 16),
        accum=f"    .amdhsa_accum_offset {split}\n" if unified else "",
        arguments="\n".join(arguments),
    )


def _most(body: str, letter: str) -> int:
    """How many registers of a kind a body names: the highest number and 1; 0 for none."""
    code = re.sub(r"(;|//).*", "", body)
    single = re.findall(rf"(?<![\w.]){letter}(\d+)\b", code)
    ranges = re.findall(rf"(?<![\w.]){letter}\[\d+:(\d+)\]", code)
    return max((int(number) + 1 for number in (*single, *ranges)), default=0)


@lru_cache(maxsize=256)
def refused(text: str, target: str) -> str:
    """The first complaint of the vendor's assembler, with the line it is about; "" where it takes the text.

    ptxas and LLVM's assembler come with Triton.
    """
    return _of_ptxas(text, target) if TARGETS[target].vendor == "nvidia" else _of_llvm(text, target)


def _of_ptxas(text: str, target: str) -> str:
    built_for = re.search(r"^\.target (\w+)", text, re.MULTILINE)
    gpu = built_for[1] if built_for and built_for[1].endswith("a") else target
    with tempfile.TemporaryDirectory(prefix="w2w-ptx-") as folder:
        ptx = Path(folder) / "kernel.ptx"
        ptx.write_text(text, encoding="utf-8")
        try:
            nvidia_tool(ptxas(TARGETS[target]), f"--gpu-name={gpu}", str(ptx), "-o", str(ptx.with_suffix(".cubin")))
        except subprocess.CalledProcessError as problem:
            said = problem.stderr + problem.stdout
            found = re.search(r"line (\d+)\W+(?:error|fatal)\s*:\s*(.+)", said)
            if found is None:
                return re.sub(r"^ptxas \w+\s*: ", "", said.strip().partition("\n")[0])
            complaint = re.sub(r" at start of file '[^']*'", "", found[2].strip())
            # of an instruction with an unknown register ptxas says first that its operands are of wrong types
            named = re.search(rf"line {found[1]}\W+error\s*:\s*(Unknown symbol .+)", said)
            return f"{named[1].strip() if named else complaint} (line {found[1]}: {_line(text, int(found[1]))})"
    return ""


class _Assembled(Exception):
    """LLVM is done; what it printed is read, and not shown."""


_BEYOND_THE_TEXT = re.compile(r"\.\s*(include|incbin|macro|altmacro|irpc?|rept)\b", re.IGNORECASE)
"""Directives with which LLVM's assembler reads a file, or puts the name of one together."""


def _of_llvm(text: str, target: str) -> str:
    if directive := _BEYOND_THE_TEXT.search(COMMENTS["amd"].sub("", text)):
        return f"the directive .{directive[1]} reads or writes what is not in the text; write the instructions out"
    from triton._C.libtriton import amd, llvm

    llvm.init_targets()
    said = ""
    try:
        with kept_output() as output:
            amd.assemble_amdgcn(text, target, "")
            raise _Assembled
    except _Assembled:
        said = output.text
    except RuntimeError as problem:
        said = f"{output.text}\nerror: {problem}"
    found = re.search(r"error: (.+)\n?([^\n]*)", said)
    if found is None:
        return ""
    return f"{found[1]} (`{_short(found[2])}`)" if found[2].strip() else found[1]


def _line(text: str, number: int) -> str:
    lines = text.splitlines()
    return _short(lines[number - 1]) if 0 < number <= len(lines) else ""


def _short(line: str) -> str:
    return line.strip() if len(line.strip()) <= 120 else f"{line.strip()[:117]}..."


def assembled(text: str, target: str) -> str:
    """The text itself, once the vendor's assembler took it. Raises CompileFailed with its first complaint."""
    if target not in MODELS:
        raise BadArgument(f"{target} has no virtual GPU; there are {', '.join(MODELS)}")
    if said := refused(text, target):
        tool = "ptxas" if TARGETS[target].vendor == "nvidia" else "LLVM's assembler"
        raise CompileFailed(f"{tool} refuses this for {target}: {said}")
    return text

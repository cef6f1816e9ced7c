"""For tests of the virtual AI core: a tile program lowered by TileLang, with its blocks and its tensors in order."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from gpu_utils.compiler import tilelang
from gpu_utils.npu import NpuRun, run_ascendc

needs_clang = pytest.mark.usefixtures("clang")
needs_tilelang = pytest.mark.usefixtures("tilelang")
_SYNCHRONISES = re.compile(r"^\s+(asc_sync\w*|asc_lock|asc_unlock)\(")


@dataclass(frozen=True)
class OnCores:
    """A lowered kernel: its text, blocks, the program's parameters and, in the order of the text, the kernel's."""

    source: str
    blocks: int
    given: tuple[str, ...]
    wanted: tuple[str, ...]

    def run(self, tensors: list[torch.Tensor], check: bool = True) -> NpuRun:
        named = dict(zip(self.given, tensors, strict=True))
        return run_ascendc(self.source, "main_kernel", self.blocks, [named[one] for one in self.wanted], check=check)


def on_cores(program: Callable[..., Any], sizes: Mapping[str, Any]) -> OnCores:
    """A tile program, lowered for Ascend."""
    source = tilelang.lower(program, "ascend950", **sizes).source
    with importlib.import_module("tvm.target").Target({"kind": "ascend"}):
        made = program(importlib.import_module("tilelang.ascend.language"), "ascend", **sizes)
    blocks = re.search(r'thread_binding\((\d+), thread="blockIdx.x"', str(made))
    kernel = re.search(r"void main_kernel\(([^)]*)\)", source)
    assert blocks
    assert kernel
    wanted = tuple(one.split()[-1] for one in kernel[1].split(","))
    return OnCores(source, int(blocks[1]), tuple(made.buffer_map[one].name for one in made.params), wanted)


def without_one(kernel: OnCores) -> tuple[OnCores, tuple[str, ...]]:
    """The kernel with one parameter more, the number of the synchronising statement that is left out (-1: none), and
    those statements. TileLang's template of a product is written out, so that its locks are among them."""
    source = kernel.source
    include = "#include <tl_templates/ascend/gemm.h>"
    if include in source:
        folder = importlib.util.find_spec("tilelang").submodule_search_locations[0]  # type: ignore[union-attr,index]
        with open(f"{folder}/src/tl_templates/ascend/gemm.h") as file:
            template = file.read().split("/*!\n * \\brief Ascend block-scaled")[0].replace("#pragma once", "")
        source = source.replace(include, template)
    lines, sites = [], []
    for line in source.split("\n"):
        if _SYNCHRONISES.match(line):
            lines.append(f"  if (left_out != {len(sites)})")
            sites.append(line.strip())
        lines.append(line)
    text = re.sub(
        r"(void main_kernel\([^)]*)\) \{\n  asc_init\(\);",
        r"\1, __gm__ int32_t* number) {\n  asc_init(); left_out = number[0];",
        "static int left_out;\n" + "\n".join(lines),
    )
    return OnCores(text, kernel.blocks, (*kernel.given, "number"), (*kernel.wanted, "number")), tuple(sites)

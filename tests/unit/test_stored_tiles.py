"""Lowered sources of the course's own tile programs: there without TileLang, and what TileLang makes today."""

from __future__ import annotations

import importlib.util

import pytest

from gpu_utils import explore
from gpu_utils.compiler import stored_tiles
from gpu_utils.compiler import tilelang as tile_compiler
from gpu_utils.compiler.tilelang import Lowered, lower
from gpu_utils.errors import CompilerMissing
from gpu_utils.kernelset.tile_matmuls import gemm
from gpu_utils.ui.explore.lowered import SIZES


@pytest.fixture
def without_tilelang(monkeypatch):
    really = importlib.util.find_spec
    hidden = lambda name, *rest: None if name == "tilelang" else really(name, *rest)  # noqa: E731
    monkeypatch.setattr(importlib.util, "find_spec", hidden)


@pytest.mark.parametrize("target", ["sm_80", "sm_90", "sm_100", "gfx942", "gfx950", "ascend950"])
def test_what_is_stored_is_what_tilelang_makes(tilelang, target):
    stored = stored_tiles.find(gemm, target, SIZES)
    assert stored
    assert Lowered.from_data(stored) == lower(gemm, target, **SIZES)


def test_the_explorer_needs_no_tilelang(without_tilelang):
    assert not tile_compiler.installed()
    assert "ascend950: 1 of 30 lines come from it" in explore("lowered").words


def test_another_program_says_what_to_install(without_tilelang):
    with pytest.raises(CompilerMissing, match="W2W_EXTRAS=hip,nvrtc,tilelang"):
        lower(gemm, "sm_90", **{**SIZES, "M": 512})

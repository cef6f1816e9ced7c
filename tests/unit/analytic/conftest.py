"""What several tests of the analytic models need."""

from __future__ import annotations

import importlib.util

import pytest

from tests.conftest import unavailable


@pytest.fixture(scope="module")
def clang(tmp_path_factory):
    """The C++ compiler, with a cache of its own."""
    if importlib.util.find_spec("ziglang") is None:
        unavailable("the wheel ziglang is not installed (the extra `hip`)")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("W2W_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield

"""What several tests of the analytic models need."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="module")
def clang(clang, tmp_path_factory):
    """The C++ compiler, with a cache of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("W2W_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield

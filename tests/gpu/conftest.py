"""Tests that need a real NVIDIA or AMD GPU; elsewhere each is skipped with the reason."""

import pytest

from gpu_utils.backends import backend


def pytest_collection_modifyitems(items):
    reason = backend("gpu").unavailable()
    for item in items:
        if "tests/gpu/" in item.path.as_posix():
            item.add_marker(pytest.mark.gpu)
            if reason:
                item.add_marker(pytest.mark.skip(reason=reason))

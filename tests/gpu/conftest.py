"""Tests that need a real NVIDIA or AMD GPU; tests/conftest.py says what happens where there is none."""

import pytest


def pytest_collection_modifyitems(items):
    for item in items:
        if "tests/gpu/" in item.path.as_posix():
            item.add_marker(pytest.mark.gpu)

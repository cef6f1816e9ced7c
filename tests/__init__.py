"""The tests of the course: see CONTRIBUTING."""

from pathlib import Path

ROOT = Path(__file__).parents[1]

"""The command line `w2w`: each command is a function in a module of its own, imported when it is run."""

from gpu_utils.cli.app import main

__all__ = ["main"]

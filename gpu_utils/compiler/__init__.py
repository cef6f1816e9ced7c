"""Kernels compiled for both vendors with no GPU, what they need, and their instructions beside their source."""

from gpu_utils.compiler.triton import Compiled, compile_for

__all__ = ["Compiled", "compile_for"]

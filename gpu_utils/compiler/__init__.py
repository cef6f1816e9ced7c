"""Kernels compiled for both vendors with no GPU, what they need, and their instructions beside their source."""

from gpu_utils.compiler.listing import Listing, listing
from gpu_utils.compiler.resources import Resources, resources
from gpu_utils.compiler.triton import Compiled, compile_for

__all__ = ["Compiled", "Listing", "Resources", "compile_for", "listing", "resources"]

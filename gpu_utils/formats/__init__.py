"""Narrow number formats to the bit: floats of 8, 6 and 4 bits, and blocks of them that share a scale."""

from gpu_utils.formats.blocks import BLOCK_FORMATS, BlockFormat, Blocks
from gpu_utils.formats.narrow import FORMATS, Fields, Format

__all__ = ["BLOCK_FORMATS", "FORMATS", "BlockFormat", "Blocks", "Fields", "Format"]

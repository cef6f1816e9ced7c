"""Traffic of a tiled matrix product: what a grid of output tiles reads from memory and writes to it.

C (M, N) = A (M, K) @ B (K, N). Each program computes one tile of C. It reads a strip of rows of A and a strip of
columns of B, so A is read once for each column of tiles and B once for each row of tiles. Nothing is assumed to stay in
a cache between programs: the L2 can only make it less, and the order of the programs decides by how much.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpu_utils.errors import BadArgument


@dataclass(frozen=True)
class TileTraffic:
    """Bytes and operations of one product.

    tiles        programs: rows of tiles times columns of tiles
    read_a, read_b  bytes read of each operand, every re-reading counted
    written      bytes of C, written once
    flops        2 M N K
    tile_flops   operations that the tiles execute, with what they compute outside of ragged edges
    least        bytes when everything is read and written once
    """

    tiles: int
    read_a: int
    read_b: int
    written: int
    flops: int
    tile_flops: int
    least: int

    @property
    def bytes(self) -> int:
        return self.read_a + self.read_b + self.written

    @property
    def intensity(self) -> float:
        """FLOP per byte."""
        return self.flops / self.bytes

    @property
    def rereads(self) -> float:
        """Bytes moved over the least possible."""
        return self.bytes / self.least


def tile_traffic(
    M: int,
    N: int,
    K: int,
    block_m: int,
    block_n: int,
    block_k: int = 32,
    dtype_bytes: int = 2,
    out_bytes: int | None = None,
) -> TileTraffic:
    """Bytes that a tiled product moves between memory and the chip when no cache helps.

    M, N, K      sizes; they need not be multiples of the tile: masked loads and stores move nothing outside
    block_m, block_n, block_k  the tile of C and the step along K. The step changes no bytes, only the padded work
    dtype_bytes  of an element of A and B; out_bytes: of C, the same unless given

    Errors: BadArgument for a size below 1.

    >>> t = tile_traffic(4096, 4096, 4096, 128, 128)
    >>> t.bytes // 2**20, t.least // 2**20, round(t.intensity, 1), tile_traffic(100, 100, 100, 64, 64).tiles
    (2080, 96, 63.0, 4)
    """
    sizes = {"M": M, "N": N, "K": K, "block_m": block_m, "block_n": block_n, "block_k": block_k}
    out_bytes = dtype_bytes if out_bytes is None else out_bytes
    for name, size in {**sizes, "dtype_bytes": dtype_bytes, "out_bytes": out_bytes}.items():
        if size < 1:
            raise BadArgument(f"{name} is {size}; expected 1 or more")
    rows, columns, steps = -(-M // block_m), -(-N // block_n), -(-K // block_k)
    written = M * N * out_bytes
    return TileTraffic(
        tiles=rows * columns,
        read_a=columns * M * K * dtype_bytes,
        read_b=rows * K * N * dtype_bytes,
        written=written,
        flops=2 * M * N * K,
        tile_flops=2 * rows * block_m * columns * block_n * steps * block_k,
        least=(M * K + K * N) * dtype_bytes + written,
    )

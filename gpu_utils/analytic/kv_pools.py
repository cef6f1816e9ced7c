"""The KV cache of a model whose layers keep different things: pools, what each holds and what a step reads of it.

A pool is all layers of one kind. Bytes are of one sequence; a step decodes one token of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpu_utils.errors import BadArgument


@dataclass(frozen=True, kw_only=True)
class Pool:
    """Layers that keep the same.

    name     what they keep
    layers   how many of them
    entry    bytes of one entry of one layer
    per      tokens that share an entry
    window   tokens that are kept, the latest ones; None for all
    picked   entries that a step reads, chosen by their content; None for all that are held

    >>> pool = Pool(name="one of 4", layers=21, entry=1024, per=4, picked=512)
    >>> pool.held(4096), pool.read(4096), pool.read(1 << 20, page=64)
    (22020096, 11010048, 704643072)
    """

    name: str
    layers: int
    entry: int
    per: int = 1
    window: int | None = None
    picked: int | None = None

    def entries(self, tokens: int) -> int:
        """Entries of one layer after so many tokens."""
        return min(tokens, self.window or tokens) // self.per

    def held(self, tokens: int) -> int:
        """Bytes of all layers."""
        return self.layers * self.entry * self.entries(tokens)

    def read(self, tokens: int, page: int = 1) -> int:
        """Most bytes that one step reads, where it can read no less than a page of so many entries."""
        found = self.entries(tokens)
        if self.picked is not None and self.picked < found:
            found = min(found, self.picked * page)
        return self.layers * self.entry * found


def hybrid_pools(kind: str = "hybrid") -> tuple[Pool, ...]:
    """Pools with the sizes of DeepSeek-V4-Flash, in bf16: "hybrid", or "full", as if each layer kept every token.

    43 layers; an entry, key and value at once, has 512 numbers; window 128; the indexer's keys have 128 and choose 512
    (NeMo AutoModel, defaults of DeepseekV4Config). The first two layers keep the window only, the others by turns one
    entry for 4 tokens, with the indexer's key, and one for 128 (antirez/ds4 MODEL_CARD.md, which reports the model
    card). Raises BadArgument for another kind.

    >>> [pool.layers for pool in hybrid_pools()]
    [43, 20, 21, 21]
    """
    if kind == "full":
        return (Pool(name="every token", layers=43, entry=1024),)
    if kind != "hybrid":
        raise BadArgument(f'kind is {kind!r}; expected "hybrid" or "full"')
    return (
        Pool(name="window", layers=43, entry=1024, window=128),
        Pool(name="one of 128", layers=20, entry=1024, per=128),
        Pool(name="indexer's keys", layers=21, entry=256, per=4),
        Pool(name="one of 4", layers=21, entry=1024, per=4, picked=512),
    )


def pool_rows(pools: Sequence[Pool], tokens: int, page: int = 1) -> dict[str, dict[str, float]]:
    """Pool -> MB that it holds, MB that a step reads, and how often a step reads each byte.

    >>> pool_rows(hybrid_pools("full"), 1024)
    {'every token': {'MB held': 45.1, 'MB read in a step': 45.1, 'reads of a byte': 1.0}}
    """
    return {
        pool.name: {
            "MB held": round(pool.held(tokens) / 1e6, 1),
            "MB read in a step": round(pool.read(tokens, page) / 1e6, 1),
            "reads of a byte": round(pool.read(tokens, page) / pool.held(tokens), 3),
        }
        for pool in pools
    }


def pool_places(
    pools: Sequence[Pool], tokens: int, tiers: Mapping[str, tuple[float, float]], page: int = 1
) -> dict[str, dict[str, float | str]]:
    """Pool -> memory that it is kept in and milliseconds of its reads; those whose bytes are read most often first.

    tiers  memory -> (bytes for this sequence, bytes/s), the fastest first. Raises BadArgument where one finds no
            room

    >>> pool_places(hybrid_pools("full"), 1 << 20, {"HBM": (1e9, 3e12), "host": (1e12, 5e10)})
    {'every token': {'kept in': 'host', 'ms of a step': 923.4}}
    """
    left = {name: room for name, (room, _) in tiers.items()}
    found: dict[str, dict[str, float | str]] = {}
    for pool in sorted(pools, key=lambda pool: -pool.read(tokens, page) / pool.held(tokens)):
        held = pool.held(tokens)
        name = next((name for name in tiers if held <= left[name]), None)
        if name is None:
            raise BadArgument(
                f"{pool.name!r} holds {held:,} bytes; the memories have {left} left: add one, or tokens less"
            )
        left[name] -= held
        ms = pool.read(tokens, page if name != next(iter(tiers)) else 1) / tiers[name][1] * 1e3
        found[pool.name] = {"kept in": name, "ms of a step": round(ms, 3 if ms < 100 else 1)}
    return found

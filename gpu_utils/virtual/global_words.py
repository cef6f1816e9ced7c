"""Moves words between global memory and rows: many lanes at once where they lie side by side."""

from __future__ import annotations

import numpy as np

from gpu_utils.virtual.global_patterns import Pattern
from gpu_utils.virtual.words import ORIGIN, READ, UINT, WORDS, items_of


def gather(pattern: Pattern, base: int, width: int, count: int) -> list[np.ndarray]:
    """`count` words of `width` bytes at the lanes' addresses, multiples of `width`, as `Memory.load`."""
    size, shape = width * count, pattern.delta.shape
    if pattern.side_by_side(size):
        first = (base - ORIGIN) // width
        words = READ[width][first : first + pattern.count * count]
        return [pattern.spread(words[part::count]) for part in range(count)]
    step = pattern.run(size)
    if not step:
        places = pattern.starts(width, width, whole=True) + (base - ORIGIN) // width
        return [READ[width].take(places + part if part else places) for part in range(count)]
    skip, place = (base - ORIGIN) % step, (base - ORIGIN) // step
    items = items_of(READ[1], step, skip).take(pattern.starts(size, step, whole=True) + place)
    words = items.view(UINT[width]).reshape(*shape, count)
    return [words[..., part] for part in range(count)]


def gather_bytes(pattern: Pattern, base: int, width: int, count: int) -> list[np.ndarray]:
    """`gather` for addresses that are no multiples of `width`."""
    index = (pattern.starts(1, 1, whole=True) + (base - ORIGIN))[..., None] + np.arange(width * count)
    raw = WORDS[1].take(index).view(UINT[width])
    return [np.ascontiguousarray(raw[..., part]) for part in range(count)]


def scatter(pattern: Pattern, base: int, width: int, values: list[np.ndarray]) -> list[np.ndarray]:
    """Write what `pattern.pick` gave; tells for each word which lanes' memory held that value before."""
    count = len(values)
    size, same = width * count, []
    if pattern.side_by_side(size):
        first = (base - ORIGIN) // width
        words = WORDS[width][first : first + pattern.count * count]
        for part, value in enumerate(values):
            cells, value = words[part::count], value.reshape(-1)
            same.append(cells == value)
            cells[...] = value
        return same
    step = pattern.run(size)
    if step <= width:
        index = pattern.starts(width, width) + (base - ORIGIN) // width
        for part, value in enumerate(values):
            if part:
                index += 1
            same.append(WORDS[width].take(index) == value)
            WORDS[width][index] = value
        return same
    skip = (base - ORIGIN) % step
    places = pattern.starts(size, step) + (base - ORIGIN) // step
    memory = items_of(WORDS[1], step, skip)
    before = memory.take(places).view(UINT[width]).reshape(*values[0].shape, count)
    same = [before[..., part] == value for part, value in enumerate(values)]
    fresh = np.ascontiguousarray(values[0]) if count == 1 else np.stack(values, axis=-1)
    memory[places] = fresh.reshape(-1).view(memory.dtype).reshape(places.shape)
    return same

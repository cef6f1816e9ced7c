"""The example of 14.memory_plan, and operators on machines that nobody built, each for what it tells apart.

Rows as `memory_plan` reads them: memory -> bytes, parts, align; name, memory, shape, itemsize, copies, live; tiles as
queries, keys, stages.
"""

from __future__ import annotations

from typing import Any

EXAMPLE: dict[str, Any] = {
    "memories": {
        "L1": {"bytes": 128, "parts": 1, "align": 32},
        "UB": {"bytes": 160, "parts": 2, "align": 32},
    },
    "buffers": [
        {"name": "K", "memory": "L1", "shape": ["keys", 8], "itemsize": 2, "copies": "stages", "live": [0, 0]},
        {"name": "S", "memory": "UB", "shape": ["queries", "keys"], "itemsize": 4, "copies": 1, "live": [0, 1]},
        {"name": "P", "memory": "UB", "shape": ["queries", "keys"], "itemsize": 2, "copies": 1, "live": [1, 2]},
        {"name": "O", "memory": "UB", "shape": ["queries", 8], "itemsize": 4, "copies": 1, "live": [2, 2]},
    ],
    "tiles": [
        {"queries": 4, "keys": 8, "stages": 1},
        {"queries": 8, "keys": 8, "stages": 1},
        {"queries": 8, "keys": 4, "stages": 1},
        {"queries": 8, "keys": 4, "stages": 2},
    ],
    "n": 16,
}

DRAWN: tuple[tuple[str, dict[str, Any]], ...] = (
    (
        "two parts, offsets in steps of 512: of four sizes that make as many blocks, one fits, and only in some orders",
        {
            "memories": {"near": [7208, 2, 512]},
            "buffers": [
                ["A", "near", ("queries", 36), 2, 1, (0, 4)],
                ["B", "near", ("queries", 20), 4, "stages", (2, 2)],
                ["C", "near", ("queries", 10), 2, 1, (3, 4)],
                ["D", "near", ("queries", 36), 2, 1, (4, 4)],
                ["E", "near", ("keys", 12), 2, 1, (3, 4)],
                ["F", "near", ("keys", 36), 4, 1, (2, 3)],
            ],
            "tiles": [
                [40, 16, 1],
                [16, 32, 3],
                [64, 64, 1],
                [40, 64, 2],
                [57, 64, 3],
                [40, 16, 3],
                [64, 64, 3],
                [16, 48, 2],
                [64, 16, 3],
                [64, 16, 1],
                [57, 32, 3],
                [57, 64, 2],
                [57, 32, 1],
                [16, 32, 1],
                [16, 48, 3],
                [40, 64, 3],
            ],
            "n": 257,
        },
    ),
    (
        "two memories; the last block is partly filled",
        {
            "memories": {"near": [5888, 2, 512], "far": [3744, 1, 128]},
            "buffers": [
                ["A", "near", ("keys", 12), 4, 1, (0, 4)],
                ["B", "near", ("queries", 6), 4, 1, (0, 0)],
                ["C", "near", ("keys", 36), 2, 1, (0, 2)],
                ["D", "far", ("keys", 4), 4, "stages", (2, 3)],
                ["E", "near", ("queries", 24), 2, 1, (4, 4)],
                ["F", "near", ("queries", 12), 2, 1, (1, 2)],
                ["G", "near", ("queries", 36), 2, 1, (1, 3)],
                ["H", "far", ("queries", 10), 2, "stages", (3, 4)],
            ],
            "tiles": [
                [16, 48, 1],
                [40, 64, 3],
                [48, 16, 2],
                [48, 16, 3],
                [48, 32, 2],
                [24, 32, 3],
                [16, 32, 2],
                [16, 48, 3],
                [24, 16, 3],
                [16, 32, 1],
                [24, 32, 1],
                [40, 48, 1],
                [40, 48, 3],
                [24, 16, 2],
                [40, 64, 2],
                [48, 32, 3],
            ],
            "n": 200,
        },
    ),
    (
        "copies that are live in two steps, and in all",
        {
            "memories": {"near": [14592, 2, 64], "far": [9216, 1, 128]},
            "buffers": [
                ["A", "near", ("queries", 20), 2, 1, (0, 4)],
                ["B", "near", ("queries", 20), 4, "stages", (4, 4)],
                ["C", "near", ("queries", 4), 2, 1, (4, 4)],
                ["D", "far", ("queries", 12), 4, "stages", (2, 4)],
                ["E", "near", ("keys", 12), 4, 1, (4, 4)],
                ["F", "near", ("queries", 36), 2, 1, (4, 4)],
                ["G", "near", ("keys", 36), 2, 1, (0, 2)],
            ],
            "tiles": [
                [24, 48, 2],
                [57, 16, 3],
                [80, 64, 3],
                [80, 48, 1],
                [24, 64, 2],
                [24, 64, 3],
                [96, 48, 2],
                [57, 32, 3],
                [80, 64, 1],
                [96, 16, 1],
                [57, 32, 2],
                [57, 16, 1],
                [96, 16, 2],
                [24, 48, 1],
                [80, 48, 3],
                [96, 48, 3],
            ],
            "n": 384,
        },
    ),
    (
        "57 rows for two parts",
        {
            "memories": {"near": [8192, 2, 64]},
            "buffers": [
                ["A", "near", ("queries", 4), 4, 1, (0, 4)],
                ["B", "near", ("queries", 24), 2, "stages", (3, 4)],
                ["C", "near", ("keys", 20), 2, 1, (4, 4)],
                ["D", "near", ("queries", 10), 2, 1, (3, 4)],
                ["E", "near", ("queries", 20), 4, 1, (0, 1)],
                ["F", "near", ("queries", 4), 2, 1, (3, 3)],
                ["G", "near", ("queries", 4), 4, 1, (0, 2)],
            ],
            "tiles": [
                [33, 32, 3],
                [64, 32, 3],
                [57, 48, 3],
                [57, 48, 2],
                [48, 48, 1],
                [64, 48, 2],
                [33, 32, 1],
                [33, 48, 3],
                [48, 16, 1],
                [48, 16, 3],
                [48, 48, 2],
                [64, 48, 3],
                [57, 64, 3],
                [64, 32, 2],
                [57, 64, 2],
                [33, 48, 1],
            ],
            "n": 200,
        },
    ),
    (
        "50 keys and 64 make as many rounds; R is live in step 0 alone",
        {
            "memories": {"L1": [3168, 1, 32]},
            "buffers": [
                ["K", "L1", ("keys", 8), 2, "stages", (1, 2)],
                ["R", "L1", ("queries", 4), 2, 1, (0, 0)],
                ["O", "L1", ("queries", 4), 4, 1, (0, 2)],
            ],
            "tiles": [[32, 64, 3], [32, 64, 2], [32, 50, 3], [32, 50, 2], [16, 64, 3]],
            "n": 100,
        },
    ),
)

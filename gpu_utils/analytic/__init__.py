"""Models that need no machine: occupancy, roofline, memory access, traffic of tiles, sizes of caches."""

"""Unit 13: profiling on both vendors. Its exercises, in the lab's order."""

NAMES = ("fix",)

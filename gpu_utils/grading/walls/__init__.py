"""Answers that nobody trusts: run inside of walls, and what they launch replayed outside of their reach.

wire       messages, both ways: plain data, read without running anything
bwrap      the walls: what bubblewrap is told
confine    what a process gives up for good before it runs an answer
nursery    inside of the walls: a clean process for each exercise
worker     in that process: runs the answer, records what it launches
recording  the record of launches, and of what torch does to the memory that they touch
replayer   inside of walls of its own, without an answer: replays a record with the inputs that count
runner     on the grader's side: a Runner for `gpu_utils.grading.check`
"""

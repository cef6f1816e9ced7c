"""What the answer to 14.flags may hold: parts that order the pipes, and nothing that reaches for anything else."""

from __future__ import annotations

import pytest

from gpu_utils.course.sources import load_solution
from gpu_utils.errors import BadArgument
from gpu_utils.exercises.u14_tilelang.flags import ANSWER, EXERCISE
from gpu_utils.exercises.u14_tilelang.flags_allowed import check_part
from tests.fixtures.right_styles_u14_tiles import STYLES

RIGHT = [answer for name, _, answer in STYLES if name == EXERCISE.id]
WRONG = [wrong.answer for wrong in EXERCISE.misconceptions]
OTHERS = (
    "const event_t id[2] = {event(0), event(1)};",
    "system(0);",
    "w2w_at(3);",
    "int w2w_at = 3; w2w_at(3);",
    "int __x = 3;",
    "std::abort();",
    "::abort();",
    "#include <stdio.h>",
    "%:include <stdio.h>",
    'asm("nop");',
    "asm volatile (0);",
    "extern int puts(int);",
    "*(int *)0 = 1;",
    "(int *)0;",
    "int *p = (int *)8;",
    "int i = 0; auto p = &i;",
    "int i = 0; int &r = i;",
    "auto p = static_cast<int *>(0);",
    "auto p = reinterpret_cast<int *>(0);",
    "x[0] = 1;",
    "int i = 0; i[x] = 1;",
    "*x = 1;",
    "ub = ub + 4096;",
    "int ub = 0;",
    "{ int x = 0; } x[0] = 1;",
    "first = 9;",
    "x<:0:> = 1;",
    "goto out;",
    "new int;",
    "/* *\\\n/ system(0); /* */",
    "load(0); // \\\n",
    "??=include <stdio.h>",
    "auto f = [&](auto g) { *g; };",
    "int i = 1; i && *tiles;",
    "auto f = load; f.operator()(0);",
)


@pytest.mark.parametrize("answer", [ANSWER, load_solution(EXERCISE.id), *RIGHT, *WRONG])
def test_what_orders_pipes_is_read(answer):
    check_part(answer(), ANSWER)


@pytest.mark.parametrize("part", OTHERS)
def test_all_else_is_refused_in_one_sentence(part):
    with pytest.raises(BadArgument, match=r"^[^\n]+$"):
        check_part(ANSWER.filled(part)(), ANSWER)


@pytest.mark.parametrize(
    "change", [("expf(-x[i])", "expf(x[i])"), ("asc_init();", "asc_init(); system(0);"), ("#include", "#import")]
)
def test_the_kernel_around_it_is_as_given(change):
    with pytest.raises(BadArgument, match="around your part was changed"):
        check_part(ANSWER().replace(*change), ANSWER)


def test_more_behind_the_kernel_is_refused():
    with pytest.raises(BadArgument, match="around your part was changed"):
        check_part(ANSWER() + "int more = 1;\n", ANSWER)


def test_words_of_comments_are_free():
    check_part(ANSWER.filled(f"// it's free: asm, ::, x[0]\n{ANSWER.solution} /* system(\n) */")(), ANSWER)

"""14.flags' wrong answers: the learner's part with other flags."""

from __future__ import annotations

MTE2, V, MTE3 = "PIPE_MTE2", "PIPE_V", "PIPE_MTE3"
READY, FULL = (MTE2, V), (V, MTE3)  # x may be read; y may be read
X_FREE, Y_FREE = (V, MTE2), (MTE3, V)  # x, y may be written over
LOOP = "  for (int t = 0; t < TILES; ++t) {\n    int i = t % 2;\n"


def notify(flag: tuple[str, str], event: str = "i") -> str:
    return f"    asc_sync_notify({flag[0]}, {flag[1]}, event({event}));\n"


def wait(flag: tuple[str, str], event: str = "i") -> str:
    return f"    asc_sync_wait({flag[0]}, {flag[1]}, event({event}));\n"


def for_both(*lines: str) -> str:
    """Lines for buffers 0 and 1, outside of the loop over tiles."""
    return "  for (int i = 0; i < 2; ++i) {\n" + "".join(lines) + "  }\n" if lines else ""


def part(
    before: str,
    load: tuple[str, str],
    compute: tuple[str, str],
    store: tuple[str, str],
    after: str,
) -> str:
    """The learner's part: what stands before the loop, around each operation of it, and after it."""
    steps = ((load, "load"), (compute, "compute"), (store, "store"))
    body = "".join(f"{first}    {name}(t);\n{then}" for (first, then), name in steps)
    return f"{before}{LOOP}{body}  }}\n{after}".rstrip("\n")


def flagged(x_free: bool = True, y_free: bool = True, first: str | None = None, last: bool = True) -> str:
    """With flags for data that is there, and for buffers that are free; what stands before the loop, if not both."""
    free = [flag for flag, used in ((X_FREE, x_free), (Y_FREE, y_free)) if used]
    return part(
        for_both(*map(notify, free)) if first is None else first,
        (wait(X_FREE) if x_free else "", notify(READY)),
        (wait(READY) + (wait(Y_FREE) if y_free else ""), (notify(X_FREE) if x_free else "") + notify(FULL)),
        (wait(FULL), notify(Y_FREE) if y_free else ""),
        for_both(*map(wait, free)) if last else "",
    )


def in_order(free: str, before: str = "", after: str = "", at_load: str = "") -> str:
    """Data in order; `free` stands behind the store, `at_load` before the load."""
    return part(before, (at_load, notify(READY)), (wait(READY), notify(FULL)), (wait(FULL), free), after)


def _back(flag: tuple[str, str]) -> tuple[str, str]:
    return flag[1], flag[0]


PARTS = {
    "no_flags": part("", ("", ""), ("", ""), ("", ""), ""),
    "forward_only": flagged(x_free=False, y_free=False),
    "x_never_freed": flagged(x_free=False),
    "y_never_freed": flagged(y_free=False),
    "waits_for_the_first": flagged(first=""),
    "first_buffer_only": flagged(first=notify(X_FREE, "0") + notify(Y_FREE, "0")),
    "left_set": flagged(last=False),
    "one_id": flagged().replace("event(i)", "event(0)"),
    "id_of_the_tile": flagged().replace("int i = t % 2;", "int i = t;"),
    "swapped_pipes": part(
        for_both(notify(_back(X_FREE)), notify(_back(Y_FREE))),
        (wait(_back(X_FREE)), notify(_back(READY))),
        (wait(_back(READY)) + wait(_back(Y_FREE)), notify(_back(X_FREE)) + notify(_back(FULL))),
        (wait(_back(FULL)), notify(_back(Y_FREE))),
        for_both(wait(_back(X_FREE)), wait(_back(Y_FREE))),
    ),
    "set_too_early": part(
        for_both(notify(X_FREE), notify(Y_FREE)),
        (wait(X_FREE) + notify(READY), ""),
        (wait(READY) + wait(Y_FREE) + notify(X_FREE) + notify(FULL), ""),
        (wait(FULL) + notify(Y_FREE), ""),
        for_both(wait(X_FREE), wait(Y_FREE)),
    ),
    "barriers": part("", ("", "    asc_sync();\n"), ("", "    asc_sync();\n"), ("", "    asc_sync();\n"), ""),
    "one_after_the_other": in_order(notify((MTE3, MTE2)) + wait((MTE3, MTE2))),
    "one_flag_for_both": part(
        notify(X_FREE, "0") + notify(Y_FREE, "0"),
        (wait(X_FREE, "0"), notify(READY)),
        (wait(READY) + wait(Y_FREE, "0"), notify(X_FREE, "0") + notify(FULL)),
        (wait(FULL), notify(Y_FREE, "0")),
        wait(X_FREE, "0") + wait(Y_FREE, "0"),
    ),
    "freed_by_the_store": in_order(
        notify((MTE3, MTE2)), for_both(notify((MTE3, MTE2))), for_both(wait((MTE3, MTE2))), wait((MTE3, MTE2))
    ),
}
"""Name of a misconception -> the learner's part."""

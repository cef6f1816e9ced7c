"""How many of what."""


def counted(number: int, what: str) -> str:
    """
    >>> counted(1, "event"), counted(1200, "whole event"), counted(2, "entry")
    ('1 event', '1,200 whole events', '2 entries')
    """
    if number == 1:
        return f"1 {what}"
    return f"{number:,} {what[:-1]}ies" if what.endswith("ry") else f"{number:,} {what}s"

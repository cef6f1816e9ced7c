"""float16 to float32 for whole rows, several times faster than `astype`."""

from __future__ import annotations

import numpy as np

_SIGN_AND_DIGITS = np.int32(-0x70002000)  # 0x8FFFE000: the sign, and exponent and digits where float32 has its own
_REBIAS = np.float32(2.0**112)
_BEYOND = np.float32(65536)


def half_to_f32(bits: np.ndarray) -> np.ndarray:
    """The bits of float16 values (uint16) as float32, exactly.

    >>> half_to_f32(np.array([0x3C00, 0xC000, 0x0001, 0xFC00], np.uint16)).tolist()
    [1.0, -2.0, 5.960464477539063e-08, -inf]
    """
    wide = bits.view(np.int16).astype(np.int32)
    wide <<= 13
    wide &= _SIGN_AND_DIGITS
    value = wide.view(np.float32)
    value *= _REBIAS
    if value.size and (value.max() >= _BEYOND or value.min() <= -_BEYOND):  # an infinity or NaN
        return bits.view(np.float16).astype(np.float32)
    return value

"""Chances that need no memory: every unit has a number h of its hash, and (a·h + b) mod p is its chance the next time.

With a and b drawn anew, units fall anew: into parts of the data, or into shuffled groups. Rows of a unit fall together,
and they do so alike on every engine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from faultlines.sources.numbering import BITS, with_hash_number

if TYPE_CHECKING:
    import narwhals as nw

    from faultlines.rows.places import IntArray
    from faultlines.rows.request import Split

PRIME = 2**31 - 1
NUMBER = "hashed"  # the column of h
_SPLITTING = 0x5917


def drawn(seed: int, stream: int, count: int) -> tuple[IntArray, IntArray]:
    """Factors a and shifts b, in a random stream of their own."""
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(stream,)))
    return rng.integers(1, PRIME, count), rng.integers(0, PRIME, count)


def chance(factor: Any, shift: Any) -> Any:
    """The chance of a row as an expression: a whole number below the prime; null for null."""
    import narwhals as nw

    return (factor * nw.col(NUMBER) + shift) % PRIME


def numbered(frame: nw.LazyFrame[Any], split: Split) -> nw.LazyFrame[Any]:
    """Rows with the number of their unit."""
    return with_hash_number(frame, "unit", split.seed, NUMBER)


def divided(frame: nw.LazyFrame[Any], split: Split, time: int) -> nw.LazyFrame[Any]:
    """Numbered rows with the part they fall into the time-th time; null for rows without a unit."""
    import narwhals as nw

    # The first time it is the hash itself.
    factor, shift = (1 << 31 - BITS, 0) if time == 0 else (int(one[time]) for one in _factors(split))
    falls, part, reached = chance(factor, shift), nw.lit(0), 0.0
    for share in split.shares[:-1]:
        reached += share
        part = part + nw.when(falls >= round(reached * PRIME)).then(nw.lit(1)).otherwise(nw.lit(0))
    return frame.with_columns(nw.when(~nw.col(NUMBER).is_null()).then(part).alias("part")).drop(NUMBER)


def _factors(split: Split) -> tuple[IntArray, IntArray]:
    return drawn(split.seed, _SPLITTING, split.times)

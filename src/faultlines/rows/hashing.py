"""Random numbers that need no memory: a unit has a number h of its hash, and (a·h + b) mod p is random anew each time.

With a and b drawn anew, units fall anew: into parts of the data, or into shuffled groups. Rows of a unit fall together,
and they do so alike on every engine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from faultlines.engines.frames import hash_column
from faultlines.engines.protocol import HASH_BITS

if TYPE_CHECKING:
    import narwhals as nw

    from faultlines.engines.protocol import IntArray
    from faultlines.rows.request import Split

PRIME = 2**31 - 1
HASH = "hashed"  # the column of h
_SPLITTING = 0x5917  # the random stream of the factors of splits


def draw_factors(seed: int, stream: int, count: int) -> tuple[IntArray, IntArray]:
    """Draw factors a and shifts b, in a random stream of their own."""
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(stream,)))
    return rng.integers(1, PRIME, count), rng.integers(0, PRIME, count)


def random_number(factor: Any, shift: Any) -> Any:
    """The random number of a row as an expression: a whole number below the prime; null for null."""
    import narwhals as nw

    return (factor * nw.col(HASH) + shift) % PRIME


def hash_units(frame: nw.LazyFrame[Any], split: Split) -> nw.LazyFrame[Any]:
    """Add the number h of each row's unit."""
    return hash_column(frame, "unit", split.seed, HASH)


def assign_parts(frame: nw.LazyFrame[Any], split: Split, repetition: int) -> nw.LazyFrame[Any]:
    """Add the part that each hashed row falls into at a repetition of the split; null for rows without a unit."""
    import narwhals as nw

    factor, shift = 1 << 31 - HASH_BITS, 0  # the first time it is the hash itself
    if repetition:
        factors, shifts = draw_factors(split.seed, _SPLITTING, split.times)
        factor, shift = int(factors[repetition]), int(shifts[repetition])
    number, part, upper = random_number(factor, shift), nw.lit(0), 0.0
    for share in split.shares[:-1]:
        upper += share
        part = part + nw.when(number >= round(upper * PRIME)).then(nw.lit(1)).otherwise(nw.lit(0))
    return frame.with_columns(nw.when(~nw.col(HASH).is_null()).then(part).alias("part")).drop(HASH)

"""The gate: may this be launched? Yes, no, and "cannot tell", which is not yes."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

from faultlines.cli import streams
from faultlines.cli.exits import CANNOT_TELL, SPLIT
from faultlines.errors import NoGroupsError
from faultlines.estimates.labels import name_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from faultlines.clustering import Clustering
    from faultlines.decide.certificate import Certificate
    from faultlines.decide.confirm import Confirmation
    from faultlines.many import Many

_SHOWN = 3


@contextmanager
def gate(asked: bool) -> Iterator[None]:
    """Groups of which none can be used are an error, but where a gate was asked for they are no answer."""
    try:
        yield
    except NoGroupsError as error:
        if not asked:
            raise
        streams.tell(f"cannot tell: {error}")
        raise typer.Exit(CANNOT_TELL) from error


def answer(
    found: Sequence[Clustering], certificates: Sequence[Certificate | None] = (), *, fail_on_split: bool
) -> None:
    """End with the exit code of the gates that were asked for: 1 when one of them says no, 3 when one cannot tell.

    Args:
        found: The results.
        certificates: One for each, if they were asked for; none for a result that has only one group.
        fail_on_split: Whether clusters must not differ.
    """
    signed = [one for one in certificates if one is not None]
    found = [one for one in found if fail_on_split or (certificates and len(one.groups) < 2)]
    if any(one.rejected for one in found) or any(one.verdict == "differs" for one in signed):
        raise typer.Exit(SPLIT)
    doubts = [(one.groups.measure, doubt) for one in found if (doubt := _doubt(one))]
    several = max(len(found), len(certificates)) > 1
    doubts += [(one.measure, one.doubt) for one in signed if one.doubt]
    if doubts:
        told = [f"{measure}: {doubt}" if several else doubt for measure, doubt in doubts]
        streams.tell(f"cannot tell: {'; '.join(told)}")
        raise typer.Exit(CANNOT_TELL)


def answer_many(found: Many) -> None:
    """End with the gate's exit code over many experiments: 1 when clusters differ in one, 3 when one cannot tell."""
    if found.rejected:
        raise typer.Exit(SPLIT)
    doubts = [f"{name_of(one.label)}: {one.reason}" for one in found.excluded]
    doubts += [f"{name}: {doubt}" for name in found if (doubt := _doubt(found[name]))]
    if doubts:
        told = doubts[:_SHOWN] + ([f"… +{len(doubts) - _SHOWN} experiments"] if len(doubts) > _SHOWN else [])
        streams.tell(f"cannot tell: {'; '.join(told)}")
        raise typer.Exit(CANNOT_TELL)


def confirmed_or_exit(found: Confirmation) -> None:
    """End with the gate's exit code: 1 when clusters are not confirmed, 3 when the fresh data cannot tell."""
    if found.verdict == "cannot tell":
        streams.tell(f"cannot tell: {found.headline.removeprefix('Cannot tell: ')}")
        raise typer.Exit(CANNOT_TELL)
    if not found.confirmed:
        raise typer.Exit(SPLIT)


def _doubt(one: Clustering) -> str:
    """Why a result without clusters does not say that all groups are alike; "" where it does."""
    compared, left = len(one.groups), len(one.excluded)
    doubts = []
    if left:
        named = [f"{name_of(group.label)} ({group.reason})" for group in one.excluded[:_SHOWN]]
        named += [f"… +{left - _SHOWN}"] if left > _SHOWN else []
        was = "was" if left == 1 else "were"
        doubts.append(f"{left:,} of {compared + left:,} groups {was} left out: {', '.join(named)}")
    if compared == 1:
        doubts.append("only one group is left, nothing to compare it with")
    return "; ".join(doubts)

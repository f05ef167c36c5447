"""How to read a page, and what must not be concluded from it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from faultlines.show.written import observed_headers

if TYPE_CHECKING:
    from faultlines.result.decision import Harm
    from faultlines.result.summary import Summary


def reading(s: Summary, note: str | None) -> dict[str, list[str]]:
    """How to read the page, and what must not be concluded from it."""
    chance = f"{100 * s.alpha:g}%"
    if not s.guarantee.holds:
        sure = "The rule behind these clusters does not control the error: on pure noise it claims clusters too often."
    else:
        sure = f"If all groups were alike, two or more clusters would still be shown in at most {chance} of cases."
    apart = "Clusters differ as a whole; of two single groups on either side of a line this is not claimed."
    if note:
        sure = f"This is one of several results: {note}"
    read = [
        "Groups in one cluster could not be told apart." + (f" {apart}" if s.rejected else ""),
        sure,
        "p is the smallest level α at which there is more than one cluster. Each fault line has a p of its own.",
    ]
    read.append(_about_rules(s))
    dont = [
        "That groups in one cluster are equal. A difference may be there and be too small to be seen in these data.",
        "That every group is where it belongs. Hollow points are groups that could as well be in another cluster.",
        "That an attribute in a rule is the cause. It says where the difference is, not why.",
        f"That another level is as good. The claim is made at α = {s.alpha:g}; to move the slider until something "
        "shows is to choose the claim after the data.",
    ]
    if not s.rejected:
        dont.insert(
            0,
            "That there is no difference. None can be claimed; how large a one is not excluded is said at the top.",
        )
    return {"read": read, "dont": dont}


def about_effects(s: Summary, harm: Harm = ()) -> str:
    """Which effect of a cluster is what, in a line."""
    if s.estimates is None:
        return ""
    told = "Level: what the groups of a cluster have in common, their mean weighted by precision."
    if s.clusters[0].pooled.mixed:
        told = (
            "Level: what the groups of a cluster have in common; a group that could be in two clusters counts for "
            "both, so that they are not pushed apart."
        )
    if s.guarantee.intervals_hold:
        told += " It is from data that did not choose the cluster."
    if s.rejected and any(harm):
        told += " Worse off: its whole interval is on the adverse side of the effect on all people together."
    return f"{told} {_about_observed(s)}".strip()


def _about_observed(s: Summary) -> str:
    if not observed_headers(s):
        return ""
    how = "all their rows together, as a dashboard shows it"
    if s.readout is None or not s.readout.metric.adds_up:
        how = "its groups, weighted by their sizes"
    told = f"Observed: the effect on the people of a cluster, that of {how}"
    if s.rejected and not s.guarantee.intervals_hold:
        return f"{told}; the distance between clusters is exaggerated in it, because the same data chose them."
    return f"{told}."


def _about_rules(s: Summary) -> str:
    counted = s.population.counted
    rules = (
        "A rule says in short which groups a cluster holds; no group is in two rules. Where it is not exact, it "
        f"matches a share of its {counted}: of the {counted} it describes, so many are in the cluster. And it covers a "
        f"share of the cluster: of the {counted} in the cluster, so many are described. Where either is less than "
        "half, no rule is shown."
    )
    return rules + (" It does not speak of groups that were left out." if s.excluded else "")

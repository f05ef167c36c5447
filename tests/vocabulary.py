"""The words that the style guide replaces, one list for strings of the source and for pages.

Left of the table in the style guide stands what to say: outlier group, minimum detectable difference, membership
probability, report a difference. Words of its right column that also have a plain meaning (label, part, level, key,
side, answer) are not in the list.
"""

from __future__ import annotations

import re

REPLACED = re.compile(
    r"\b("
    r"lone groups?|stands? apart|(?:told|tells?|telling) apart|alike|"  # outlier group, distinguish, equal
    r"level by level|levels? of (?:a|the|its) clusters?|plain readouts?|"  # cluster effect, observed effect
    r"to believe|others teach|"  # shrunken estimate
    r"chances?|unsure|could be in another|"  # probability, uncertain membership
    r"(?:the|its) reach|would have been seen|unseen|not excluded|"  # minimum detectable difference, not ruled out
    r"cannot tell|signed off|"  # inconclusive, certificate
    r"promises?|what a split may rest on|"  # error control
    r"left out|leaves out|"  # excluded, dropped
    r"(?:false )?claim(?:s|ed|ing)?|may be said|"  # report a difference, false positive
    r"first release|notions?|mend(?:s|ed)?|held against|whom|one row a group"
    r")\b",
    re.IGNORECASE,
)

"""For mkdocstrings: a section `Example` of our docstrings is one of examples, shown as code."""

from __future__ import annotations

import re
from typing import Any

import griffe


class Examples(griffe.Extension):  # type: ignore[misc, unused-ignore]
    """Read `Example:` as `Examples:`, the only heading whose doctests are shown as code."""

    def on_object(self, *, obj: Any, **_: Any) -> None:
        """Rename the heading in the docstring of anything that has one."""
        if obj.docstring is not None:
            obj.docstring.value = re.sub(r"^Example:$", "Examples:", obj.docstring.value, flags=re.MULTILINE)

"""JSON inside a script element of a page: nothing in it can end the element."""

from __future__ import annotations

import json


def script_json(value: object) -> str:
    """A value as JSON that can stand in a script element."""
    return script_safe(json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")))


def script_safe(written: str) -> str:
    """JSON with what HTML could read replaced by escapes that mean the same."""
    return written.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")

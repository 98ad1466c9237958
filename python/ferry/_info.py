"""What this build of Ferry has in it."""

from __future__ import annotations

from typing import Any

from . import _ferry


def build_info() -> dict[str, Any]:
    """What was built: "version", and "command": whether the `ferry` command came with the package."""
    return _ferry.build_info()

"""Arguments of newer and of other versions of DeepEP."""

from __future__ import annotations

from typing import Any


def refuse_unknown(call: str, given: dict[str, Any]) -> None:
    """Takes arguments that ask for nothing. Raises NotImplementedError that names the first one that does."""
    for name, value in given.items():
        is_neutral = value is None or isinstance(value, (bool, int, float, str)) and not value
        if not is_neutral:
            raise NotImplementedError(f"{call}({name}=...): deep_ep on Ferry does not have {name}; leave it out")

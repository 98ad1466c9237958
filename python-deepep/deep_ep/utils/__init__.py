"""Events, and what else programs import from here."""

from typing import Any

from .event import EventHandle, EventOverlap

__all__ = ["EventHandle", "EventOverlap", "check_nvlink_connections"]


def check_nvlink_connections(group: Any) -> None:
    """Checks nothing: a world says which GPUs cannot reach each other when it is made."""

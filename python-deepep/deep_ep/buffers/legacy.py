"""Buffer by the name of DeepEP's module."""

from .._config import Config
from ..buffer import Buffer
from ..utils.event import EventHandle, EventOverlap

__all__ = ["Buffer", "Config", "EventHandle", "EventOverlap"]

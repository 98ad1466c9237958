"""What programs import from DeepEP's compiled module by name."""

from .utils.event import EventHandle

__all__ = ["EventHandle"]

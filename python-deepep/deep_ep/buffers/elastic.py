"""ElasticBuffer by the name of DeepEP's module."""

from .._ep_handle import EPHandle
from ..elastic import ElasticBuffer
from ..utils.event import EventHandle, EventOverlap

__all__ = ["EPHandle", "ElasticBuffer", "EventHandle", "EventOverlap"]

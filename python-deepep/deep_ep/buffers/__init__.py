"""Where DeepEP 2 keeps its buffers: callers import them from here, too."""

from .elastic import ElasticBuffer, EPHandle
from .legacy import Buffer

__all__ = ["Buffer", "EPHandle", "ElasticBuffer"]

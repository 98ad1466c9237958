"""DeepEP's Python interface on Ferry's exchanges. docs/deep-ep.md says what works."""

import torch

from . import buffers
from ._config import Config
from ._ep_handle import EPHandle
from .buffer import Buffer
from .elastic import ElasticBuffer
from .utils import EventHandle, EventOverlap, check_nvlink_connections

#: The type of expert ids that callers cast theirs to. int32 ids are taken, too.
topk_idx_t = torch.int64
#: Of the DeepEP whose interface this is: callers look at it.
__version__ = "2.1.0+ferry"

__all__ = ["Buffer", "Config", "EPHandle", "ElasticBuffer", "EventHandle", "EventOverlap", "__version__", "buffers",
           "check_nvlink_connections", "topk_idx_t"]

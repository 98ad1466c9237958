"""DeepEP's Python interface on Ferry's exchanges. docs/deep-ep.md says what works."""

import torch

from ._config import Config
from ._ep_handle import EPHandle
from .buffer import Buffer
from .elastic import ElasticBuffer
from .utils import EventHandle, EventOverlap, check_nvlink_connections

#: The type of expert ids that callers cast theirs to. int32 ids are taken, too.
topk_idx_t = torch.int64

__all__ = ["Buffer", "Config", "EPHandle", "ElasticBuffer", "EventHandle", "EventOverlap", "check_nvlink_connections", "topk_idx_t"]

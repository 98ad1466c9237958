"""What programs import from DeepEP's compiled module by name."""

import torch

from ._config import Config
from .utils.event import EventHandle

__all__ = ["Config", "EventHandle", "topk_idx_t"]

#: The type of expert ids that callers cast theirs to. int32 ids are taken, too.
topk_idx_t = torch.int64

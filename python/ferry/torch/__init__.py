"""Ferry for PyTorch: dispatch and combine on tensors, with gradients, under torch.compile, and a layer of experts.

Needs torch, which `import ferry` does not. docs/torch.md teaches it.
"""

from ._arrivals import Arrivals
from ._exchange import Exchange
from ._functions import Rows, combine, dispatch
from ._group import world_of_group
from ._layer import MoELayer, TopKRouter, swiglu

__all__ = ["Arrivals", "Exchange", "MoELayer", "Rows", "TopKRouter", "combine", "dispatch", "swiglu", "world_of_group"]

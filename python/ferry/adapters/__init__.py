"""Engines on Ferry: torchtitan, vLLM, SGLang. Each adapter is a module that its engine imports, and needs that engine.

Importing ferry.adapters imports none of them. docs/engines.md says how to turn each on.
"""

from __future__ import annotations


def release(*, deadline: float | None = None) -> None:
    """Gives back the memory of all exchanges that adapters made in this process, until restore(): for a sleep mode.

    Collective: every rank of the engine calls it, when no layer runs. CUDA graphs stay good, and none may run before
    restore(). `deadline`: seconds of each wait. Raises as ferry.Exchange.release.
    """
    from ._shared import open_exchanges
    for exchange in open_exchanges():
        exchange.release(deadline=deadline)


def restore(*, deadline: float | None = None) -> None:
    """Takes the memory again, at the same addresses. Collective; after release()."""
    from ._shared import open_exchanges
    for exchange in open_exchanges():
        exchange.restore(deadline=deadline)

"""The memory of an exchange: how much there is, and who has it."""

from __future__ import annotations

from typing import Any

from . import _ferry
from ._arrays import Array
from ._errors import InvalidArgument
from ._world import World


class WithMemory:
    """What an Exchange does with its memory."""

    _core: _ferry.Exchange
    _world: World
    _shares: list[WithMemory] | None = None  # the exchanges that share this memory; None: nobody does

    def _number(self, stream: Any, array: Array) -> int:
        raise NotImplementedError

    @property
    def memory_bytes(self) -> int:
        """Memory that the exchange allocated on this rank; between release and restore what stays of it.

        Of exchanges that share a memory the oldest counts all of it, and the others 0.
        """
        return self._core.memory_bytes

    def release(self, *, deadline: float | None = None, stream: Any = None) -> None:
        """Gives the memory of the slots back until restore(), as a sleep mode does. Collective.

        Nothing may be half done: OutOfOrder on all ranks. Addresses stay, so captured CUDA graphs, handles and
        arrival_slots() are good again after restore(). Until then every call but check() raises OutOfOrder, and no
        graph may run. On a GPU it waits for all work of the GPU. Raises Unsupported where capabilities()["release"] of
        the world is False (OpenSHMEM, NVSHMEM).
        """
        self._core.release((deadline, self._number(stream, None), 0))

    def restore(self, *, deadline: float | None = None, stream: Any = None) -> None:
        """Takes as much memory again at the same addresses. Collective; after release()."""
        self._core.restore((deadline, self._number(stream, None), 0))

    def take_memory(self, *, deadline: float | None = None, stream: Any = None) -> None:
        """Takes the memory that this exchange shares (memory_of) from the one that has it. Collective.

        Nothing of that one may be half done: OutOfOrder on all ranks. Captured CUDA graphs, handles and arrival_slots()
        of both stay good, and those of the one without the memory wait: every call of it but this one and check()
        raises OutOfOrder, and no graph of it may run. On a GPU it waits for all work of the GPU. Does nothing where this
        exchange has the memory. Exchanges that share one are called and closed by one thread at a time.
        """
        self._core.take_memory((deadline, self._number(stream, None), 0))


def share(exchange: WithMemory, memory_of: WithMemory | None) -> None:
    """Exchanges in one memory live until close(), or until nobody has any of them: none may end, on whichever thread
    collects it, while another one is in a call."""
    if memory_of is not None:
        if memory_of._shares is None:
            memory_of._shares = [memory_of]
        exchange._shares = memory_of._shares
        exchange._shares.append(exchange)


def leave(exchange: WithMemory) -> None:
    """The exchange is closed."""
    if exchange._shares is not None:
        exchange._shares[:] = [each for each in exchange._shares if each is not exchange]
        exchange._shares = None


def core_of(memory_of: WithMemory | None, world: World) -> _ferry.Exchange | None:
    """What lends its memory to a new exchange of this world; None: nobody does."""
    if memory_of is None:
        return None
    if not isinstance(memory_of, WithMemory):
        raise TypeError(f"memory_of is {memory_of!r}; it must be a ferry.Exchange of this world, or None")
    if memory_of._core.closed:
        raise InvalidArgument("memory_of is closed; give an exchange that is open")
    if memory_of._world is not world:
        raise InvalidArgument("memory_of is an exchange of another world; give one that was made in this world")
    return memory_of._core

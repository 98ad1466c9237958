"""Worlds, and running a function on every rank of one."""

from __future__ import annotations

import contextlib
import queue
import threading
from typing import Any, Callable, Iterable, NoReturn, Sequence, TypeVar

from . import _ferry, _processes, _transports
from ._arguments import flag, function, int32, require, seconds, several, text
from ._errors import Closed, InvalidArgument, OutOfOrder, PeerMissing
from ._processes import AllGather

T = TypeVar("T")


class World:
    """One rank's end of a world: the ranks that can exchange.

    Ranks that are threads of this process: make_thread_worlds makes their worlds, and run_ranks hands one to each.
    Ranks that are processes: from_env, from_all_gather and connect make this process's end; each is collective, and
    what a launcher has put into the environment says what is left out. Of many hosts: from_shmem, from_nvshmem.
    `device` is what this rank runs on: "cpu", or a GPU of its own, "cuda:1"; "cuda" is this process's only one, or that
    of its local rank (docs/gpu/processes.md).
    `deadline`: seconds for all processes to come; None: 30. They raise PeerMissing that names a process that does not
    come, InvalidArgument where two processes have the same rank or differ in the number of ranks, and Unsupported
    where they are of several hosts.

    One thread at a time may be in a call; abort may come from any thread. A World is a context manager: leaving it
    closes this rank's end, which waits for nobody. Exchanges that are still open keep what they need of it.
    """

    def __init__(self, core: _ferry.World) -> None:
        made_by = "what run_ranks, make_thread_worlds, from_env and the like make"
        self._core: _ferry.World = require("core", core, isinstance(core, _ferry.World), made_by)

    @classmethod
    def from_env(cls, *, device: str = "cpu", share_gpus: bool = False, deadline: float | None = None) -> World:
        """This process of a job that torchrun, srun or mpirun started: they meet at an address.

        Rank and size are RANK and WORLD_SIZE, or those of Open MPI, MPICH and Slurm. The address is FERRY_ADDRESS, or
        MASTER_ADDR with the port after MASTER_PORT, or the first node of Slurm's step (ferry/processes.h).

        `share_gpus`: several processes may have the same GPU, and take turns there, for tests; all of them set it.
        """
        return cls(_processes.open_world(_processes.place(), device, share_gpus, None, deadline))

    @classmethod
    def from_all_gather(cls, rank: int, size: int, all_gather: AllGather, *, device: str = "cpu", local_rank: int = -1,
                        share_gpus: bool = False, deadline: float | None = None) -> World:
        """This process of a group that the caller has, as torch.distributed's or MPI's.

        `all_gather(mine)` is called once, on this thread: it takes bytes, as many on each rank, and returns those of
        all in rank order, as a list or in one piece. `local_rank`: among the processes of this host.
        `share_gpus`: as for from_env.
        """
        place = _processes.place(rank=rank, size=size, local_rank=local_rank)
        function("all_gather", all_gather)
        return cls(_processes.open_world(place, device, share_gpus, all_gather, deadline))

    @classmethod
    def connect(cls, address: str, rank: int, size: int, *, device: str = "cpu", local_rank: int = -1, job: str = "",
                share_gpus: bool = False, deadline: float | None = None) -> World:
        """This process of a job that meets at `address`, "host:port", where rank 0 listens.

        Processes whose texts `job` differ never meet. `local_rank`: among the processes of this host.
        `share_gpus`: as for from_env.
        """
        place = _processes.place(address=address, rank=rank, size=size, local_rank=local_rank, job=job)
        return cls(_processes.open_world(place, device, share_gpus, None, deadline))

    @classmethod
    def from_shmem(cls, *, nodes: int = 1, heap_bytes: int = 0, deadline: float | None = None) -> World:
        """This process of a job that oshrun started, on CPUs of one host or of many: over OpenSHMEM.

        nodes       ranks of different logical nodes use puts even where they share memory: so many runs of ranks
        heap_bytes  symmetric memory of this process, for all exchanges that live at one time, the same in every process;
                    0: what SHMEM_SYMMETRIC_HEAP_SIZE says, else a share of the machine's memory. The first call's counts
        deadline    seconds for all processes to come; None: 60 for the job to start, 30 for a world

        The job starts with the first call, and ends when Python does: worlds and exchanges that are still open are
        closed then, and the processes wait for each other. A process that an exception ends, or that has missed a rank,
        leaves without that.

        Raises Unsupported in a build without OpenSHMEM, and where no launcher started this process (docs/multi-host.md).
        """
        world = cls(_transports.open_shmem_world(int32("nodes", nodes), heap_bytes, deadline))
        _transports.close_at_end(world)
        return world

    @classmethod
    def from_nvshmem(cls, *, rank: int = -1, size: int = 0, address: str = "", all_gather: AllGather | None = None,
                     local_rank: int = -1, device: str = "cuda", nodes: int = 0, ranks_per_node: int = 0,
                     heap_bytes: int = 2 << 30, share_gpus: bool = False, deadline: float | None = None) -> World:
        """This process of a job with a GPU each, on one host or on many: over NVSHMEM.

        They meet at `address`, or by `all_gather`; what is left out comes from the environment, as for from_env.

        nodes           logical nodes, runs of ranks; 0: ranks_per_node says
        ranks_per_node  0: ranks whose memory NVSHMEM can map are a node
        heap_bytes      symmetric memory for all exchanges of this world, on each rank
        share_gpus      as for from_env

        A process makes one such world. Raises Unsupported in a build without NVSHMEM, where it does not start, and
        where there is no GPU. The extra nvshmem installs NVSHMEM; how to build with it: docs/multi-host-gpus.md.
        """
        place = _processes.place(address=address, rank=rank, size=size, local_rank=local_rank)
        split = (int32("nodes", nodes), int32("ranks_per_node", ranks_per_node), heap_bytes,
                 flag("share_gpus", share_gpus))
        return cls(_transports.open_nvshmem_world(place, _processes.gpu_named(device), split, all_gather, deadline))

    @property
    def rank(self) -> int:
        """This rank, 0 .. size-1."""
        return self._core.rank

    @property
    def size(self) -> int:
        """How many ranks there are."""
        return self._core.size

    @property
    def kind(self) -> str:
        """Who the ranks are: "threads", "processes", "shmem"; with a GPU each "cuda", "cuda_processes", "nvshmem"."""
        return self._core.kind

    @property
    def device(self) -> str:
        """Where the arrays of its exchanges lie: "cpu", "cuda:1"."""
        return self._core.device

    @property
    def closed(self) -> bool:
        return self._core.closed

    def capabilities(self) -> dict[str, Any]:
        """What exchanges of this world can do, by the names of ferry::WorldCapabilities; row_orders: a list of names."""
        return self._core.capabilities()

    def barrier(self, *, mask: Iterable[int] = (), deadline: float | None = None) -> None:
        """Collective: returns when all ranks have come but those of `mask`. `deadline` in seconds; None: 30.

        Raises PeerMissing.
        """
        self._core.barrier(several("mask", mask, "numbers of ranks"), seconds("deadline", deadline))

    def all_gather(self, mine: bytes, *, mask: Iterable[int] = (), deadline: float | None = None) -> list[bytes]:
        """Collective: the bytes of all ranks, in rank order. All give as many. Raises PeerMissing."""
        require("mine", mine, isinstance(mine, bytes), "bytes")
        return self._core.all_gather(mine, several("mask", mask, "numbers of ranks"), seconds("deadline", deadline))

    def abort(self, reason: str, missing_rank: int = -1) -> None:
        """Says that this rank takes no further part: the calls of the others raise Aborted with the reason, at once.

        Not collective, and from any thread. If this rank only gives up because another one is missing, `missing_rank`
        is that one, and the others name it.
        """
        self._core.abort(text("reason", reason), int32("missing_rank", missing_rank))

    def close(self) -> None:
        """Lets go of this rank's end. Local; a second close does nothing."""
        self._core.close()

    def __enter__(self) -> World:
        return self

    def __exit__(self, kind: object, error: BaseException | None, *_: object) -> None:
        if error is not None:
            with contextlib.suppress(Closed, OutOfOrder):  # close() says what there is to say of a fork
                self.abort(_reason_of(error), error.rank if isinstance(error, PeerMissing) else -1)
        self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a World cannot be pickled: it is this process's end of a world; make one where it is used")

    def __repr__(self) -> str:
        return "<ferry.World, closed>" if self.closed else f"<ferry.World of {self.kind}, rank {self.rank} of {self.size}>"


def _reason_of(error: BaseException) -> str:
    """What the other ranks are told, in characters that travel."""
    try:
        text = f"{type(error).__name__}: {error}"
    except Exception:  # pylint: disable=broad-except
        text = type(error).__name__
    return text.encode("utf-8", "replace").decode()


def make_thread_worlds(ranks: int) -> list[World]:
    """`ranks` ranks, 1 to 72, as threads of this process: element r is for the thread that plays rank r."""
    return [World(core) for core in _ferry.make_thread_worlds(int32("ranks", ranks))]


def cuda_devices() -> int:
    """GPUs that this process sees; 0 where there is no driver, and in a build without GPUs."""
    return _ferry.num_cuda_devices()


def cuda_worlds(ranks: int, *, devices: Sequence[int] | None = None, staged: bool = False) -> list[World]:
    """`ranks` ranks as threads of this process with a GPU each, which reach each other's memory: element r is for the
    thread that plays rank r.

    devices  the GPU of each rank; None: rank r has GPU r. A GPU may come several times, for tests: each of its ranks
             needs streams of its own then (include/ferry/cuda/cuda_world.h)
    staged   exchanges take arrays in host memory, and copy them; for tests

    Raises InvalidArgument where a GPU does not exist, and Unsupported that names two GPUs that cannot reach each other,
    or in a build without GPUs (build_info).
    """
    ranks = int32("ranks", ranks)
    chosen = list(range(ranks)) if devices is None else [
        int32("a GPU of devices", device) for device in several("devices", devices, "numbers of GPUs")]
    if len(chosen) != ranks:
        raise InvalidArgument(f"devices has {len(chosen)} GPUs; it must name one for each of {ranks} ranks")
    return [World(core) for core in _ferry.make_cuda_worlds(chosen, flag("staged", staged))]


def run_ranks(ranks: int, body: Callable[[World], T], *, device: str = "cpu") -> list[T]:
    """Runs body(world) once for each of `ranks` ranks, each on a thread of its own; what they return, in rank order.

    device "cuda": rank r has GPU r, as of cuda_worlds.

    If a body raises, its world is aborted with the text of the exception, so that no other rank waits for it, and the
    exception comes out of this call: of several the first that did not merely follow from another rank's. Ctrl-C
    aborts all ranks, waits until the bodies have ended, and raises KeyboardInterrupt. A body that computes and makes no
    call of Ferry goes on to its end; a second Ctrl-C leaves such bodies to themselves.
    """
    if device not in ("cpu", "cuda"):
        raise InvalidArgument(f"device is {device!r}; it must be cpu or cuda")
    function("body", body)
    worlds = make_thread_worlds(ranks) if device == "cpu" else cuda_worlds(ranks)
    try:
        results = run_worlds(worlds, body)
    except BaseException:
        for world in worlds:
            with contextlib.suppress(RuntimeError):  # in use still, where a second Ctrl-C left the bodies to themselves
                world.close()
        raise
    for world in worlds:
        world.close()
    return results


def run_worlds(worlds: Sequence[World], body: Callable[[World], T]) -> list[T]:
    """As run_ranks, on worlds that the caller has made and keeps."""
    for world in several("worlds", worlds, "a list of ferry.World"):
        require("an element of worlds", world, isinstance(world, World), "a ferry.World")
    function("body", body)
    results: dict[int, T] = {}
    errors: list[BaseException] = []
    finished: queue.SimpleQueue[int] = queue.SimpleQueue()

    def run(place: int, world: World) -> None:
        try:
            results[place] = body(world)
        except BaseException as error:  # pylint: disable=broad-except
            errors.append(error)
            with contextlib.suppress(Closed):  # the body closed it, and has told the others if it raised in its scope
                world.abort(_reason_of(error), error.rank if isinstance(error, PeerMissing) else -1)
        finally:
            finished.put(place)

    threads = [threading.Thread(target=run, args=(place, world), name=f"ferry rank {place}", daemon=True)
               for place, world in enumerate(worlds)]
    _run_all(threads, finished, worlds)
    if errors:
        raise next((error for error in errors if not isinstance(error, PeerMissing)), errors[0])
    return [results[place] for place in range(len(worlds))]


def _run_all(threads: Sequence[threading.Thread], finished: queue.SimpleQueue[int], worlds: Sequence[World]) -> None:
    """Starts the threads and waits until all have finished. What interrupts this thread ends the waits of all ranks."""
    started = done = 0
    try:
        for thread in threads:
            thread.start()
            started += 1
        while done < started:  # an interrupted join() may take its thread for ended (Python 3.11)
            finished.get()
            done += 1
    except BaseException as error:
        for world in worlds:
            with contextlib.suppress(Closed):  # its calls end at their deadlines
                world.abort(type(error).__name__)
        while done < started:
            finished.get()
            done += 1
        raise
    for thread in threads:
        thread.join()

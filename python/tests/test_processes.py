"""Ranks that are processes: how they meet, rounds beside the oracle, and what becomes of the others where one ends."""

import itertools
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import ferry
import process_state
from oracle import make_layer
from rank_processes import Ranks, free_port, run

LAYER = make_layer(3, 10, 2, 64, [5, 0, 7])


def connect(port, rank, size, **options):
    return ferry.World.connect(f"127.0.0.1:{port}", rank, size, **options)


def check_rounds(world, layer=LAYER):
    """Every row and every sum is the oracle's. Expert e multiplies by e + 1."""
    rank = world.rank
    for reduction in ("by_rank", "exact"):
        at_dispatch = layer.weights[rank] if reduction == "by_rank" else None
        at_combine = {} if reduction == "by_rank" else {"topk_weights": layer.weights[rank]}
        with ferry.Exchange(world, experts=layer.experts, top_k=layer.top_k, max_tokens=8, hidden=layer.hidden,
                            reduction=reduction, result_format="f32") as exchange:
            for _ in range(3):
                arrivals = exchange.dispatch(layer.tokens[rank], layer.ids[rank], at_dispatch)
                values = arrivals.values()
                assert len(values) == len(layer.rows_of(rank))
                for row, (expert, source, token, k) in enumerate(layer.rows_of(rank)):
                    assert tuple(arrivals.src_info[row]) == (token, k)
                    assert (values[row] == layer.tokens[source][token]).all()
                    values[row] *= expert + 1
                sums = exchange.combine(values, **at_combine)
                np.testing.assert_allclose(sums, layer.sums(rank, lambda expert: expert + 1), rtol=1e-5, atol=1e-4)


def by_address(rank, size, port):
    with connect(port, rank, size) as world:
        assert (world.rank, world.size, world.kind, world.closed) == (rank, size, "processes", False)
        assert world.all_gather(bytes([rank] * 3)) == [bytes([each] * 3) for each in range(size)]
        check_rounds(world)
        world.barrier()
    return world.closed


def test_processes_that_meet_at_an_address():
    assert run(3, by_address, free_port()) == [True] * 3


def from_env(rank, size, variables):
    os.environ.update({name: value.format(rank=rank, size=size) for name, value in variables.items()})
    with ferry.World.from_env() as world:
        assert (world.rank, world.size) == (rank, size)
        check_rounds(world)


TORCHRUN = {"RANK": "{rank}", "LOCAL_RANK": "{rank}", "WORLD_SIZE": "{size}", "MASTER_ADDR": "127.0.0.1"}
SLURM = {"SLURM_PROCID": "{rank}", "SLURM_LOCALID": "{rank}", "SLURM_NTASKS": "{size}"}


@pytest.mark.parametrize("launcher", ["torchrun", "slurm"])
def test_processes_of_a_launcher(launcher):
    port = free_port()
    variables = {**TORCHRUN, "MASTER_PORT": str(port - 1)} if launcher == "torchrun" else {
        **SLURM, "FERRY_ADDRESS": f"127.0.0.1:{port}"}
    run(3, from_env, variables)


def test_an_environment_without_a_job_is_refused():
    with pytest.raises(ferry.InvalidArgument, match="RANK"):
        ferry.World.from_env()
    with pytest.raises(ferry.InvalidArgument, match="'tpu'"):
        ferry.World.connect("127.0.0.1:1", 0, 1, device="tpu")


class Group:
    """A process group of the caller's; its ranks are threads here."""

    def __init__(self, size):
        self.parts = [b""] * size
        self.meet = threading.Barrier(size)

    def all_gather(self, rank, mine):
        self.parts[rank] = mine
        self.meet.wait()
        return list(self.parts)


def on_threads(size, body):
    results, errors = [None] * size, []

    def play(rank):
        try:
            results[rank] = body(rank)
        except BaseException as error:  # pylint: disable=broad-except
            errors.append(error)

    threads = [threading.Thread(target=play, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results


@pytest.mark.parametrize("joined", [False, True])
def test_processes_of_a_group(joined):
    group, seen = Group(3), set()

    def body(rank):
        def all_gather(mine):
            seen.add((rank, threading.get_ident()))
            parts = group.all_gather(rank, mine)
            return b"".join(parts) if joined else parts

        with ferry.World.from_all_gather(rank, 3, all_gather) as world:
            check_rounds(world)
        return rank, threading.get_ident()

    assert set(on_threads(3, body)) == seen


def test_what_all_gather_raises_and_what_it_gives_wrongly():
    class Mine(Exception):
        pass

    def fails(mine):
        raise Mine(len(mine))

    for gather, error, words in [(fails, Mine, "[0-9]"), (lambda mine: [mine[1:]], ferry.InvalidArgument, "rank 0"),
                                 (lambda mine: mine + mine, ferry.InvalidArgument, "1 ranks"),
                                 (lambda mine: None, TypeError, "None"),
                                 (lambda mine: ["text"], TypeError, "all_gather gave for rank 0 is 'text'.* bytes"),
                                 (lambda mine: [len(mine)], TypeError, "all_gather gave for rank 0 is [0-9]+.* bytes")]:
        with pytest.raises(error, match=words):
            ferry.World.from_all_gather(0, 1, gather)


def test_bad_set_ups():
    port = free_port()

    def body(rank):
        with pytest.raises(ferry.Error) as raised:
            connect(port, rank, 4 if rank == 2 else 3, deadline=1.0)
        return raised.value

    errors = on_threads(3, body)
    assert isinstance(errors[0], ferry.PeerMissing) and errors[0].rank == 2 and "rank 2 of 4" in str(errors[0])
    assert isinstance(errors[1], ferry.PeerMissing) and errors[1].rank == 2
    assert isinstance(errors[2], ferry.InvalidArgument) and "4" in str(errors[2])
    with pytest.raises(ferry.InvalidArgument, match="73 ranks"):
        connect(port, 0, 73)
    with pytest.raises(ferry.InvalidArgument, match="nowhere"):
        ferry.World.connect("nowhere", 0, 2)


VICTIM = 1


def lose_a_rank(rank, size, port, when, sent):
    with connect(port, rank, size) as world:
        check_rounds(world)
        with ferry.Exchange(world, experts=6, top_k=2, max_tokens=4, hidden=64, deadline=60.0 if sent == 9 else 1.0
                            ) as exchange:
            ids = np.array([[0, 5], [3, 1]], np.int32)
            world.barrier()
            if rank == VICTIM and when == "dispatch":
                os.kill(os.getpid(), sent)
            began = time.monotonic()
            with pytest.raises(ferry.PeerMissing) as raised:
                arrivals = exchange.dispatch(np.ones((2, 64), np.float32), ids)
                if rank == VICTIM:
                    os.kill(os.getpid(), sent)
                began = time.monotonic()
                exchange.combine(arrivals.values())
        error, seconds = raised.value, time.monotonic() - began
        with ferry.Exchange(world, experts=6, top_k=2, max_tokens=4, hidden=64, mask=[VICTIM]) as exchange:
            sums = exchange.combine(exchange.dispatch(np.ones((2, 64), np.float32), ids).values())
        return error.rank, error.my_rank, seconds, [float(value) for value in sums[:, 0]]


@pytest.mark.parametrize("when", ["dispatch", "combine"])
@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGSTOP])
def test_a_rank_that_ends_or_stops_is_named_and_the_others_go_on(when, sent):
    with Ranks(3, lose_a_rank, free_port(), when, int(sent)) as ranks:
        for rank in (0, 2):
            missing, mine, seconds, _ = ranks.result(rank)
            assert (missing, mine) == (VICTIM, rank)
            assert seconds < 30


def abort_and_wait(rank, size, port, reason):
    with connect(port, rank, size) as world:
        if rank == VICTIM:
            world.abort(reason)
            return None
        with pytest.raises(ferry.Aborted) as raised:
            world.barrier(deadline=60)
        return raised.value.rank, raised.value.reason


def test_an_abort_reaches_other_processes():
    assert run(3, abort_and_wait, free_port(), "out of patience") == [
        (VICTIM, "out of patience") if rank != VICTIM else None for rank in range(3)]


def test_a_long_reason_of_an_abort_may_be_cut_within_a_character():
    found = run(2, abort_and_wait, free_port(), "Fehler: " + "\u00fc" * 200 + "\u20ac" * 100)
    assert found[1 - VICTIM][0] == VICTIM and found[1 - VICTIM][1].startswith("Fehler: \u00fc")


def many_worlds(rank, size, port):
    tokens, ids = np.ones((2, 64), np.float32), np.array([[0, 5], [3, 1]], np.int32)
    before = None
    for number in range(100):
        with connect(port, rank, size, job=str(number)) as world:
            with ferry.Exchange(world, experts=6, top_k=2, max_tokens=4, hidden=64) as exchange:
                exchange.combine(exchange.dispatch(tokens, ids).values())
        before = before or process_state.open_files_and_mappings()
    return before, process_state.open_files_and_mappings()


def test_nothing_is_left_of_a_hundred_worlds_of_processes():
    for before, after in run(2, many_worlds, free_port()):
        assert before == after and after[1] == 0


def test_nothing_is_left_of_a_thousand_worlds_of_threads_some_of_which_fail():
    tokens, ids = np.ones((2, 64), np.float32), np.array([[0, 5], [3, 1]], np.int32)

    def body(world):
        with ferry.Exchange(world, experts=6, top_k=2, max_tokens=4, hidden=64) as exchange:
            return exchange.combine(exchange.dispatch(tokens, ids).values())[0, 0]

    def misses(world):
        with ferry.Exchange(world, experts=6, top_k=2, max_tokens=4, hidden=64, deadline=0.01) as exchange:
            if world.rank == 1:
                exchange.dispatch(tokens, ids)

    def refused(world):
        with ferry.Exchange(world, experts=6, top_k=2, max_tokens=4, hidden=64) as exchange:
            exchange.dispatch(tokens[:, :32], ids)

    numbers = itertools.count()

    def once():
        number = next(numbers) % 10
        if number == 3:
            with pytest.raises(ferry.PeerMissing, match="rank 0 is missing"):
                ferry.run_ranks(2, misses)
        elif number == 7:
            with pytest.raises(ValueError, match="tokens"):
                ferry.run_ranks(2, refused)
        else:
            ferry.run_ranks(2, body)

    process_state.require_unchanged(once, 1000)
    assert ferry.run_ranks(2, body) == [2, 2]


def start_script(text, *arguments):
    return subprocess.Popen([sys.executable, "-W", "error", "-c", text, *map(str, arguments)], stdout=subprocess.PIPE,
                            text=True, cwd=pathlib.Path(__file__).parent)


INTERRUPTED = """
import signal, sys, time, numpy as np, ferry
from test_processes import connect
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
where, port, rank = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
if where == "set_up":
    print("waiting", flush=True)
try:
    world = connect(port, rank, 2, deadline=600)
    exchange = ferry.Exchange(world, experts=2, top_k=1, max_tokens=1, hidden=32, deadline=600)
    print("waiting", flush=True)
    while where == "other":  # until it hears of the abort
        time.sleep(1.5)
        world.barrier(deadline=60)
    if where == "barrier":
        world.barrier(deadline=600)
    if where == "dispatch":
        exchange.dispatch(np.ones((1, 32), np.float32), np.zeros((1, 1), np.int32))
except KeyboardInterrupt:
    print("interrupted")
except ferry.Aborted as error:
    print(error.rank, error.reason)
"""


@pytest.mark.parametrize("where", ["set_up", "barrier", "dispatch"])
def test_ctrl_c_ends_a_wait_for_other_processes(where):
    port = free_port()
    with start_script(INTERRUPTED, where, port, 0) as waiting:
        other = start_script(INTERRUPTED, "other", port, 1) if where != "set_up" else None
        assert waiting.stdout.readline() == "waiting\n"
        time.sleep(0.3)
        waiting.send_signal(signal.SIGINT)
        out, _ = waiting.communicate(timeout=60)
        assert (waiting.returncode, out) == (0, "interrupted\n")
        if other:
            with other:
                out, _ = other.communicate(timeout=60)
            assert (other.returncode, out) == (0, "waiting\n0 interrupted by a signal\n")


TRIES_AGAIN = """
import importlib, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
rounds = getattr(importlib.import_module(sys.argv[1]), sys.argv[2])
port, rank, interrupted = map(int, sys.argv[3:])
if rank == interrupted:
    print("waiting", flush=True)
    try:
        rounds(rank, 2, port)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
print(rounds(rank, 2, port), flush=True)
"""


def require_next_try_after_ctrl_c(rounds, returned, rank, seconds):
    """rounds(rank, 2, port), a function of a module, waits in a process for the other rank, and gets SIGINT after so many
    seconds. Then both ranks call it, and it returns what is said: nothing takes the place of this rank, or listens where
    rank 0 does."""
    given = rounds.__module__, rounds.__name__, free_port()
    with start_script(TRIES_AGAIN, *given, rank, rank) as again:
        assert again.stdout.readline() == "waiting\n"
        time.sleep(seconds)
        again.send_signal(signal.SIGINT)
        assert again.stdout.readline() == "interrupted\n"
        with start_script(TRIES_AGAIN, *given, 1 - rank, rank) as other:
            for each in (again, other):
                out, _ = each.communicate(timeout=100)
                assert (each.returncode, out) == (0, f"{returned}\n")


def rounds_of_two(rank, size, port):
    with connect(port, rank, size, deadline=60) as world:
        check_rounds(world, make_layer(2, 4, 2, 32, [3, 2]))
    return world.closed


@pytest.mark.parametrize("rank", [0, 1])
def test_after_ctrl_c_while_a_world_is_made_the_next_try_succeeds(rank):
    require_next_try_after_ctrl_c(rounds_of_two, True, rank, 0.3)


def test_a_fork_is_refused_and_the_parent_goes_on():
    port = free_port()
    with start_script("""
import os, sys, warnings
from test_processes import connect, check_rounds
from oracle import make_layer
warnings.simplefilter("ignore")  # from Python 3.12 on fork() warns where there are threads
world = connect(sys.argv[1], 0, 1)
layer = make_layer(1, 4, 2, 32, [3])
check_rounds(world, layer)
pid = os.fork()
if pid == 0:
    refused = 0
    for call in (world.barrier, lambda: world.abort("a child of a fork")):
        try:
            call()
        except RuntimeError as error:
            refused += "fork" in str(error)
    os._exit(7 if refused == 2 else 1)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
check_rounds(world, layer)
print("well")
""", port) as child:
        out, _ = child.communicate(timeout=60)
    assert (child.returncode, out) == (0, "well\n")

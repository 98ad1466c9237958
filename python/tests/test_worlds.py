"""Worlds, errors, and what must neither crash nor hang."""

import os
import pathlib
import pickle
import re
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import ferry

SHAPE = dict(experts=8, top_k=2, max_tokens=4, hidden=64)
TOKENS, IDS = np.ones((2, 64), np.float32), np.array([[0, 7], [2, 5]], np.int32)


def test_capabilities_are_those_of_the_header():
    header = (pathlib.Path(__file__).parents[2] / "include/ferry/world.h").read_text()
    struct = header[header.index("struct WorldCapabilities"):]
    names = re.findall(r"^  (?:bool|RowOrders) (\w+)(?: =|\{)", struct[:struct.index("};")], re.MULTILINE)
    found = ferry.make_thread_worlds(1)[0].capabilities()
    assert sorted(found) == sorted(names)
    assert found["row_orders"] == ["by_expert", "by_source", "padded", "in_place"]
    assert all(isinstance(value, bool) for name, value in found.items() if name != "row_orders")


def test_ranks_and_results():
    assert ferry.run_ranks(3, lambda world: (world.rank, world.size, world.kind)) == [
        (rank, 3, "threads") for rank in range(3)]
    assert ferry.run_ranks(3, lambda world: world.all_gather(bytes([world.rank] * 2))) == [[b"\0\0", b"\1\1", b"\2\2"]] * 3


def test_the_exception_of_a_rank_comes_out():
    seen = []

    def body(world):
        with ferry.Exchange(world, **SHAPE) as exchange:
            if world.rank == 1:
                raise KeyError("mine")
            try:
                exchange.dispatch(TOKENS, IDS)
            except ferry.PeerMissing as error:
                seen.append(error)
                raise

    with pytest.raises(KeyError, match="mine"):
        ferry.run_ranks(4, body)
    # Nobody waited for the deadline.
    assert len(seen) == 3 and all(error.rank == 1 and error.absence != "late" for error in seen)


def test_a_rank_that_does_not_come_is_named():
    seen = {}

    def body(world):
        exchange = ferry.Exchange(world, **SHAPE, deadline=0.3)
        if world.rank != 2:
            with pytest.raises(ferry.PeerMissing) as raised:
                exchange.dispatch(TOKENS, IDS)
            seen[world.rank] = raised.value
            with pytest.raises(ferry.PeerMissing):
                exchange.dispatch(TOKENS, IDS)
        return exchange

    ferry.run_ranks(3, body)
    assert sorted(seen) == [0, 1]
    for rank, error in seen.items():
        assert (error.rank, error.my_rank, error.operation, error.absence) == (2, rank, "dispatch", "late")
        assert "2" in str(error) and isinstance(error, RuntimeError)


def test_an_abort_says_why():
    def body(world):
        if world.rank == 0:
            world.abort("out of memory")
            return None
        with pytest.raises(ferry.Aborted) as raised:
            world.barrier()
        return raised.value

    error = ferry.run_ranks(2, body)[1]
    assert error.rank == 0 and error.reason == "out of memory"


def test_shapes_that_differ_are_refused():
    def body(world):
        with pytest.raises(ferry.InvalidArgument, match="hidden"):
            ferry.Exchange(world, **{**SHAPE, "hidden": 64 * (1 + world.rank)})

    ferry.run_ranks(2, body)


def refuses(call, error, *words):
    with pytest.raises(error) as raised:
        call()
    assert all(word in str(raised.value) for word in words), raised.value


def test_bad_arguments_are_named():
    def body(world):
        with ferry.Exchange(world, **SHAPE) as exchange:
            refuses(lambda: exchange.combine(TOKENS), ferry.OutOfOrder, "combine")
            refuses(lambda: exchange.dispatch(TOKENS[:, :32], IDS), ValueError, "tokens", "[2, 32]", "64")
            refuses(lambda: exchange.dispatch(TOKENS.astype(np.float64), IDS), ValueError, "tokens", "f64")
            refuses(lambda: exchange.dispatch(TOKENS, IDS.astype(np.uint64)), TypeError, "topk_ids", "uint64")
            refuses(lambda: exchange.dispatch(TOKENS, IDS.tolist()), TypeError, "topk_ids", "list")
            refuses(lambda: exchange.dispatch(None, IDS), TypeError, "tokens")
            refuses(lambda: exchange.dispatch(TOKENS, IDS + 6), ValueError, "topk_ids", "13", "0 to 7")
            refuses(lambda: exchange.dispatch(TOKENS, IDS * 0), ValueError, "topk_ids")
            refuses(lambda: exchange.dispatch(TOKENS, np.asfortranarray(IDS)), ValueError, "topk_ids")
            refuses(lambda: exchange.dispatch(TOKENS, IDS, row_order="sideways"), ValueError, "sideways", "by_expert")
            refuses(lambda: exchange.dispatch(TOKENS, IDS, colour=1), TypeError, "colour")
            refuses(lambda: exchange.dispatch(TOKENS, IDS, deadline=-1), ValueError, "deadline", "-1")
            refuses(lambda: exchange.dispatch(TOKENS, IDS, row_capacity=0), ValueError, "0")
            assert exchange.dispatch_wait().rows == 4  # the tokens are there; only the outputs were too small
            refuses(lambda: exchange.allocate_outputs(extra=["x"]), ValueError, "x", "row_weights")
            outputs = exchange.allocate_outputs()
            outputs["payload"].flags.writeable = False
            refuses(lambda: exchange.dispatch(TOKENS, IDS, outputs=outputs), TypeError, "payload", "written")
            arrivals = exchange.dispatch(TOKENS, IDS)
            refuses(lambda: exchange.combine(arrivals.values()[:, :32]), ValueError, "rows", "64")
            refuses(lambda: exchange.combine(arrivals.values(), bias=[TOKENS] * 3), ValueError, "bias", "3", "2")
            exchange.combine(arrivals.values())
            refuses(lambda: pickle.dumps(exchange), TypeError, "pickled")
            refuses(lambda: pickle.dumps(world), TypeError, "pickled")
            refuses(lambda: pickle.dumps(arrivals), TypeError, "Arrivals cannot be pickled", "arrays", "handle")
        assert exchange.closed
        refuses(lambda: exchange.dispatch(TOKENS, IDS), ValueError, "closed")
        exchange.close()

    ferry.run_ranks(1, body)
    refuses(lambda: ferry.run_ranks(73, print), ValueError, "73", "72")
    refuses(lambda: ferry.Exchange(4, **SHAPE), TypeError, "world is 4", "ferry.World")
    refuses(lambda: ferry.exchange_layout(ranks=4, experts=8, top_k=9, max_tokens=1, hidden=64), ValueError, "top_k=9")
    refuses(lambda: ferry.exchange_layout(ranks=4, experts=2**40, top_k=2, max_tokens=1, hidden=64), ValueError,
            "experts", str(2**40))
    refuses(lambda: ferry.exchange_layout(ranks=4, experts=8, top_k=2, max_tokens=1, hidden=64, shade=1), TypeError,
            "shade", "reduction")


def test_only_one_thread_is_in_a_call():
    worlds = ferry.make_thread_worlds(2)
    waiting = threading.Thread(target=lambda: pytest.raises(ferry.PeerMissing, worlds[0].barrier, deadline=1.0))
    waiting.start()
    time.sleep(0.2)
    with pytest.raises(RuntimeError, match="another thread"):
        worlds[0].barrier()
    waiting.join()


def test_layout_and_memory():
    layout = ferry.exchange_layout(ranks=4, experts=10, top_k=2, max_tokens=8, hidden=7168, format="fp8_block128")
    assert layout.groups == 3 and layout.payload_row_bytes == 7168 and layout.scales_per_row == 56
    specs = {spec.name: spec for spec in layout.dispatch_outputs(100)}
    assert repr(layout).startswith("RowLayout(") and "hidden" in repr(layout)
    assert repr(specs["payload"]).startswith("TensorSpec(payload ")
    assert specs["payload"].shape == (100, 7168) and specs["payload"].dtype == "u8"
    use = ferry.memory_use(ranks=4, experts=10, top_k=2, max_tokens=8, hidden=7168)
    total = use.pop("total")
    assert total >= sum(use.values()) > 0


def test_views_of_slots_outlive_the_exchange():
    def body(world):
        exchange = ferry.Exchange(world, **SHAPE)
        exchange.dispatch(TOKENS, IDS, row_order="in_place")
        slots = exchange.arrival_slots()
        exchange.close()
        return slots

    slots = ferry.run_ranks(1, body)[0]
    assert (slots["payload"] == 0x3f80).any()


def test_nothing_is_left_of_many_worlds():
    def body(world):
        with ferry.Exchange(world, **SHAPE) as exchange:
            exchange.combine(exchange.dispatch(TOKENS, IDS).values())

    def resident():
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")

    for _ in range(20):
        ferry.run_ranks(2, body)
    before, threads = resident(), threading.active_count()
    for _ in range(200):
        ferry.run_ranks(2, body)
    assert resident() - before < 8 << 20 and threading.active_count() == threads


def start_script(text, **more):
    return subprocess.Popen([sys.executable, "-W", "error", "-c", text], stdout=subprocess.PIPE, text=True, **more)


def run_script(text):
    with start_script(text) as child:
        out, _ = child.communicate(timeout=120)
    assert child.returncode == 0
    return out


def test_ctrl_c_ends_the_waits_of_all_ranks():
    with start_script("""
import signal, ferry
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
def body(world):
    if world.rank == 0:
        print("waiting", flush=True)
    if world.rank != 2:
        world.barrier(deadline=600)
try:
    ferry.run_ranks(3, body)
except KeyboardInterrupt:
    print("interrupted")
""") as child:
        assert child.stdout.readline() == "waiting\n"
        time.sleep(0.5)
        child.send_signal(signal.SIGINT)
        out, _ = child.communicate(timeout=120)
    assert child.returncode == 0 and out == "interrupted\n"


def test_a_second_ctrl_c_leaves_bodies_that_compute():
    with start_script("""
import signal, threading, time, ferry
signal.signal(signal.SIGINT, signal.default_int_handler)
inside = threading.Barrier(3)
def body(world):
    inside.wait()
    if world.rank == 0:
        print("computing", flush=True)
    end = time.monotonic() + 60
    while time.monotonic() < end:
        try:
            world.barrier(deadline=60)  # until the world is aborted; then this body goes on for itself
        except (ferry.Aborted, RuntimeError):
            time.sleep(1)
try:
    ferry.run_ranks(3, body)
except KeyboardInterrupt:
    print("interrupted", flush=True)
""", stderr=subprocess.STDOUT) as child:
        assert child.stdout.readline() == "computing\n"
        for _ in range(2):
            time.sleep(0.5)
            child.send_signal(signal.SIGINT)
        begin = time.monotonic()
        out, _ = child.communicate(timeout=120)
    assert out == "interrupted\n" and time.monotonic() - begin < 30  # and no word of leaks


def test_a_fork_is_refused_and_ends():
    assert run_script("""
import os, warnings, numpy as np, ferry
warnings.simplefilter("ignore")  # from Python 3.12 on fork() warns where there are threads
world = ferry.make_thread_worlds(1)[0]
exchange = ferry.Exchange(world, experts=2, top_k=1, max_tokens=1, hidden=32, workers=2)
exchange.dispatch(np.ones((1, 32), np.float32), np.zeros((1, 1), np.int32))
pid = os.fork()
if pid == 0:
    try:
        exchange.dispatch(np.ones((1, 32), np.float32), np.zeros((1, 1), np.int32))
    except RuntimeError as error:
        assert "fork" in str(error)
        del exchange, world
        os._exit(7)
    os._exit(1)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
""") == "7\n"


def test_import_takes_numpy_only_and_no_gpu():
    assert run_script("""
import pathlib, sys
import ferry
print({"torch", "ml_dtypes"} & set(sys.modules), "libcuda" in pathlib.Path("/proc/self/maps").read_text())
""") == "set() False\n"


@pytest.mark.skipif(sys.version_info < (3, 12), reason="before Python 3.12 the module is of one version")
def test_the_module_is_of_the_stable_abi():
    from ferry import _ferry
    assert _ferry.__file__.endswith(".abi3.so")


@pytest.mark.parametrize("closes", ["in its scope", "when it ends"])
def test_a_body_that_raises_in_the_scope_of_its_world_tells_the_others(closes):
    began = time.monotonic()

    def body(world):
        if world.rank == 1:
            if closes == "when it ends":
                raise KeyError("m\u00fc\ud800ll")  # a lone surrogate travels to nobody
            with world:
                raise KeyError("mine")
        world.barrier(deadline=60)

    with pytest.raises(KeyError, match="mine|ll"):
        ferry.run_ranks(2, body)
    assert time.monotonic() - began < 50


def test_ranks_that_gather_other_numbers_of_bytes_are_told_so():
    """So are ranks that make other calls, as an exchange beside a gathering."""
    def body(world):
        other = 1 - world.rank
        told = f"rank {world.rank}: all_gather: rank {other} gave {other + 2} bytes and this rank {world.rank + 2}; all must"
        with pytest.raises(ferry.InvalidArgument, match=told):
            world.all_gather(bytes(world.rank + 2))
        with pytest.raises(ferry.InvalidArgument, match="make the same calls in the same order"):
            if world.rank == 0:
                world.all_gather(b"1")
            else:
                ferry.Exchange(world, experts=8, top_k=2, max_tokens=4, hidden=64)
        assert world.all_gather(b"a") == [b"a", b"a"]

    ferry.run_ranks(2, body)

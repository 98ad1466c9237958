"""Exchanges whose ranks are processes of a torch.distributed group (gloo), and the example that trains."""

import os
import pathlib
import pickle
import signal
import subprocess
import sys
import threading
import time
import types

import dense
import process_state
import pytest
import rank_processes
import torch
import torch.distributed as dist
import torch.distributed.nn  # before there is a group, which its default arguments would keep, and its threads
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard

import ferry
import ferry.torch
from ferry.adapters._shared import exchange_of
from ferry.torch._group import Gathering, store_of
from oracle import make_layer

EXAMPLE = pathlib.Path(__file__).parents[3] / "examples" / "train_moe.py"
SHAPE = dict(experts=7, top_k=2, max_tokens=6, hidden=64, backward="bf16", result_format="f32")
LAYER = make_layer(3, 7, 2, 64, [4, 0, 6])
TOKENS = [(torch.from_numpy(LAYER.tokens[rank]) / 8, torch.from_numpy(LAYER.ids[rank]),
           torch.from_numpy(LAYER.weights[rank])) for rank in range(3)]
OF_SUMS = [torch.randint(-3, 4, tokens.shape, generator=torch.Generator().manual_seed(1)).float()
           for tokens, _, _ in TOKENS]
MATRICES = torch.stack([torch.eye(64) * (expert + 1) / 8 for expert in range(7)])


def there_and_back(exchange, rank, *, compiled=False):
    """Sums, and gradients of tokens and weights: expert e is tanh of its rows times (e + 1) / 8."""
    def call(tokens, ids, weights):
        arrived = ferry.torch.dispatch(exchange, tokens, ids, weights)
        place = torch.arange(arrived.values.shape[0])
        group = (place[:, None] >= arrived.row_offsets[None, 1:]).sum(1)
        factor = (exchange.first_expert + group + 1) / 8
        return ferry.torch.combine(exchange, torch.tanh(arrived.values * factor[:, None]), arrived)

    tokens, ids, weights = (tensor.clone() for tensor in TOKENS[rank])
    tokens.requires_grad_()
    weights.requires_grad_()
    sums = (torch.compile(call, fullgraph=True, backend="aot_eager") if compiled else call)(tokens, ids, weights)
    sums.backward(OF_SUMS[rank])
    return [tensor.detach().numpy() for tensor in (sums, tokens.grad, weights.grad)]


def refused(call):
    """The name and the text of what it raises."""
    try:
        call()
    except Exception as error:  # pylint: disable=broad-except
        return type(error).__name__, str(error)
    return None


def refused_dtensors(exchange, tokens, ids, weights):
    """What calls say that are given such a one, by the argument."""
    mesh = init_device_mesh("cpu", (exchange.ranks,))

    def spread(tensor):
        return DTensor.from_local(tensor, mesh, [Shard(0)], run_check=False)

    arrived = ferry.torch.dispatch(exchange, tokens, ids, weights)
    return {"tokens": refused(lambda: ferry.torch.dispatch(exchange, spread(tokens), ids, weights)),
            "topk_ids": refused(lambda: ferry.torch.dispatch(exchange, tokens, spread(ids), weights)),
            "topk_weights": refused(lambda: ferry.torch.dispatch(exchange, tokens, ids, spread(weights))),
            "rows": refused(lambda: ferry.torch.combine(exchange, spread(arrived.values), arrived))}


def in_a_group(rank, size, file):
    torch.set_num_threads(1)
    found = {"no group": refused(lambda: ferry.torch.Exchange.from_group(**SHAPE))}
    dist.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=size)
    pair = dist.new_group([2, 0])  # its ranks 0 and 1 are 0 and 2: groups sort
    if rank == 1:
        found["no member"] = refused(lambda: ferry.torch.Exchange.from_group(pair, **SHAPE))
    else:
        with ferry.torch.Exchange.from_group(pair, **SHAPE) as exchange:
            found["pair"] = (exchange.rank, exchange.ranks, there_and_back(exchange, rank))
    with ferry.torch.Exchange.from_group(device="cpu", **SHAPE) as exchange:
        assert (exchange.rank, exchange.ranks, exchange.device.type) == (rank, size, "cpu")
        found["eager"] = there_and_back(exchange, rank)
        found["compiled"] = there_and_back(exchange, rank, compiled=True)
        found["pickled"] = refused(lambda: pickle.dumps(exchange))
        found["DTensors"] = refused_dtensors(exchange, *TOKENS[rank])
    found["closed"] = refused(lambda: exchange.dispatch(*TOKENS[rank]))
    found["other shapes"] = refused(lambda: ferry.torch.Exchange.from_group(**{**SHAPE, "hidden": 64 * (1 + rank % 2)}))
    found["a GPU"] = refused(lambda: ferry.torch.Exchange.from_group(device="cuda:0", **SHAPE))
    found["no group's"] = [refused(lambda: ferry.torch.Exchange.from_group(group, **SHAPE)) for group in (5, "all", [0, 1])]
    found["any GPU"] = refused(lambda: ferry.torch.Exchange.from_group(device="cuda", **SHAPE))
    found["no time"] = refused(lambda: ferry.torch.Exchange.from_group(**SHAPE, set_up_deadline=-1))
    found["no device"] = refused(lambda: ferry.torch.Exchange.from_group(device="gpu", **SHAPE))
    dist.destroy_process_group()
    return found


def test_ranks_are_those_of_a_group(tmp_path):
    found = rank_processes.run(3, in_a_group, os.fspath(tmp_path / "meeting"))
    want = dense.gradients(TOKENS, MATRICES, OF_SUMS)[:3]
    for rank, one in enumerate(found):
        for how in ("eager", "compiled"):
            for got, all_ranks in zip(one[how], want):
                dense.assert_close(torch.from_numpy(got), all_ranks[rank], 2e-6)
        assert one["no group"][0] == "InvalidArgument" and "init_process_group" in one["no group"][1]
        assert one["pickled"][0] == "TypeError" and one["closed"] == (
            "Closed", "this Exchange is closed; make another one")
        for name, refusal in one["DTensors"].items():
            assert refusal == ("TypeError", f"{name} is a DTensor; it must be the plain tensor of this rank: give to_local()")
        assert one["other shapes"][0] == "InvalidArgument" and "hidden" in one["other shapes"][1]
        assert one["a GPU"][0] == "Unsupported" and (torch.cuda.is_available() or one["any GPU"][0] == "Unsupported")
        assert one["no time"] == ("InvalidArgument", "set_up_deadline is -1 s; it must be above 0 and at most 86400")
        for kind, text in one["no group's"]:
            assert kind == "TypeError" and "group is " in text and "it must be a process group" in text
        assert one["no device"][0] == "InvalidArgument" and "device is 'gpu'; it must be cpu" in one["no device"][1]
    assert found[1]["no member"][0] == "InvalidArgument" and "no rank of the group" in found[1]["no member"][1]
    for place, rank in enumerate((0, 2)):  # a token's sums do not depend on where its experts are
        assert found[rank]["pair"][:2] == (place, 2)
        for got, all_ranks in zip(found[rank]["pair"][2], want):
            dense.assert_close(torch.from_numpy(got), all_ranks[rank], 2e-6)


DEADLINE = 2.0


def missed(call):
    """What PeerMissing says, and after how many seconds."""
    began = time.monotonic()
    with pytest.raises(ferry.PeerMissing) as raised:
        call()
    error = raised.value
    return str(error), time.monotonic() - began, error.my_rank, error.rank, error.operation


def in_different_groups(rank, size, file):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=size)
    dist.barrier()  # nobody leaves while another process still connects
    groups = [dist.new_group([0, 1]) for _ in range(3)]
    first = groups[0] if rank == 0 else dist.group.WORLD  # process 2 makes no world
    found = []
    if rank < 2:
        found = [missed(lambda: ferry.torch.world_of_group(first, deadline=DEADLINE)),
                 missed(lambda: ferry.torch.Exchange.from_group(groups[1 + rank], set_up_deadline=DEADLINE, **SHAPE))]
    dist.barrier()  # nobody calls again while another one's deadline still runs
    if rank < 2:
        with ferry.torch.world_of_group(groups[1]) as world:  # which rank 0 alone had asked for
            world.barrier()
    dist.barrier()
    began = time.monotonic()
    dist.destroy_process_group()
    return found, time.monotonic() - began


def test_different_groups_are_missed_at_the_deadline(tmp_path):
    found = rank_processes.run(3, in_different_groups, os.fspath(tmp_path / "meeting"))
    for rank in range(2):
        for number, (text, seconds, *attributes) in enumerate(found[rank][0]):
            other = 2 if (rank, number) == (1, 0) else 1 - rank  # of WORLD both others are late; of the rest the other one
            late = "ranks 0, 2 of the 3" if (rank, number) == (1, 0) else f"rank {other} (process {other}) of the 2"
            assert f"rank {rank}: {late} of its process group did not come to make a world" in text
            assert "the deadline is 2 s" in text and "the same group" in text
            assert attributes == [rank, 0 if (rank, number) == (1, 0) else other, "set_up"]
            assert seconds < 10 * DEADLINE
    assert all(seconds < 10 * DEADLINE for _, seconds in found)


def that_try_again(rank, size, file):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=size)
    found = []
    for wait in (0.01, 0.1):  # rank 2 comes between the deadlines of the others, and all of them call again at once
        dist.barrier()
        time.sleep((0.0, wait, 0.5 + wait / 2)[rank])
        for tries in range(20):
            try:
                gathered = Gathering(None, 0.5)(bytes([rank, tries]))
                assert [each[0] for each in gathered] == [0, 1, 2]
                found.append(gathered)
                break
            except ferry.PeerMissing:
                pass
    dist.barrier()
    return found


def test_ranks_that_missed_a_deadline_try_again_at_any_time(tmp_path):
    """All have the bytes of the same tries: none is of one that a rank has given up."""
    found = rank_processes.run(3, that_try_again, os.fspath(tmp_path / "meeting"))
    assert len(found[0]) == 2 and found[0] == found[1] == found[2]


class Alarm(Exception):
    """What a signal handler raises."""


def wake(*_):
    raise Alarm


def whose_rank_0_is_interrupted(rank, size, file):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=size)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
    signal.signal(signal.SIGALRM, wake)
    store, interrupted = store_of(None), 0
    for number, raised in ((signal.SIGINT, KeyboardInterrupt), (signal.SIGALRM, Alarm)):
        dist.barrier()
        if rank == 0:  # it waits for bytes of the other rank, which do not come
            threading.Timer(0.3, os.kill, (os.getpid(), number)).start()
            with pytest.raises(raised):
                ferry.torch.world_of_group(deadline=20.0)
        dist.barrier()
        with ferry.torch.world_of_group(deadline=20.0) as world:
            world.barrier()
    for turn in range(60):  # at any moment of a call, those of the store among them
        dist.barrier()
        if rank == 0:
            signal.setitimer(signal.ITIMER_REAL, 0.0003 * (turn + 1))
        try:
            assert Gathering(None, 0.2)(bytes([rank])) == [b"\0", b"\1"]
        except (Alarm, ferry.PeerMissing):
            interrupted += 1
        signal.setitimer(signal.ITIMER_REAL, 0)
    dist.barrier()
    assert Gathering(None, 20.0)(bytes([rank])) == [b"\0", b"\1"]
    kept = [key for key in (f"ferry/{number}/{name}" for number in range(80) for name in (0, 1, "attempt"))
            if store.check([key])]
    return interrupted, len(kept)


def test_an_interrupted_rank_may_try_again(tmp_path):
    (interrupted, kept), _ = rank_processes.run(2, whose_rank_0_is_interrupted, os.fspath(tmp_path / "meeting"))
    assert interrupted > 0 and kept <= 6


def whose_store_ends(rank, size, file):
    torch.set_num_threads(1)
    store = dist.TCPStore("127.0.0.1", 0, size, is_master=True, wait_for_workers=False) if rank == 0 else None
    port = pathlib.Path(f"{file}.port")
    if store is not None:
        port.with_suffix(".new").write_text(str(store.port))
        port.with_suffix(".new").rename(port)
    while not port.exists():
        time.sleep(0.01)
    store = store or dist.TCPStore("127.0.0.1", int(port.read_text()), size, is_master=False)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size)
    waits = pathlib.Path(f"{file}.waits")
    if rank == 0:
        while not waits.exists():
            time.sleep(0.01)
        os._exit(0)  # without a word, as a process that is killed
    waits.touch()
    return missed(lambda: ferry.torch.world_of_group(deadline=60.0))


def test_who_waits_hears_of_a_store_that_ends(tmp_path):
    found = rank_processes.run(2, whose_store_ends, os.fspath(tmp_path / "meeting"))
    text, seconds, *attributes = found[1]
    assert "rank 1: rank 0 of the 2 of its process group did not come" in text and "store is gone" in text
    assert attributes == [1, 0, "set_up"] and seconds < 50


def whose_rank_1_is_killed(rank, size, file):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=size)
    exchange = ferry.torch.Exchange.from_group(**SHAPE, deadline=20.0)
    there_and_back(exchange, rank)
    if rank == 1:
        os._exit(0)  # without a word, as a process that is killed
    with pytest.raises(ferry.PeerMissing) as missing:
        while True:
            there_and_back(exchange, rank)
    before = exchange
    with pytest.raises(ValueError, match="mask"):
        before.remake(mask=[7])
    exchange = before.remake(mask=[missing.value.rank])
    found = there_and_back(exchange, rank)
    assert before.closed and exchange.trains and exchange.ranks == 3
    exchange.close()
    with pytest.raises(ValueError, match="closed"):  # with from_group the world is, too
        exchange.remake()
    return missing.value.rank, found


def test_the_others_go_on_without_a_rank_that_is_lost(tmp_path):
    """The rows of the lost rank's experts count as zeros, and its tokens are not there."""
    with rank_processes.Ranks(3, whose_rank_1_is_killed, os.fspath(tmp_path / "meeting")) as ranks:
        found = {rank: ranks.result(rank) for rank in (0, 2)}
    theirs = slice(3, 5)  # experts of rank 1, of 7
    left = [(tokens, ids.masked_fill((ids >= theirs.start) & (ids < theirs.stop), -1), weights)
            for tokens, ids, weights in TOKENS]
    left[1] = tuple(tensor[:0] for tensor in left[1])
    want = dense.gradients(left, MATRICES, [sums if rank != 1 else sums[:0] for rank, sums in enumerate(OF_SUMS)])
    for rank, (missing, tensors) in found.items():
        assert missing == 1
        for tensor, every in zip(tensors, want):
            dense.assert_close(torch.from_numpy(tensor), every[rank], 2e-6)


def in_many_worlds(rank, size, file):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=size)

    def once():
        with ferry.torch.Exchange.from_group(**{**SHAPE, "max_tokens": 512}) as exchange:
            arrivals = exchange.dispatch(*TOKENS[rank])
            return exchange.combine(arrivals.values())

    process_state.require_unchanged(once, 400)
    dist.destroy_process_group()


def test_nothing_is_left_of_four_hundred_worlds_of_a_group(tmp_path):
    rank_processes.run(2, in_many_worlds, os.fspath(tmp_path / "meeting"))


@pytest.mark.parametrize("launcher", [[], ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]])
def test_the_example_trains(launcher):
    steps = "30" if not launcher else "10"
    done = subprocess.run([sys.executable, *launcher, EXAMPLE, "--steps", steps], capture_output=True, text=True,
                          timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"step {steps:>4}   loss on 2 ranks" in done.stdout and "never more than 0.0" in done.stdout


def test_the_exchanges_of_adapters_meet_within_the_deadline_of_their_calls(monkeypatch):
    """Engines load models before they come: longer than the 30 s of other worlds."""
    asked = []

    def world_of_group(group, *, device, deadline):
        asked.append(deadline)
        raise ferry.PeerMissing("nobody came")

    monkeypatch.setattr("ferry.torch._exchange.world_of_group", world_of_group)
    for options in ({"deadline": 600.0}, {"deadline": 600.0, "set_up_deadline": 5.0}, {}):
        with pytest.raises(ferry.PeerMissing):
            exchange_of("group", "cpu", experts=2, top_k=1, max_tokens=1, hidden=64, **options)
    assert asked == [600.0, 5.0, None]


@pytest.mark.parametrize("device, given, reserved", [("cpu", {}, None), ("cuda:0", {}, 32), ("cuda:0", {"reserve_sms": 0}, 0)])
def test_a_group_on_gpus_leaves_room_for_nccl(device, given, reserved, monkeypatch):
    class Made(ferry.torch.Exchange):
        def __init__(self, world, **options):
            self.device, self.options = world.device, options

    world = types.SimpleNamespace(device=device)
    monkeypatch.setattr(sys.modules[ferry.torch.Exchange.__module__], "world_of_group", lambda *_, **__: world)
    assert Made.from_group(**SHAPE, **given).options.get("reserve_sms") == reserved

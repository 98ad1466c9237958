"""ferry.torch on GPU ranks: what test_torch_gradients and test_torch_layer have on CPUs, and a graph."""

import threading

import dense
import devices
import pytest
import test_torch_compile
import test_torch_layer
import torch
from conftest import GPUS
from oracle import make_layer
from rank_processes import free_port, run

import ferry
import ferry.torch
from ferry._arrivals import Arrivals as PlainArrivals

WHY_NOT = devices.why_no_gpus()
pytestmark = pytest.mark.skipif(WHY_NOT is not None, reason=WHY_NOT or "")
LAYER = make_layer(2, 7, 2, 64, [4, 6])
OF_SUMS = [torch.randint(-3, 4, tokens.shape, generator=torch.Generator().manual_seed(1)).float()
           for tokens in LAYER.tokens]
MATRICES = torch.stack([torch.eye(64) * (expert + 1) / 8 for expert in range(7)])
SHAPE = dict(experts=7, top_k=2, max_tokens=6, hidden=64)


def inputs_of(rank, device="cpu"):
    return ((torch.from_numpy(LAYER.tokens[rank]) / 8).to(device), torch.from_numpy(LAYER.ids[rank]).to(device),
            torch.from_numpy(LAYER.weights[rank]).to(device))


@pytest.mark.skipif(WHY_NOT is None and ferry.cuda_devices() < 2, reason="takes two GPUs: torch has one thread for the "
                    "backward passes of a GPU, and ranks that share the GPU would wait for each other in it")
@pytest.mark.parametrize("rows", [None, "most"])
@pytest.mark.parametrize("order", ["by_expert", "padded", "by_source"])
def test_gradients_are_those_of_the_dense_layer(order, rows):
    def factors(exchange, arrived):
        place = torch.arange(arrived.values.shape[0], device=exchange.device)
        group = (place[:, None] >= arrived.row_offsets[None, 1:]).sum(1, keepdim=True)
        return (exchange.first_expert + group + 1) / 8

    def body(world):
        tokens, ids, weights = inputs_of(world.rank, world.device)
        tokens.requires_grad_()
        weights.requires_grad_()
        with ferry.torch.Exchange(world, **SHAPE, backward="bf16", result_format="f32", row_orders=[order]) as exchange:
            size = exchange.most_rows(order) if rows else None
            arrived = ferry.torch.dispatch(exchange, tokens, ids, weights, rows=size, row_order=order)
            if order == "by_source":
                factor = (exchange.first_expert + arrived.row_info + 1)[:, :, None] / 8
                each = torch.tanh(arrived.values[:, None] * factor) * arrived.row_weights[:, :, None]
                results = torch.where(arrived.row_info[:, :, None] >= 0, each, 0).sum(1)
            else:
                results = torch.tanh(arrived.values * factors(exchange, arrived))
            sums = ferry.torch.combine(exchange, results, arrived)
            sums.backward(OF_SUMS[world.rank].to(world.device))
            found = [devices.on_cpu(tensor.detach()) for tensor in (sums, tokens.grad, weights.grad)]
            exchange.check()
            return found

    found = GPUS.run(2, body)
    want = dense.gradients([inputs_of(rank) for rank in range(2)], MATRICES, OF_SUMS)
    for rank in range(2):
        for got, all_ranks in zip(found[rank], want):
            dense.assert_close(got, all_ranks[rank], 1e-5)  # tanh of a GPU


def layers_of_a_process(rank, size, port, all_options):
    """What a rank has of the layer with each of the options, as arrays of numpy: processes hand these on."""
    torch.cuda.set_device(rank)
    with ferry.World.connect(f"127.0.0.1:{port}", rank, size, device=f"cuda:{rank}") as world:
        found = [test_torch_layer.on_rank(world, dtype=torch.bfloat16, expert_alignment=8, shared=True, **options)
                 for options in all_options]
        world.barrier()
    return [(sums.float().numpy(), tokens.float().numpy(),
             {name: value.float().numpy() for name, value in parameters.items()})
            for sums, tokens, parameters in found]


@pytest.mark.skipif(WHY_NOT is None and ferry.cuda_devices() < 2, reason="takes two GPUs")
def test_layers():
    """Ranks are processes with a GPU each, as programs have them."""
    size = min(test_torch_layer.RANKS, ferry.cuda_devices())
    kinds = [{}, dict(rows="most"), dict(format="fp8_block128")]
    ranks = run(size, layers_of_a_process, free_port(), kinds)
    want = test_torch_layer.want_of(test_torch_layer.TOKENS[:size], True)
    for number, options in enumerate(kinds):
        found = [(torch.from_numpy(sums), torch.from_numpy(tokens),
                  {name: torch.from_numpy(value) for name, value in parameters.items()})
                 for sums, tokens, parameters in (of_rank[number] for of_rank in ranks)]
        test_torch_layer.compare(found, want, 0.12 if "format" in options else 0.02)


@pytest.mark.parametrize("name", ferry.formats.names())
@pytest.mark.parametrize("order, more", [("by_expert", 0), ("padded", 0), ("padded", 6), ("by_source", 0)])
def test_values_of_every_format_and_order(name, order, more):
    """The kernel gives what the host makes of the same rows, and zeros where there is none."""
    orders = ["by_expert", "padded", "by_source"]

    def body(world):
        with ferry.torch.Exchange(world, **SHAPE, format=name, row_orders=orders) as exchange, torch.no_grad():
            given = inputs_of(world.rank, world.device)
            rows = exchange.most_rows(order) + more
            arrivals = exchange.dispatch(*given, row_order=order, row_capacity=rows)
            on_host = PlainArrivals(arrivals._core, arrivals._format, arrivals.arrays, None, order,
                                    arrivals.expert_stride, arrivals._stream)
            want = torch.from_numpy(on_host.values())
            assert (devices.on_cpu(arrivals.values()) == want).all()
            assert (devices.on_cpu(arrivals.has_token) == torch.from_numpy(on_host.has_token)).all()
            world.barrier()
            for dtype in (torch.bfloat16, torch.float16):
                found = ferry.torch.dispatch(exchange, *given, row_order=order, rows=rows, dtype=dtype)
                assert (devices.on_cpu(found.values) == want.to(dtype)).all()
                assert (devices.on_cpu(found.row_weights[exchange.most_rows(order):]) == 0).all()
                world.barrier()
            exchange.check()

    GPUS.run(2 if ferry.cuda_devices() > 1 else 1, body)


def test_a_captured_pair():
    """In a graph a dispatch has room for the worst case, and a replay of the graph reads the tokens of now."""
    lock = threading.Lock()

    def body(world):
        tokens, ids, weights = inputs_of(world.rank, world.device)
        with ferry.torch.Exchange(world, **SHAPE) as exchange, torch.no_grad():
            def pair(rows=None):
                arrived = ferry.torch.dispatch(exchange, tokens, ids, weights, rows=rows)
                return ferry.torch.combine(exchange, arrived.values * 2, arrived)

            pair(exchange.most_rows())
            torch.cuda.current_stream().synchronize()
            world.barrier()
            graph, stream = torch.cuda.CUDAGraph(), torch.cuda.current_stream()
            with lock, torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
                sums = pair()
            world.barrier()
            for factor in (1, 3):
                tokens.copy_(inputs_of(world.rank)[0] * factor)
                graph.replay()
                torch.cuda.current_stream().synchronize()
                exchange.check()
                present = torch.where(ids >= 0, weights, 0).sum(1, keepdim=True)
                dense.assert_close(sums.cpu(), (2 * present * tokens).double().cpu(), 2**-7)
                world.barrier()

    GPUS.run(2 if ferry.cuda_devices() > 1 else 1, body)  # capturing waits for the whole device


def test_new_outputs_are_memory_of_the_allocator_of_torch():
    """It counts them, keeps them for a stream that was recorded, and takes the exchange's GPU whichever is current."""
    def body(world):
        with ferry.torch.Exchange(world, **SHAPE) as exchange:
            before = torch.cuda.memory_allocated()
            outputs = exchange.allocate_outputs(extra=("handle", "row_weights"))
            on_cpu = {name: torch.empty(tensor.shape, dtype=tensor.dtype) for name, tensor in outputs.items()}
            assert all(tensor.stride() == on_cpu[name].stride() and tensor.data_ptr() % 64 == 0 and not tensor._is_view()
                       for name, tensor in outputs.items())
            assert exchange._base._memory._quick is not None
            sizes = [tensor.numel() * tensor.element_size() for tensor in outputs.values()]
            assert torch.cuda.memory_allocated() - before >= sum(sizes)
            payload = outputs.pop("payload")
            place, like = payload.data_ptr(), (payload.shape, payload.dtype)
            other = torch.cuda.Stream()
            with torch.cuda.stream(other):
                torch.cuda._sleep(100_000_000)
            payload.record_stream(other)
            del payload
            assert torch.empty(like[0], dtype=like[1], device=exchange.device).data_ptr() != place
            other.synchronize()
            with torch.cuda.device(torch.cuda.device_count() - 1):
                assert {tensor.device for tensor in exchange.allocate_outputs().values()} == {exchange.device}

    GPUS.run(1, body)


@pytest.fixture(name="lone")
def _lone():
    """open(**options): exchanges of a world of one rank on the first GPU, whose stream is current. Checks call often."""
    opened, worlds = [], ferry.cuda_worlds(1, devices=[0])

    def open_exchange(**options):
        shape = dict(experts=4, top_k=2, max_tokens=6, hidden=64, backward="bf16",
                     row_orders=["by_expert", "padded", "by_source"])
        opened.append(ferry.torch.Exchange(worlds[0], **{**shape, **options}))
        return opened[-1]

    with torch.cuda.device(0), torch.cuda.stream(torch.cuda.Stream()):
        yield open_exchange
        torch.compiler.reset()  # its guards would keep the exchanges
        torch.cuda.current_stream().synchronize()
    for one in (*opened, *worlds):
        one.close()


@pytest.mark.parametrize("order", ["by_expert", "padded", "by_source"])
@pytest.mark.parametrize("name", ["bf16", "fp8_block128"])
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # opcheck's own
def test_opcheck_of_the_operators(lone, order, name):
    """As test_torch_compile has it on CPUs. A kernel leaves bytes of a handle as they were that nobody reads, so any two
    bytes may be there."""
    test_torch_compile.check_operators(lone(format=name), order, atol=255)


def test_a_compiled_layer(lone):
    """As test_torch_layer has it on CPUs. Both layers have room for any routing."""
    exchange = lone(experts=test_torch_layer.EXPERTS, top_k=test_torch_layer.TOP_K, expert_alignment=8)
    test_torch_layer.check_compiled_layer(exchange, rows=exchange.most_rows(), room=2**-7)
    exchange.check()

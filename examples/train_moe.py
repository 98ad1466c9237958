#!/usr/bin/env python3
"""Trains a small Mixture-of-Experts model whose experts lie on several ranks, beside the same model on every rank.

    python examples/train_moe.py                          # two processes on CPUs
    torchrun --nproc-per-node 2 examples/train_moe.py     # as many as torchrun starts: a GPU each, where there are some

The task: a table of 32 x 32 entries is to be learnt, each a class that two symbols name. Needs torch: docs/torch.md.
"""

import argparse
import os
import tempfile

import ferry.torch
import torch
import torch.distributed as dist
import torch.distributed.nn  # before there is a group: its default arguments would keep it alive, see run()
from torch import nn

SYMBOLS, HIDDEN, INTER, EXPERTS, TOP_K, BLOCKS, BATCH = 32, 64, 64, 8, 2, 2, 256


class DenseLayer(nn.Module):
    """All experts on this rank, each on every token: its weight is 0 where the router did not choose it."""

    def __init__(self):
        super().__init__()
        self.router = ferry.torch.TopKRouter(HIDDEN, EXPERTS, TOP_K)
        self.gate_up = nn.Parameter(torch.randn(EXPERTS, HIDDEN, 2 * INTER) * HIDDEN**-0.5)
        self.down = nn.Parameter(torch.randn(EXPERTS, INTER, HIDDEN) * INTER**-0.5)

    def forward(self, tokens):
        ids, weights = self.router(tokens)
        of_expert = torch.zeros(len(tokens), EXPERTS, device=tokens.device).scatter(1, ids, weights)
        results = torch.einsum("nh,ehi->eni", tokens, self.gate_up)
        results = torch.einsum("eni,eih->enh", ferry.torch.swiglu(results), self.down)
        return torch.einsum("enh,ne->nh", results, of_expert)


class Model(nn.Module):
    def __init__(self, layers):
        super().__init__()
        self.first, self.second = nn.Embedding(SYMBOLS, HIDDEN), nn.Embedding(SYMBOLS, HIDDEN)
        self.norms = nn.ModuleList(nn.LayerNorm(HIDDEN) for _ in layers)
        self.layers = nn.ModuleList(layers)
        self.head = nn.Linear(HIDDEN, SYMBOLS)

    def forward(self, pairs):
        tokens = self.first(pairs[:, 0]) + self.second(pairs[:, 1])
        for norm, layer in zip(self.norms, self.layers):
            tokens = tokens + layer(norm(tokens))
        return self.head(tokens)


def spread(dense, exchange):
    """The same model, but each rank has only its own experts."""
    options = dict(compute_dtype=torch.bfloat16) if exchange.device.type == "cuda" else {}
    layers = [ferry.torch.MoELayer(exchange, INTER, **options) for _ in range(BLOCKS)]
    model = Model(layers).to(exchange.device)
    own = slice(exchange.first_expert, exchange.first_expert + exchange.groups)
    state = {name: value[own] if name.endswith((".gate_up", ".down")) else value
             for name, value in dense.state_dict().items()}
    model.load_state_dict(state)
    return model


def step(model, optimizer, pairs, classes):
    """One step; the mean of the loss over the tokens of all ranks."""
    ranks = dist.get_world_size()
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(pairs), classes)
    loss.backward()
    # Gradients of experts on one rank have the tokens of all ranks in them. The others are of this rank's tokens.
    of_one_rank = {id(parameter) for layer in model.layers if isinstance(layer, ferry.torch.MoELayer)
                   for parameter in layer.expert_parameters()}
    for parameter in model.parameters():
        if id(parameter) not in of_one_rank:
            dist.all_reduce(parameter.grad)
        parameter.grad /= ranks
    optimizer.step()
    total = loss.detach().clone()
    dist.all_reduce(total)
    return float(total) / ranks


def train(steps, wire, device):
    torch.manual_seed(1)  # the same model and table on all ranks
    table = torch.randint(SYMBOLS, (SYMBOLS, SYMBOLS), device=device)
    dense = Model([DenseLayer() for _ in range(BLOCKS)]).to(device)
    # One exchange serves all layers of a shape: each dispatch leaves a handle, and its backward pass goes by that.
    with ferry.torch.Exchange.from_group(experts=EXPERTS, top_k=TOP_K, max_tokens=BATCH, hidden=HIDDEN, format=wire,
                                         backward="bf16", expert_alignment=8) as exchange:
        moe = spread(dense, exchange)
        models = [(model, torch.optim.Adam(model.parameters(), lr=3e-3)) for model in (moe, dense)]
        random = torch.Generator().manual_seed(100 + dist.get_rank())  # other tokens on each rank
        losses = []
        for number in range(1, steps + 1):
            pairs = torch.randint(SYMBOLS, (BATCH, 2), generator=random).to(device)
            losses.append([step(*one, pairs, table[pairs[:, 0], pairs[:, 1]]) for one in models])
            if dist.get_rank() == 0 and (number == 1 or number % 10 == 0 or number == steps):
                print(f"step {number:4}   loss on {dist.get_world_size()} ranks {losses[-1][0]:.4f}   "
                      f"dense {losses[-1][1]:.4f}", flush=True)
    return losses


def run(rank, ranks, file, arguments):
    """One rank. `file`: where processes that no torchrun started meet."""
    on_gpus = torch.cuda.is_available() and ferry.has_cuda()
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", rank))) if on_gpus else torch.device("cpu")
    if on_gpus:
        torch.cuda.set_device(device)
    else:
        torch.set_num_threads(1)
    where = {} if file is None else dict(init_method=f"file://{file}", rank=rank, world_size=ranks)
    dist.init_process_group("nccl" if on_gpus else "gloo", **where)
    try:
        losses = train(arguments.steps, arguments.format, device)
        apart = max(abs(one - other) for one, other in losses)
        if dist.get_rank() == 0:
            print(f"the two losses are never more than {apart:.3f} apart")
        if losses[-1][0] >= 0.9 * losses[0][0] or apart > 0.1:
            raise RuntimeError("the model did not learn as the dense one did")
    finally:
        # Ends the group's threads, if nothing else keeps the group. One that still frees a tensor while Python ends
        # would abort the process.
        dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2, help="processes to start, without torchrun")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--format", default="bf16", help="in which tokens travel: bf16, fp8_block128, mxfp8")
    arguments = parser.parse_args()
    if "RANK" in os.environ:
        run(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), None, arguments)
        return
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(run, (arguments.ranks, os.path.join(folder, "meeting"), arguments),
                                    nprocs=arguments.ranks)


if __name__ == "__main__":
    main()

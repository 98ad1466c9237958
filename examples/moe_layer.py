#!/usr/bin/env python3
"""A layer of eight experts on four ranks, beside the same layer without Ferry. Needs the package: docs/python.md."""

import numpy as np

import ferry

RANKS, EXPERTS, TOP_K, TOKENS, HIDDEN = 4, 8, 2, 16, 256
random = np.random.default_rng(7)
matrices = random.standard_normal((EXPERTS, HIDDEN, HIDDEN)).astype(np.float32) / 16
tokens = random.standard_normal((RANKS, TOKENS, HIDDEN)).astype(np.float32)
scores = random.standard_normal((RANKS, TOKENS, EXPERTS))
ids = np.ascontiguousarray(np.argsort(-scores, axis=-1)[..., :TOP_K])
weights = np.take_along_axis(np.exp(scores), ids, -1)
weights = (weights / weights.sum(-1, keepdims=True)).astype(np.float32)


def expert(number, rows):
    return np.maximum(rows @ matrices[number], 0)


def body(world):  # runs once per rank, each on a thread of its own
    with ferry.Exchange(world, experts=8, top_k=2, max_tokens=16, hidden=256, format="fp8_block128") as exchange:
        arrivals = exchange.dispatch(tokens[world.rank], ids[world.rank], weights[world.rank])
        rows = arrivals.values()  # float32 [rows, hidden], padding as zeros
        first = exchange.shape.first_expert(world.rank)
        for group in range(exchange.layout.groups):
            mine = arrivals.rows_of(group)
            rows[mine] = expert(first + group, rows[mine])
        return exchange.combine(rows)  # float32 [n, hidden], as the rows


sums = ferry.run_ranks(4, body)

# The dense layer: every expert on every token, times its weight, which is 0 where the router did not choose it.
dense = sum(expert(number, tokens) * ((ids == number) * weights).sum(-1, keepdims=True) for number in range(EXPERTS))
error = np.sqrt(np.mean((np.stack(sums) - dense)**2) / np.mean(dense**2))
print(f"{RANKS * TOKENS} tokens to {EXPERTS} experts on {RANKS} ranks and back")
print(f"FP8 on the way: an RMS error of {100 * error:.1f} % of the dense layer's RMS")
raise SystemExit(int(error > 0.05))

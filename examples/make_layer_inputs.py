#!/usr/bin/python3
"""Writes the arrays that `ferry layer` takes: tokens, routing and experts, made up. Needs numpy.

usage: make_layer_inputs.py FOLDER
"""

import pathlib
import sys

import numpy as np

TOKENS, HIDDEN, INTER, EXPERTS, TOP_K = 1000, 512, 256, 16, 4

folder = pathlib.Path(sys.argv[1])
folder.mkdir(exist_ok=True)
random = np.random.default_rng(0)


def normal(scale, *shape):
    return (scale * random.standard_normal(shape)).astype(np.float32)


scores = random.standard_normal((TOKENS, EXPERTS)).astype(np.float32)
ids = scores.argsort(axis=1)[:, -TOP_K:]  # int64; distinct in a token
weights = np.exp(np.take_along_axis(scores, ids, axis=1))
weights /= weights.sum(axis=1, keepdims=True)

np.save(folder / "x.npy", normal(1.0, TOKENS, HIDDEN))
np.save(folder / "ids.npy", np.ascontiguousarray(ids))
np.save(folder / "w.npy", weights)
np.save(folder / "w13.npy", normal(0.05, EXPERTS, 2 * INTER, HIDDEN))  # gate rows, then up rows
np.save(folder / "w2.npy", normal(0.05, EXPERTS, HIDDEN, INTER))
print(f"{TOKENS} tokens of {HIDDEN} columns, top-{TOP_K} of {EXPERTS} experts: {folder}/{{x,ids,w,w13,w2}}.npy")

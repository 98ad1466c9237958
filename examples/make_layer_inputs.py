#!/usr/bin/env python3
"""Writes the arrays that `ferry layer` takes: tokens, routing and experts, made up. Needs numpy.

usage: make_layer_inputs.py FOLDER
"""

import os
import pathlib
import sys

# Debian's Python has the numpy that ./dev installs; another Python may come before it in PATH, without numpy.
SYSTEM_PYTHON = "/usr/bin/python3"

try:
    import numpy as np
except ImportError:
    if os.access(SYSTEM_PYTHON, os.X_OK) and not os.environ.get("FERRY_TRIED_SYSTEM_PYTHON"):
        os.environ["FERRY_TRIED_SYSTEM_PYTHON"] = sys.executable
        os.execv(SYSTEM_PYTHON, [SYSTEM_PYTHON, *sys.argv])
    sys.exit(f"make_layer_inputs.py: {os.environ.get('FERRY_TRIED_SYSTEM_PYTHON', sys.executable)} has no numpy: "
             "pip install numpy, or apt-get install python3-numpy")

TOKENS, HIDDEN, INTER, EXPERTS, TOP_K = 1000, 512, 256, 16, 4


def normal(random, scale, *shape):
    return (scale * random.standard_normal(shape)).astype(np.float32)


def save(path, array):
    """Whole or not at all: what a full disk has of it goes."""
    try:
        np.save(path, array)
    except OSError:
        path.unlink(missing_ok=True)
        raise


def write(folder):
    random = np.random.default_rng(0)
    scores = random.standard_normal((TOKENS, EXPERTS)).astype(np.float32)
    ids = scores.argsort(axis=1)[:, -TOP_K:]  # int64; distinct in a token
    weights = np.exp(np.take_along_axis(scores, ids, axis=1))
    weights /= weights.sum(axis=1, keepdims=True)
    save(folder / "x.npy", normal(random, 1.0, TOKENS, HIDDEN))
    save(folder / "ids.npy", np.ascontiguousarray(ids))
    save(folder / "w.npy", weights)
    save(folder / "w13.npy", normal(random, 0.05, EXPERTS, 2 * INTER, HIDDEN))  # gate rows, then up rows
    save(folder / "w2.npy", normal(random, 0.05, EXPERTS, HIDDEN, INTER))


def main(arguments):
    if len(arguments) != 1 or arguments[0].startswith("-"):
        wants_help = arguments in (["-h"], ["--help"])
        print(__doc__.strip(), file=sys.stdout if wants_help else sys.stderr)
        return 0 if wants_help else 2
    folder = pathlib.Path(arguments[0])
    try:
        folder.mkdir(exist_ok=True)
        write(folder)
    except OSError as error:
        print(f"make_layer_inputs.py: {folder}: cannot be written: {error.strerror or error}", file=sys.stderr)
        return 1
    print(f"{TOKENS} tokens of {HIDDEN} columns, top-{TOP_K} of {EXPERTS} experts: {folder}/{{x,ids,w,w13,w2}}.npy")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

#!/usr/bin/env python3
"""Includes point one way: down the lists of LAYERS and ROOMS. Public headers need only the standard library.

usage: check_dependencies.py [ROOT]
"""

import posixpath
import re
import sys

import sources

# The text that every backend compiles.
INSTALLED = {f"include/ferry/detail/{room}" for room in ("base", "formats", "layout", "activation", "protocol")}

# What a file of a layer may include, beside its own layer. First match names the layer of a path.
LAYERS = [
    ("include/ferry/detail/base", {"include"}),
    ("include/ferry/detail/formats", {"include", "include/ferry/detail/base"}),
    ("include/ferry/detail/layout", {"include", "include/ferry/detail/base"}),
    ("include/ferry/detail/activation", {"include", "include/ferry/detail/base", "include/ferry/detail/formats",
                                         "include/ferry/detail/layout"}),
    ("include/ferry/detail/protocol", {"include", "include/ferry/detail/base", "include/ferry/detail/formats",
                                       "include/ferry/detail/layout"}),
    ("include/ferry/detail/cuda", {"include", *INSTALLED}),
    ("include/ferry/detail/nvshmem", {"include", *INSTALLED, "include/ferry/detail/cuda"}),
    ("include/ferry/cuda", {"include", *INSTALLED, "include/ferry/detail/cuda", "include/ferry/detail/nvshmem"}),
    ("include", set()),
    ("src/base", {"include", *INSTALLED}),
    ("src/activation", {"include", *INSTALLED}),
    ("src/net", {"include", *INSTALLED, "src/base"}),
    ("src/exchange", {"include", *INSTALLED, "src/base"}),
    ("src/cpu", {"include", *INSTALLED, "src/base", "src/net", "src/exchange"}),
    ("src/shmem", {"include", *INSTALLED, "src/base", "src/net", "src/exchange", "src/cpu"}),
    ("src/cuda", {"include", "include/ferry/cuda", *INSTALLED, "include/ferry/detail/cuda", "src/base", "src/net",
                  "src/exchange"}),
    ("src/nvshmem", {"include", "include/ferry/cuda", *INSTALLED, "include/ferry/detail/cuda",
                     "include/ferry/detail/nvshmem", "src/base", "src/net", "src/exchange", "src/cuda"}),
    ("src/conformance", {"include"}),
    ("tool", None),  # all but tests, examples and benchmarks
    ("python", {"include", "include/ferry/cuda"}),
    ("examples", {"include", "include/ferry/cuda"}),
    ("benchmarks", None),  # anything
    ("tests", None),
]
# The rooms of a folder, from the bottom to the top: a file includes only rooms before its own.
ROOMS = {
    "include/ferry/detail/protocol": ["contracts"],
    "include/ferry/detail/cuda": ["state", "team", "activation", "fabric", "steps", "kernels", "launch"],
    "include/ferry/detail/cuda/steps": ["routing", "weights"],
    "include/ferry/detail/cuda/kernels": ["calls", "counts", "overflow", "handles"],
    "src/net": ["socket", "host"],
    "src/exchange": ["sizes", "calls", "log", "checks", "handles", "agreement"],
    "src/cpu": ["formats", "steps", "fabric", "rows", "calls"],
    "src/cpu/steps": ["lookup", "routing", "weights"],
    "src/shmem": ["process"],
    "src/cuda": ["device", "policy", "kernels", "activation", "exchange", "world"],
    "src/cuda/exchange": ["plan", "order", "state", "launches"],
    "src/nvshmem": ["kernels"],
    "src/conformance": ["oracle", "target", "rounds", "cases"],
    "python/src": ["base", "world", "cuda", "arrays", "exchange"],
    "tool": ["text", "io", "ranks", "layer", "demo", "bench", "simulate", "commands", "command_line", "parts"],
    "tool/bench": ["base", "mpi", "cpu", "processes", "gpu", "cuda", "nvshmem", "shmem"],
    "tool/ranks": ["job"],
    "tool/layer": ["base", "rows", "experts", "cuda", "rank", "inputs", "dump", "check"],
    "tool/demo": ["model", "picture"],
    "tool/commands": ["options", "info", "bench", "codec", "verify"],
}
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)
FOREIGN = re.compile(r"^(fmt/|cuda|nv|cooperative_groups|mpi|shmem|CLI/|nlohmann/|cblas|Python|pybind|nanobind)")
STANDARD = re.compile(r"^[a-z_0-9]+$")


def layer_of(path):
    return next((layer for layer, _ in LAYERS if path.startswith(layer + "/")), None)


def resolve(root, includer, included):
    """The path in the tree that the include means, or None where the file is not of the tree."""
    folders = (posixpath.dirname(includer), "include", "src", "tests", ".")
    candidates = (posixpath.normpath(posixpath.join(folder, included)) for folder in folders)
    return next((path for path in candidates if (root / path).is_file()), None)


def floor_of(path, folder):
    """The place of the path's room in ROOMS. Files in no room of theirs, and folders beside them, are on top."""
    rooms = ROOMS[folder]
    room = path[len(folder) + 1:].split("/")[0]
    return rooms.index(room) if room in rooms else len(rooms)


def room_above(includer, target):
    """The folder of ROOMS that holds both files, the included one in a room above the other's; or None."""
    return next((folder for folder in ROOMS if includer.startswith(folder + "/") and target.startswith(folder + "/")
                 and floor_of(target, folder) > floor_of(includer, folder)), None)


def check_file(root, path, text):
    layer = layer_of(path)
    allowed = dict(LAYERS)[layer]
    if layer == "tool":
        allowed = {other for other, _ in LAYERS} - {"tests", "examples", "benchmarks", "python"}
    findings = []
    # Literals are kept: an include is one. A commented-out include is not at the start of its line.
    for match in INCLUDE.finditer(text):
        line = text.count("\n", 0, match.start(2)) + 1
        included = match.group(2)
        target = resolve(root, path, included)
        target_layer = target and layer_of(target)
        if target is None and match.group(1) == '"':
            findings.append(f'{path}:{line}: no file of the tree is "{included}"')
        elif target_layer and allowed is not None and target_layer != layer and target_layer not in allowed:
            findings.append(f"{path}:{line}: {layer} must not include {target_layer} ({included})")
        elif target and room_above(path, target):
            findings.append(f"{path}:{line}: a room of {room_above(path, target)} must not include a room above it "
                            f"({included})")
        elif target is None and layer == "include" and not STANDARD.match(included):
            findings.append(f"{path}:{line}: a public header includes only the standard library, not <{included}>")
        elif target is None and layer in INSTALLED | {"src/base", "src/exchange"} and FOREIGN.match(included) \
                and not allowed_foreign(path, included):
            findings.append(f"{path}:{line}: {layer} must not need <{included}>")
    return findings


def allowed_foreign(path, included):
    """fmt in src/, which is not installed; the device's atomics in the one file that holds every atomic."""
    if path == "include/ferry/detail/base/order.h":
        return included == "cuda/atomic"
    return path.startswith("src/") and included.startswith("fmt/")


def main():
    root = sources.root_argument()
    folders = ("include", "src", "tool", "python", "tests", "benchmarks", "examples")
    files = [file for file in sources.files_under(root, folders)
             if layer_of(file[0]) and not file[0].startswith("tests/package/")]
    return sources.finish("dependencies", len(files),
                          [finding for file in files for finding in check_file(root, *file)])


if __name__ == "__main__":
    sys.exit(main())

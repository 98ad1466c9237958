"""What the tests of the command line share: running `ferry`, inputs of a layer, and the layer in numpy."""
import fcntl
import json
import os
import pathlib
import pty
import random
import re
import socket
import struct
import subprocess
import tempfile
import termios
import unittest

import numpy as np

BINARY = os.environ["FERRY_BINARY"]
DATA = pathlib.Path(os.environ["FERRY_TEST_DATA"])
SANITIZED = os.environ.get("FERRY_SANITIZED") == "1"
REDUCTIONS = ["exact", "by_rank"]
# What mpirun is told: as root, in a container without ssh, and with more processes than cores. Open MPI 4 and 5 read it.
MPIRUN_MAY = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_plm_rsh_agent": "true",
              "OMPI_MCA_rmaps_base_oversubscribe": "1", "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe"}
PROGRESS = re.compile(r"[a-z ]+: [a-z]+ \d+ of \d+ \(\d+ %\), \d+ s|waiting for the other .*, \d+ s\n")


def ferry(*arguments, **options):
    """Runs the tool and returns the finished process, output as text."""
    return subprocess.run([BINARY, *map(str, arguments)], capture_output=True, text=True, timeout=300, **options)


def on_a_terminal(*arguments, columns=0, stream="stdout", **environment):
    """What the tool prints on this stream, a terminal of so many columns; 0: the terminal does not say."""
    reader, writer = pty.openpty()
    fcntl.ioctl(writer, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    inherited = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    streams = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, stream: writer}
    process = subprocess.Popen([BINARY, *map(str, arguments)], **streams,
                               env={**inherited, "TERM": "xterm", "NO_COLOR": "", **environment})
    os.close(writer)
    text = b""
    try:
        while part := os.read(reader, 65536):
            text += part
    except OSError:  # the other end is closed
        pass
    os.close(reader)
    if process.wait() != 0:
        raise AssertionError(f"{arguments} ended with {process.returncode}: {text.decode()}")
    return text.decode()


FORMATS = json.loads(ferry("info", "--json").stdout)["formats"]


def free_port():
    """A port that nothing listens at, below those that connections get by themselves."""
    for tries_left in reversed(range(100)):
        port = random.randrange(12_000, 32_000)
        with socket.socket() as found:
            try:
                found.bind(("", port))
                return port
            except OSError:
                if tries_left == 0:
                    raise


def to_bf16_bits(x):
    """float32 to bf16, nearest even; finite values only."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return ((bits + np.uint32(0x7FFF) + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def from_bf16_bits(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32)


def bf16(x):
    """The nearest bf16 values, as float32."""
    return from_bf16_bits(to_bf16_bits(x))


def make_layer(tokens=61, hidden=64, experts=10, top_k=3, inter=48, seed=1, missing=0.1, shared_inter=0):
    """Arrays of a layer as `ferry layer` takes them. Some ids are -1."""
    rng = np.random.default_rng(seed)
    ids = np.stack([rng.permutation(experts)[:top_k] for _ in range(tokens)]) if tokens else np.zeros((0, top_k))
    ids = ids.astype(np.int32)
    ids[rng.random(ids.shape) < missing] = -1
    normal = lambda *shape: rng.standard_normal(shape, dtype=np.float32)
    arrays = {
        "tokens": normal(tokens, hidden),
        "topk-ids": ids,
        "topk-weights": rng.random((tokens, top_k), dtype=np.float32),
        "gate-up": normal(experts, 2 * inter, hidden) / np.float32(np.sqrt(hidden)),
        "down": normal(experts, hidden, inter) / np.float32(np.sqrt(inter)),
    }
    if shared_inter:
        arrays["shared-gate-up"] = normal(2 * shared_inter, hidden) / np.float32(np.sqrt(hidden))
        arrays["shared-down"] = normal(hidden, shared_inter) / np.float32(np.sqrt(shared_inter))
    return arrays


def expert(x, gate_up, down):
    gate_up, down = bf16(gate_up).astype(np.float64), bf16(down).astype(np.float64)
    inter = down.shape[1]
    gate, up = x @ gate_up[:inter].T, x @ gate_up[inter:].T
    return (gate / (1 + np.exp(-gate)) * up) @ down.T


def dense_layer(arrays):
    """The layer in float64, token by token: nothing of Ferry in it."""
    x = bf16(arrays["tokens"]).astype(np.float64)
    y = np.zeros_like(x)
    for token, ids in enumerate(arrays["topk-ids"]):
        for k, e in enumerate(ids):
            if e >= 0:
                y[token] += arrays["topk-weights"][token, k] * expert(x[token], arrays["gate-up"][e], arrays["down"][e])
    if "shared-down" in arrays:
        y += expert(x, arrays["shared-gate-up"], arrays["shared-down"])
    return y


def split(count, parts):
    """Sizes: the first count % parts have one more."""
    return [count // parts + (part < count % parts) for part in range(parts)]


def without_progress(text):
    """What a command said on standard error, but for how far it is: on a slow machine anything takes seconds."""
    return "".join(line for line in text.splitlines(keepends=True) if not PROGRESS.match(line))


def start(processes, *arguments):
    """Runs the tool as so many processes; a list of what each one's `run` would give."""
    address = f"127.0.0.1:{free_port()}"
    started = []
    for rank in range(processes):
        place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": processes, "FERRY_ADDRESS": address}
        environment = {**os.environ, **{name: str(value) for name, value in place.items()}}
        started.append(subprocess.Popen([BINARY, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        text=True, env=environment))
    done = []
    for process in started:
        out, err = process.communicate(timeout=300)
        done.append(subprocess.CompletedProcess(arguments, process.returncode, out, err))
    return done


class FerryTestCase(unittest.TestCase):
    """A folder of its own for each test, and the checks that all commands share."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="ferry-cli-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def save(self, arrays):
        """Saves arrays as <name>.npy and returns the options that name them."""
        options = []
        for name, array in arrays.items():
            np.save(self.folder / f"{name}.npy", array)
            options += [f"--{name}", self.folder / f"{name}.npy"]
        return options

    def layer(self, arrays, *options, ranks=2):
        return ferry("layer", "--ranks", ranks, *self.save(arrays), "--output", self.folder / "y.npy", *options)

    def assert_done(self, process):
        self.assertEqual(process.returncode, 0, process.stderr)
        self.assertEqual(without_progress(process.stderr), "")

    def assert_refused(self, process, code, *words):
        """One line on stderr with all the words, the exit code, and nothing on stdout."""
        self.assertEqual(process.returncode, code, process.stderr)
        self.assertEqual(process.stdout, "")
        said = without_progress(process.stderr)
        self.assertTrue(said.startswith("ferry: "), said)
        self.assertEqual(said.count("\n"), 1, said)
        for word in words:
            self.assertIn(str(word), said)

    def assert_no_output(self, name="y.npy"):
        """Neither the output nor a part of it is there."""
        left = [path.name for path in self.folder.iterdir() if name in path.name]
        self.assertEqual(left, [])

"""What commit 14cf5a1 of `ferry` took and printed is still there: options and their values, keys of JSON, exit codes.

tests/data/frozen_commands.json was made from the text of that commit and only grows: scripts of users rely on it. Keys
that need GPUs, or processes under oshrun: frozen_keys_test.cpp."""
import json
import re
import unittest

from support import DATA, FerryTestCase, ferry, make_layer

FROZEN = json.loads((DATA / "frozen_commands.json").read_text())
SMALL = ["--ranks", 2, "--experts", 4, "--top-k", 2, "--tokens", 4, "--iterations", 3]


def option_texts(command):
    """{name: what help says of it} of every option of a command, under each of its names."""
    texts, names = {}, []
    for line in ferry(*command.split(), "--help").stdout.splitlines():
        if re.match(r"^ {1,4}-", line):
            names = re.findall(r"(?<![\w-])--?[a-z][a-z0-9-]*", line.split("  ")[1].strip().split(" ")[0])
        elif not line.startswith("   "):
            names = []
        for name in names:
            texts[name] = f"{texts.get(name, '')} {line}"
    return texts


def paths(value, prefix=""):
    """The path of every key, "a.b"; "[]" stands for the elements of an array."""
    found = set()
    if isinstance(value, dict):
        for key, inside in value.items():
            found |= {prefix + key} | paths(inside, f"{prefix}{key}.")
    elif isinstance(value, list):
        for inside in value:
            found |= paths(inside, prefix + "[].")
    return found


class FrozenTestCase(FerryTestCase):
    def assert_keys(self, name, *arguments, lines=False):
        done = ferry(*arguments, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        got = set()
        for text in done.stdout.splitlines() if lines else [done.stdout]:
            got |= paths(json.loads(text))
        self.assertEqual(set(FROZEN["json"][name]) - got, set(), name)

    def test_options(self):
        for command, options in FROZEN["options"].items():
            self.assertEqual(set(options) - option_texts(command).keys(), set(), command)

    def test_values(self):
        for command, options in FROZEN["values"].items():
            texts = option_texts(command)
            for option, values in options.items():
                words = set(re.findall(r"[\w.-]+", texts[option]))
                self.assertEqual({value for value in values if value not in words and value + "." not in words}, set(),
                                 (command, option))

    def test_json_of_layer_and_codec(self):
        arrays = self.save(make_layer(tokens=8))
        self.assert_keys("layer", "layer", "--ranks", 2, *arrays, "--output", self.folder / "y.npy", "--check")
        files = ["--format", "mxfp8", "--payload", self.folder / "p.npy", "--scales", self.folder / "s.npy"]
        self.assert_keys("codec encode", "codec", "encode", "--in", self.folder / "tokens.npy", *files)
        self.assert_keys("codec decode", "codec", "decode", "--out", self.folder / "x.npy", *files)

    def test_json_of_demo_verify_and_info(self):
        (self.folder / "text").write_text("a few words of a text " * 20)
        self.assert_keys("demo", "demo", "--backend", "cpu", "--text", self.folder / "text", "--svg", self.folder / "demo.svg")
        self.assert_keys("verify", "verify", "--backend", "cpu", "--case", "routings/one_token")
        self.assert_keys("verify --list", "verify", "--list")
        self.assert_keys("info", "info", "--ranks", 2, "--experts", 4, "--top-k", 2, "--hidden", 64)

    def test_json_of_bench(self):
        cpu = ["bench", "--backend", "cpu", "--cache", 4, *SMALL]
        self.assert_keys("bench", *cpu, "--hidden", 64, "--routing", "zipf", lines=True)
        self.assert_keys("bench --operation encode", *cpu, "--hidden", 64, "--operation", "encode", lines=True)
        simulate = ["bench", "--simulate", "--tokens", 4, "--ranks", 16]
        self.assert_keys("bench --model", *simulate, "--model", "qwen3-30b", lines=True)
        self.assert_keys("bench --simulate", *simulate, "--routing", "zipf", "--node-limit", 2, "--nic-operations", 10,
                         lines=True)

    def test_exit_codes(self):
        """0: done. 2: bad use: options, or arrays that do not fit. 1: failed: files, memory, checks."""
        self.assert_done(ferry("--version"))
        self.assert_refused(ferry("no-such-command"), 2)
        self.assert_refused(ferry("info", "--no-such-option"), 2)
        self.assert_refused(ferry("bench", "--ranks", 0), 2)
        arrays = make_layer(tokens=8)
        self.assert_refused(self.layer({**arrays, "topk-weights": arrays["topk-weights"][1:]}), 2)
        self.assert_refused(self.layer(arrays, "--text", "x"), 2)
        (self.folder / "down.npy").unlink()
        options = [word for name in arrays for word in (f"--{name}", self.folder / f"{name}.npy")]
        self.assert_refused(ferry("layer", "--ranks", 2, *options, "--output", self.folder / "y.npy"), 1)
        lost = make_layer(tokens=8)
        lost["tokens"][3] = float("nan")
        self.assert_refused(self.layer(lost, "--check"), 1)


if __name__ == "__main__":
    unittest.main()

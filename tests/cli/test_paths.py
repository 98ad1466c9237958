"""Paths that `ferry` refuses, since a file would be lost or would not be where it is looked for; and what an interrupted
dump leaves."""
import json
import os
import signal
import subprocess
import time
import unittest

import numpy as np

from support import BINARY, FerryTestCase, ferry, make_layer


class OwnInputTestCase(FerryTestCase):
    def layer_to(self, output, *options):
        return ferry("layer", "--ranks", 2, *self.options, "--output", output, *options)

    def setUp(self):
        super().setUp()
        self.arrays = make_layer(shared_inter=16)
        self.options = self.save(self.arrays)

    def test_output_of_layer(self):
        for name, array in self.arrays.items():
            path = self.folder / f"{name}.npy"
            with self.subTest(name=name):
                self.assert_refused(self.layer_to(path), 2, f"--output {path} is also --{name}: give another file")
                np.testing.assert_array_equal(np.load(path), array)

    def test_other_names_of_a_file(self):
        tokens = self.folder / "tokens.npy"
        os.link(tokens, self.folder / "hard.npy")
        (self.folder / "soft.npy").symlink_to("tokens.npy")
        (self.folder / "folder").symlink_to(".")
        for name in ("hard.npy", "soft.npy", "./tokens.npy", "folder/tokens.npy"):
            with self.subTest(name=name):
                self.assert_refused(self.layer_to(f"{self.folder}/{name}"), 2, f"{name} is also --tokens {tokens}: give another file")

    def test_an_output_may_replace_an_earlier_one(self):
        (self.folder / "y.npy").write_text("old")
        (self.folder / "z.npy").symlink_to("y.npy")
        self.assert_done(self.layer_to(self.folder / "z.npy"))
        self.assertEqual(np.load(self.folder / "y.npy").shape, self.arrays["tokens"].shape)

    def test_an_input_in_the_dump(self):
        (self.folder / "dump" / "rank0").mkdir(parents=True)
        inside = self.folder / "dump" / "rank0" / "payload.npy"
        (self.folder / "tokens.npy").rename(inside)
        self.options[self.options.index(self.folder / "tokens.npy")] = inside
        process = self.layer_to(self.folder / "y.npy", "--dump", self.folder / "dump")
        self.assert_refused(process, 2, f"--tokens {inside} lies in --dump {self.folder / 'dump'}")

    def test_an_output_in_the_dump(self):
        dump = self.folder / "dump"
        inside = dump / "rank0" / "payload.npy"
        self.assert_refused(self.layer_to(inside, "--dump", dump), 2, f"--output {inside} lies in --dump {dump}")
        self.assert_refused(self.layer_to(dump, "--dump", dump), 2, f"--output {dump} is also --dump")
        self.assertFalse(dump.exists())

    def test_text_of_the_demo(self):
        text = self.folder / "text.txt"
        text.write_text("call me ishmael " * 40)
        self.assert_refused(ferry("demo", "--text", text, "--svg", text), 2, f"--svg {text} is also --text")
        self.assertTrue(text.read_text().startswith("call"))


class NoUtf8TestCase(FerryTestCase):
    def test_a_report_names_such_an_output(self):
        path = os.fsencode(self.folder) + b"/y\xe9.npy"
        arguments = [BINARY, "layer", "--ranks", 2, *self.save(make_layer()), "--json", "--output"]
        done = subprocess.run([*map(str, arguments), path], capture_output=True, timeout=300)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("/y\ufffd.npy", json.loads(done.stdout)["output"])
        self.assertTrue(os.path.exists(path))


class NoPathTestCase(FerryTestCase):
    def test_empty_values(self):
        layer = ["layer", "--ranks", 2, *self.save(make_layer()), "--output", self.folder / "y.npy"]
        for command, option in ((layer, "--dump"), (["bench", "--simulate"], "--output"), (["demo"], "--text"),
                                (["verify"], "--case"), (["bench"], "--tokens")):
            for arguments in ([option, ""], [f"{option}="]):
                with self.subTest(option=option, arguments=arguments):
                    self.assert_refused(ferry(*command, *arguments), 2, f"{option}: its value is empty")
        self.assert_no_output()

    def test_empty_values_between_commas(self):
        for value in ("1,2,", ",1", "1,,2"):
            self.assert_refused(ferry("bench", "--tokens", value), 2, f"--tokens {value}: a value between commas is empty")
        self.assert_refused(ferry("bench", "--tokens", "1", "2,"), 2, "--tokens 2,: a value between commas is empty")

    def test_dash(self):
        options = self.save(make_layer())
        run = lambda *arguments: ferry(*arguments, cwd=self.folder)
        for arguments in (["layer", "--ranks", 2, *options, "--output", "-"],
                          ["layer", "--ranks", 2, *options, "--output", "y.npy", "--dump", "-"],
                          ["bench", "--simulate", "--output", "-"], ["demo", "--no-svg", "--text", "-"]):
            option = arguments[-2]
            with self.subTest(option=option):
                self.assert_refused(run(*arguments), 2, f"{option} -: must be a name", "./-")
        self.assertFalse((self.folder / "-").exists())
        self.assert_done(run("layer", "--ranks", 2, *options, "--output", "./-"))
        self.assertTrue((self.folder / "-").exists())


class InterruptedDumpTestCase(FerryTestCase):
    def dump(self, ranks):
        return [BINARY, "layer", "--backend", "cpu", "--ranks", str(ranks), *map(str, self.options), "--output",
                str(self.folder / "y.npy"), "--dump", str(self.folder / "dump")]

    def interrupt(self, with_signal):
        self.options = self.save(make_layer(tokens=8000, hidden=1024, experts=8, inter=1024))
        process = subprocess.Popen([*self.dump(4), "--check"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while process.poll() is None and not (self.folder / "dump" / "rank3").exists():
            time.sleep(0.005)
        time.sleep(0.2)  # until it listens to signals
        process.send_signal(with_signal)
        self.assertEqual(process.wait(timeout=60), -with_signal, "the layer was done too soon")
        self.options = self.save(make_layer())

    def test_interrupted(self):
        for with_signal in (signal.SIGINT, signal.SIGTERM):
            self.interrupt(with_signal)
            self.assertFalse((self.folder / "dump").exists())

    def test_other_files_stay(self):
        (self.folder / "dump").mkdir()
        (self.folder / "dump" / "mine").mkdir()
        self.interrupt(signal.SIGINT)
        self.assertEqual([path.name for path in (self.folder / "dump").iterdir()], ["mine"])

    def test_killed(self):
        self.interrupt(signal.SIGKILL)
        self.assertTrue((self.folder / "dump" / "rank3").exists())
        done = subprocess.run(self.dump(2), capture_output=True, text=True, timeout=60)
        self.assert_done(done)
        self.assertEqual(sorted(path.name for path in (self.folder / "dump").iterdir()), ["rank0", "rank1"])


if __name__ == "__main__":
    unittest.main()

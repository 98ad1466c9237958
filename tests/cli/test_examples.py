"""`examples/make_layer_inputs.py`: what it takes, what it says without it, and that `ferry layer` takes what it makes."""
import os
import pathlib
import subprocess
import sys
import unittest

from support import DATA, FerryTestCase, ferry

MAKE_INPUTS = pathlib.Path(DATA).parent.parent / "examples" / "make_layer_inputs.py"


class MakeLayerInputsTestCase(FerryTestCase):
    def make(self, *arguments, python=(sys.executable,), environment=None):
        return subprocess.run([*python, MAKE_INPUTS, *map(str, arguments)], capture_output=True, text=True, timeout=60,
                              env={**os.environ, **(environment or {})})

    def test_layer_takes_them(self):
        folder = self.folder / "inputs"
        done = self.make(folder)
        self.assert_done(done)
        self.assertIn("1000 tokens of 512 columns", done.stdout)
        files = zip(("--tokens", "--topk-ids", "--topk-weights", "--gate-up", "--down"), ("x", "ids", "w", "w13", "w2"))
        options = [word for option, name in files for word in (option, folder / f"{name}.npy")]
        layer = ferry("layer", "--ranks", 4, "--backend", "cpu", *options, "--format", "mxfp8", "--check", "--output",
                      self.folder / "y.npy")
        self.assertEqual(layer.returncode, 0, layer.stderr)

    def test_usage(self):
        for arguments in ([], ["a", "b"], ["--ranks"]):
            with self.subTest(arguments=arguments):
                done = self.make(*arguments)
                self.assertEqual((done.returncode, done.stdout), (2, ""))
                self.assertIn("usage: make_layer_inputs.py FOLDER", done.stderr)
        self.assertIn("usage:", self.make("--help").stdout)

    def test_folder_that_cannot_be_written(self):
        done = self.make("/proc/inputs")
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stderr, "make_layer_inputs.py: /proc/inputs: cannot be written: No such file or directory\n")

    def test_full_disk(self):
        folder = self.folder / "inputs"
        limited = ("bash", "-c", 'ulimit -f 100; trap "" XFSZ; exec "$@"', "bash", sys.executable)  # as a full disk
        done = self.make(folder, python=limited)
        self.assertEqual(done.returncode, 1)
        self.assertNotIn("None", done.stderr)
        self.assertEqual(list(folder.iterdir()), [])

    def test_python_of_the_path(self):
        self.assertEqual(MAKE_INPUTS.read_text().splitlines()[0], "#!/usr/bin/env python3")

    def test_python_without_numpy(self):
        without = (sys.executable, "-S", "-E")  # no packages of the site
        done = self.make(self.folder / "inputs", python=without, environment={"FERRY_TRIED_SYSTEM_PYTHON": sys.executable})
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stderr, f"make_layer_inputs.py: {sys.executable} has no numpy: pip install numpy, or "
                                      "apt-get install python3-numpy\n")


if __name__ == "__main__":
    unittest.main()

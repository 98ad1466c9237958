"""Outputs that cannot be written: every command ends with exit code 1 and one line with the option, the file and the
system's reason. And two commands that write to one folder at once."""
import fcntl
import os
import resource
import subprocess
import unittest

import numpy as np

from support import BINARY, FerryTestCase, ferry, make_layer

FAILURE = 1


class UnwritableTestCase(FerryTestCase):
    def setUp(self):
        super().setUp()
        layer = self.save(make_layer())
        tokens = self.folder / "tokens.npy"
        self.assert_done(ferry("codec", "encode", "--format", "bf16", "--in", tokens, "--payload", self.folder / "p.npy"))
        bench = ["bench", "--backend", "cpu", "--ranks", 2, "--hidden", 64, "--experts", 4, "--top-k", 2, "--tokens", 2,
                 "--iterations", 1, "--cache", 4]
        self.commands = [  # each takes an output as its last argument
            ["layer", "--backend", "cpu", "--ranks", 2, *layer, "--output"],
            ["layer", "--backend", "cpu", "--ranks", 2, *layer, "--output", self.folder / "y.npy", "--dump"],
            ["codec", "encode", "--format", "mxfp8", "--in", tokens, "--scales", self.folder / "s.npy", "--payload"],
            ["codec", "encode", "--format", "mxfp8", "--in", tokens, "--payload", self.folder / "q.npy", "--scales"],
            ["codec", "decode", "--format", "bf16", "--payload", self.folder / "p.npy", "--out"],
            [*bench, "--output"],
            [*bench, "--trace"],
            ["bench", "--simulate", "--ranks", 2, "--experts", 4, "--top-k", 2, "--tokens", 2, "--output"],
            ["demo", "--backend", "cpu", "--svg"],
        ]

    def refused(self, to, reason, leave_out=(), **options):
        before = sorted(path.name for path in self.folder.iterdir())
        for command in self.commands:
            if command[-1] in leave_out:
                continue
            with self.subTest(command=command[:2], option=command[-1], to=to):
                process = ferry(*command, to, **options)
                self.assert_refused(process, FAILURE, f"{command[-1]} {to}", reason)
                self.assertEqual(sorted(path.name for path in self.folder.iterdir()), before)

    def test_folder_is_missing(self):
        self.refused(self.folder / "none" / "out", "No such file or directory")

    def test_folder_is_a_file(self):
        (self.folder / "file").write_text("")
        self.refused(self.folder / "file" / "out", "Not a directory")

    def test_folder_of_the_system(self):
        self.refused("/proc/out", "No such file or directory")

    def test_name_too_long(self):
        self.refused(self.folder / ("n" * 300), "File name too long")

    def test_links_in_a_circle(self):
        (self.folder / "a").symlink_to("b")
        (self.folder / "b").symlink_to("a")
        self.refused(self.folder / "a" / "out", "Too many levels of symbolic links")
        self.refused(self.folder / "a", "Too many levels of symbolic links")

    def test_folder_in_place_of_a_file(self):
        (self.folder / "folder").mkdir()
        self.refused(self.folder / "folder", "", leave_out=("--dump",))

    @unittest.skipIf(os.geteuid() == 0, "root may write anywhere")
    def test_no_permission(self):
        (self.folder / "locked").mkdir(mode=0o500)
        self.refused(self.folder / "locked" / "out", "Permission denied")

    def test_full_disk(self):
        def limit():  # SIGXFSZ would end the process, and does so unless it is ignored
            resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))

        self.commands = [command for command in self.commands if command[-1] != "--dump"]
        out = self.folder / "out"
        for command in self.commands:
            with self.subTest(command=command[:2], option=command[-1]):
                process = ferry(*command, out, preexec_fn=limit)
                self.assertEqual(process.returncode, FAILURE)
                self.assertRegex(process.stderr, r"(?m)^ferry: --[a-z]+ .*: cannot be written: File too large$")

    def test_full_standard_output(self):
        for command in (["info"], ["verify", "--list"], ["bench", "--simulate", "--json"], ["--version"], ["--help"],
                        ["help", "codec", "encode"], [*self.commands[2], self.folder / "out"]):
            with self.subTest(command=command[:2]), open("/dev/full", "w") as full:
                process = subprocess.run([BINARY, *map(str, command)], stdout=full, stderr=subprocess.PIPE, text=True,
                                         timeout=60)
                self.assertEqual(process.returncode, FAILURE)
                self.assertEqual(process.stderr, "ferry: cannot write to standard output: No space left on device\n")

    def test_closed_standard_output(self):
        for command in (["version"], ["--version"], ["--help"]):
            with self.subTest(command=command):
                process = ferry(*command, preexec_fn=lambda: os.close(1))
                self.assert_refused(process, FAILURE, "cannot write to standard output: Bad file descriptor")


class TwoAtOnceTestCase(FerryTestCase):
    def dump(self, name):
        return [BINARY, "layer", "--backend", "cpu", "--ranks", "2", *map(str, self.options), "--dump",
                str(self.folder / "dump"), "--output", str(self.folder / name)]

    def setUp(self):
        super().setUp()
        self.options = self.save(make_layer())

    def test_one_dumps_or_both_one_after_the_other(self):
        for _ in range(12):
            both = [subprocess.Popen(self.dump(name), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
                    for name in ("y0.npy", "y1.npy")]
            errors = [process.communicate(timeout=60)[1] for process in both]
            self.assertIn(0, [process.returncode for process in both], errors)
            for process, error in zip(both, errors):
                if process.returncode != 0:
                    self.assertEqual(process.returncode, FAILURE)
                    self.assertIn("dump: another ferry is writing its dump there", error)
            self.assertEqual(np.load(self.folder / "dump" / "rank1" / "src_info.npy").shape[1], 2)
            for path in sorted((self.folder / "dump").rglob("*"), reverse=True):
                path.unlink() if path.is_file() else path.rmdir()
            (self.folder / "dump").rmdir()

    def test_a_folder_in_use_stays_as_it_is(self):
        (self.folder / "dump").mkdir()
        in_use = os.open(self.folder / "dump", os.O_RDONLY)
        self.addCleanup(os.close, in_use)
        fcntl.flock(in_use, fcntl.LOCK_EX)
        process = subprocess.run(self.dump("y.npy"), capture_output=True, text=True, timeout=60)
        self.assert_refused(process, FAILURE, f"--dump {self.folder / 'dump'}", "another ferry is writing its dump there")
        self.assertEqual(list((self.folder / "dump").iterdir()), [])
        self.assert_no_output()

    def test_a_dump_that_fails_leaves_no_folder(self):
        process = subprocess.run([*self.dump("y.npy"), "--check", "--format", "nvfp4", "--input-scale", "1e-30"],
                                 capture_output=True, text=True, timeout=60)
        self.assert_refused(process, FAILURE, "--check")
        self.assertFalse((self.folder / "dump").exists())


if __name__ == "__main__":
    unittest.main()

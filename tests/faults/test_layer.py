"""`ferry layer` loses a process in the middle of its work: the others end with an error that names it, and leave no
file behind."""
import fcntl
import os
import signal
import time
import unittest

import numpy as np

from jobs import BINARY, LOSE_IN_PRODUCT, RANKS, STOP_AT_END, TCP, FaultTestCase, wait_until

DEADLINE = 8  # seconds: longer than the experts of a round take, on a busy machine too
TOKENS = 3 * RANKS * 4096  # a rank's rounds take at most 4096 tokens
PRODUCT = 120  # of a rank, in the second round: each has 2 experts of 8192 rows, 512 in a run of three products


class LayerTestCase(FaultTestCase):
    def options(self, deadline=DEADLINE):
        """A layer of three rounds and little work."""
        rng = np.random.default_rng(1)
        normal = lambda *shape: rng.standard_normal(shape, dtype=np.float32)
        ids = (np.arange(TOKENS)[:, None] + 2 * np.arange(4)) % 8
        arrays = {"tokens": normal(TOKENS, 32), "topk-ids": ids.astype(np.int32), "gate-up": normal(8, 64, 32),
                  "topk-weights": np.full((TOKENS, 4), 0.25, np.float32), "down": normal(8, 32, 32)}
        options = ["--backend", "shmem", "--ranks", RANKS, "--deadline", deadline]
        for name, array in arrays.items():
            np.save(self.folder / f"{name}.npy", array)
            options += [f"--{name}", self.folder / f"{name}.npy"]
        return options

    def start_layer(self, options, lose=-1, fault=LOSE_IN_PRODUCT, **settings):
        self.written = self.folder / "written"
        self.written.mkdir()
        with_fault = ["env", f"LD_PRELOAD={fault}", f"FERRY_LOSE_RANK={lose}",
                      f"FERRY_LOSE_PRODUCT={PRODUCT}"]
        return self.start([*with_fault, BINARY, "layer", *options, "--output", self.written / "y.npy"], **settings)

    def assert_lost(self, job, victim):
        job.wait_for("exit", [victim])
        self.assertEqual(job.exit_code(victim), 128 + signal.SIGKILL, job.said())
        survivors = [rank for rank in range(RANKS) if rank != victim]
        job.wait_for("exit", survivors)
        self.assert_said_in_time(job, job.written_at("exit", victim), survivors)
        self.assert_named_by(job, survivors, victim)

    def assert_said_in_time(self, job, lost, ranks):
        for rank in ranks:
            self.assert_in_time(lost, job.written_at("said", rank), DEADLINE, job.said())

    def assert_named_by(self, job, survivors, victim):
        job.wait_for("exit", survivors)
        for rank in survivors:
            self.assertEqual(job.exit_code(rank), 1, job.said())
            self.assertRegex(job.read("said", rank), f"(?m)^ferry: .*rank {victim} (did not|is missing)")
        self.assertEqual(list(self.written.iterdir()), [])
        job.finish()

    def test_loses_a_process(self):
        self.assert_lost(self.start_layer(self.options(), lose=2), 2)

    def test_loses_the_process_that_writes(self):
        self.assert_lost(self.start_layer(self.options(), lose=0), 0)

    def test_loses_a_process_over_tcp(self):
        self.assert_lost(self.start_layer(self.options(), lose=2, environment=TCP), 2)

    def test_loses_a_process_while_the_first_reads(self):
        """It learns of it when it is done with its file, which this test makes it wait for."""
        options = self.options()
        signal.signal(signal.SIGIO, signal.SIG_IGN)  # told by polling
        with open(self.folder / "tokens.npy", "r+b") as tokens:
            fcntl.fcntl(tokens, fcntl.F_SETLEASE, fcntl.F_WRLCK)
            job = self.start_layer(options)
            wait_until(lambda: fcntl.fcntl(tokens, fcntl.F_GETLEASE) != fcntl.F_WRLCK or job.process.poll() is not None,
                       "the first process does not open its file")
            os.kill(job.pid(2), signal.SIGKILL)
            lost = time.time()
            job.wait_for("exit", [1, 3])
            self.assert_said_in_time(job, lost, [1, 3])
            self.assertFalse(job.has("exit", 0), job.said())
            fcntl.fcntl(tokens, fcntl.F_SETLEASE, fcntl.F_UNLCK)
        self.assert_named_by(job, [0, 1, 3], 2)

    def test_loses_a_process_at_the_end(self):
        """All is written, and the job cannot end: --deadline says how long the others wait for that, too."""
        job = self.start_layer(self.options(), lose=2, fault=STOP_AT_END)
        wait_until(lambda: any(self.written.glob("y.npy")) or job.process.poll() is not None, "no output appears")
        written = time.time()
        job.wait_for("exit", [0, 1, 3])
        self.assert_said_in_time(job, written, [0, 1, 3])
        for rank in (0, 1, 3):
            self.assertEqual(job.exit_code(rank), 1, job.said())
            self.assertRegex(job.read("said", rank), f"(?m)^ferry: rank {rank}: .*{1000 * DEADLINE} ms")
        self.assertFalse(job.has("exit", 2), job.said())

    def test_loses_nobody(self):
        """So the errors of the other tests come from the fault."""
        job = self.start_layer(self.options(deadline=30))
        self.assertEqual(job.finish(), 0, job.said())
        self.assertEqual([path.name for path in self.written.iterdir()], ["y.npy"])


if __name__ == "__main__":
    unittest.main()

"""Four hosts with addresses of their own: they run a layer over TCP, and say who is missing when a link is cut."""
import unittest

import numpy as np
from support import ferry, make_layer

from hosts import Hosts
from jobs import BINARY, RANKS, FaultTestCase, fault_rank


class HostsTestCase(FaultTestCase):
    def setUp(self):
        super().setUp()
        self.hosts = Hosts(RANKS, self.addCleanup)

    def start_on_hosts(self, command):
        return self.start(command, launcher=self.hosts.launcher(), environment=self.hosts.environment())

    def assert_names_one_of(self, job, rank, missing):
        """The rank ended by itself with an error that names one of `missing`, in time."""
        job.wait_for("seen", [rank])
        self.assertTrue(job.has("seen", rank), f"rank {rank} saw nothing: {job.said()}")
        seen = job.seen(rank)
        self.assertIn(seen["missing"], missing, f"{seen}: {job.said()}")
        self.assert_seen_in_time(job, rank)
        job.wait_for("exit", [rank])
        self.assertEqual(job.exit_code(rank), 1)

    def test_a_layer_over_tcp(self):
        options = []
        for name, array in make_layer(tokens=101, hidden=96).items():
            np.save(self.folder / f"{name}.npy", array)
            options += [f"--{name}", self.folder / f"{name}.npy"]
        options += ["--ranks", RANKS, "--format", "mxfp8"]
        job = self.start_on_hosts([BINARY, "layer", "--backend", "shmem", *options, "--output",
                                   self.folder / "hosts.npy"])
        self.assertEqual(job.finish(), 0, job.said())
        threads = ferry("layer", "--backend", "cpu", *options, "--output", self.folder / "threads.npy")
        self.assertEqual(threads.returncode, 0, threads.stderr)
        self.assertEqual((self.folder / "hosts.npy").read_bytes(), (self.folder / "threads.npy").read_bytes())

    def test_a_link_between_two_hosts_is_cut(self):
        """Both ends are alive: each misses the other, and everybody else one of the two."""
        job = self.start_on_hosts(fault_rank(self.folder, "rounds"))
        job.wait_for("ready", range(RANKS))
        self.hosts.cut(2, 3)
        for rank, missing in ((0, [1, 2]), (1, [2]), (2, [1]), (3, [1, 2])):
            self.assert_names_one_of(job, rank, missing)
        job.finish()

    def test_a_host_loses_its_link(self):
        job = self.start_on_hosts(fault_rank(self.folder, "rounds"))
        job.wait_for("ready", range(RANKS))
        self.hosts.unplug(4)
        for rank in (0, 1, 2):
            self.assert_names_one_of(job, rank, [3])
        self.assert_names_one_of(job, 3, [0, 1, 2])
        self.hosts.plug_in(4)  # for the launcher, which would look for its daemon there
        job.finish()


if __name__ == "__main__":
    unittest.main()

"""The conformance suite over OpenSHMEM in jobs of two and four processes, for each way that ranks reach each other."""
import unittest

from test_shmem_layer import TRANSPORTS, ProcessesTestCase, oshrun


class VerifyTestCase(ProcessesTestCase):
    def verify(self, processes, *options, transport="shared memory"):
        done = oshrun(processes, "verify", "--backend", "shmem", *options, environment=TRANSPORTS[transport])
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_shared_memory_2(self):
        self.verify(2)

    def test_shared_memory_4(self):
        self.verify(4, "--quick")

    def test_nodes_2_of_2(self):
        self.verify(2, "--nodes", 2)

    def test_nodes_2_of_4(self):
        self.verify(4, "--nodes", 2, "--quick")

    def test_nodes_4_of_4(self):
        self.verify(4, "--nodes", 4, "--quick")

    def test_tcp_2(self):
        self.verify(2, transport="tcp")

    def test_tcp_4(self):
        self.verify(4, "--quick", transport="tcp")

    def test_tcp_nodes_2_of_4(self):
        self.verify(4, "--nodes", 2, "--quick", transport="tcp")


if __name__ == "__main__":
    unittest.main()

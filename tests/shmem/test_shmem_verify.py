"""The conformance suite over OpenSHMEM in jobs of two and four processes, for each way that ranks reach each other. Nodes
of several ranks have jobs of eight, in CMakeLists.txt. Two processes of two nodes run all cases, and others the quick ones;
more do where FERRY_TEST_ALL is set (./dev test --all)."""
import fcntl
import json
import os
import subprocess
import termios
import time
import unittest

from support import BINARY
from test_shmem_layer import OSHRUN, TRANSPORTS, ProcessesTestCase, oshrun
from verify_job import is_left_out

OF_MORE_RANKS = ("handles/sequence", "handles/short_sequence", "formats/handles", "bytes/handles", "many_rounds_exact",
                 "shapes/", "faults/growing_mask_exact", "faults/aborted_after_a_round",
                 "faults/lost_before_combine_exact", "slow_rank_shared_expert")
WANTS_ALL = bool(os.environ.get("FERRY_TEST_ALL"))


class VerifyTestCase(ProcessesTestCase):
    PIPE = 4096  # bytes, less than is printed
    PATIENCE = 120  # seconds until the first process counts as never printing
    READS_AFTER = 32  # seconds: a deadline of 30, which began when the pipe was full or just before

    def verify(self, processes, *options, transport="shared memory"):
        done = oshrun(processes, "verify", "--backend", "shmem", "--json", *options, environment=TRANSPORTS[transport])
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        cases = json.loads(done.stdout)["cases"]
        self.assertEqual([case for case in cases if is_left_out(case, processes)], [])
        self.assertIn("ok", [case["result"] for case in cases])

    def start_printing_to(self, pipe, *arguments):
        """The tool as two processes that print to `pipe`; each one's id is in pid.<rank>."""
        script = f'echo $$ >"{self.folder}/pid.$OMPI_COMM_WORLD_RANK" && exec "$@" >"{pipe}"'
        job = subprocess.Popen([OSHRUN, "-np", "2", "sh", "-c", script, "sh", BINARY, *arguments],
                               stderr=subprocess.PIPE, text=True, env={**os.environ, **TRANSPORTS["tcp"]})
        self.addCleanup(job.stderr.close)
        self.addCleanup(job.wait)
        self.addCleanup(job.terminate)
        return job

    def bytes_in(self, pipe):
        return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), "little")

    def seconds_of_cpu(self, rank):
        pid = (self.folder / f"pid.{rank}").read_text().strip()
        try:
            with open(f"/proc/{pid}/stat") as stat:
                user, system = stat.read().rsplit(")", 1)[1].split()[11:13]
        except FileNotFoundError:
            self.fail(f"rank {rank} ended while nobody read")
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    def test_a_slow_reader(self):
        """Whoever reads what the first process prints takes longer than the library's deadline: the others wait, and
        rest."""
        path = self.folder / "pipe"
        os.mkfifo(path)
        with open(os.open(path, os.O_RDWR | os.O_NONBLOCK), "rb", buffering=0) as pipe:
            fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, self.PIPE)
            # Cases of short work and long names.
            job = self.start_printing_to(path, "verify", "--backend", "shmem", "--json", "--case", "al")
            end = time.monotonic() + self.PATIENCE
            while self.bytes_in(pipe) < self.PIPE:
                self.assertIsNone(job.poll())
                self.assertLess(time.monotonic(), end)
                time.sleep(0.01)
            before = self.seconds_of_cpu(1)
            time.sleep(self.READS_AFTER)
            # Who waits without rest takes a core, or its share of one.
            self.assertLess(self.seconds_of_cpu(1) - before, self.READS_AFTER / 4)
            text = b""
            while job.poll() is None or self.bytes_in(pipe) != 0:
                text += pipe.read(self.PIPE) or b""
                time.sleep(0.01)
        self.assertEqual(job.returncode, 0, job.stderr.read())
        report = json.loads(text)
        self.assertEqual((report["failed"], len(report["cases"])), (0, report["ok"] + report["skipped"]))

    def test_shared_memory_2(self):
        self.verify(2, "--quick")

    def test_shared_memory_4(self):
        self.verify(4, *(() if WANTS_ALL else ("--quick",)))

    def test_nodes_2_of_2(self):
        self.verify(2, "--nodes", 2)

    def test_cases_of_more_ranks_than_two(self):
        """Those that are not quick, on two nodes of two processes: two processes leave them out."""
        for name in OF_MORE_RANKS:
            with self.subTest(name):
                self.verify(4, "--nodes", 2, "--case", name)

    @unittest.skipUnless(WANTS_ALL, "in ./dev test --all: ranks of a node each are in nodes_2_of_2, more in nodes_3_of_8")
    def test_nodes_4_of_4(self):
        self.verify(4, "--nodes", 4, "--quick")

    def test_tcp_2(self):
        self.verify(2, "--quick", transport="tcp")

    def test_tcp_4(self):
        self.verify(4, "--quick", transport="tcp")


if __name__ == "__main__":
    unittest.main()

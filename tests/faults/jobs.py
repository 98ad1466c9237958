"""Jobs of processes under oshrun whose processes may fail one by one: started, watched, and what became of each."""
import json
import os
import pathlib
import subprocess
import tempfile
import threading
import time
import unittest

BINARY = os.environ["FERRY_BINARY"]
OSHRUN = os.environ["FERRY_OSHRUN"]
FAULT_RANK = os.environ["FERRY_FAULT_RANK"]
LOSE_IN_PRODUCT = os.environ["FERRY_LOSE_IN_PRODUCT"]
STOP_AT_END = os.environ["FERRY_STOP_AT_END"]
RECORD_EXIT = pathlib.Path(__file__).with_name("record_exit.sh")

# Seconds. A rank that is alive must make its deadline also where a busy machine gives it a tenth of a core.
DEADLINE = 5  # of every wait
MARGIN = 4  # after it every survivor has said who is missing, on a busy machine too; less than a second deadline
RANKS = 4
TCP = {"UCX_TLS": "tcp,self"}
PATIENCE = 240  # seconds until a job counts as hung, on a busy machine too
ENVIRONMENT = {  # containers; more processes than cores
    "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_hwloc_base_binding_policy": "none"}


def wait_until(condition, what, seconds=PATIENCE):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"after {seconds} s: {what}")
        time.sleep(0.01)


class Job:
    """A command as `ranks` processes. Each one's exit code, and what the test's program writes, is in `folder`."""

    def __init__(self, folder, ranks, command, recovery=True, environment=None, launcher=()):
        self.folder, self.ranks = pathlib.Path(folder), ranks
        options = [*(["--enable-recovery"] if recovery else []), *launcher]
        self.output = open(self.folder / "output", "w+")
        self.process = subprocess.Popen(
            [OSHRUN, "-np", str(ranks), *options, RECORD_EXIT, self.folder, *map(str, command)], stdout=self.output,
            stderr=subprocess.STDOUT, start_new_session=True,
            env=os.environ | ENVIRONMENT | {"OMPI_MCA_orte_tmpdir_base": str(self.folder)} | (environment or {}))

    def has(self, name, rank):
        return (self.folder / f"{name}.{rank}").exists()

    def read(self, name, rank):
        return (self.folder / f"{name}.{rank}").read_text()

    def written_at(self, name, rank):
        return (self.folder / f"{name}.{rank}").stat().st_mtime

    def wait_for(self, name, ranks):
        wait_until(lambda: all(self.has(name, rank) for rank in ranks) or self.process.poll() is not None,
                   f"{name} of {[rank for rank in ranks if not self.has(name, rank)]} did not appear")

    def pid(self, rank):
        return int(self.read("pid", rank))

    def exit_code(self, rank):
        return int(self.read("exit", rank))

    def seen(self, rank):
        return json.loads(self.read("seen", rank))

    def finish(self):
        """Waits for the end of the launcher and returns its exit code."""
        return self.process.wait(PATIENCE)

    def said(self):
        self.output.seek(0)
        ranks = [rank for rank in range(self.ranks) if self.has("said", rank)]
        return self.output.read() + "".join(f"\nrank {rank}: {self.read('said', rank)}" for rank in ranks)

    def close(self):
        """Ends what is left, by its process id."""
        for rank in range(self.ranks):
            if self.has("pid", rank) and not self.has("exit", rank):
                try:
                    os.kill(self.pid(rank), 9)
                except ProcessLookupError:
                    pass
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(5)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.output.close()


def fault_rank(folder, kind="none", where="dispatch", rank=0, nodes=1, deadline=DEADLINE):
    """The command of the program that fails on purpose (fault_rank.cpp)."""
    return [FAULT_RANK, folder, kind, where, rank, int(deadline * 1000), nodes]


class Stalls(threading.Thread):
    """When the machine kept a thread from running that had next to nothing to do: others were kept as long."""
    PAUSE = 0.02
    USUAL = 0.1  # that a pause takes longer where there are more threads than cores

    def __init__(self):
        super().__init__(daemon=True)
        self.seen = []  # (time.time() at its end, seconds)
        self.ended = threading.Event()

    def run(self):
        before = time.time()
        while not self.ended.wait(self.PAUSE):
            now = time.time()
            if now - before > self.PAUSE + self.USUAL:
                self.seen.append((now, now - before - self.PAUSE))
            before = now

    def between(self, begin, end):
        """Seconds of those that ended in this time."""
        return sum(seconds for at, seconds in self.seen if begin <= at <= end + self.PAUSE)

    def end(self):
        self.ended.set()
        self.join()


class FaultTestCase(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="ferry-faults-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.stalls = Stalls()
        self.stalls.start()
        self.addCleanup(self.stalls.end)

    def assert_in_time(self, lost, ended, deadline=DEADLINE, what=""):
        """Times of time.time(). At most the deadline, the margin, and what the machine stood still meanwhile."""
        self.assertLess(ended - lost, deadline + MARGIN + self.stalls.between(lost, ended), what)

    def assert_seen_in_time(self, job, rank):
        seen, ended = job.seen(rank), job.written_at("seen", rank)
        self.assert_in_time(ended - seen["seconds"], ended, what=seen)

    def start(self, command, ranks=RANKS, **options):
        job = Job(self.folder, ranks, command, **options)
        self.addCleanup(job.close)
        return job

    def assert_named(self, job, rank, missing):
        """The rank ended by itself with an error that names `missing`, in time."""
        self.assertTrue(job.has("seen", rank), f"rank {rank} saw nothing: {job.said()}")
        seen = job.seen(rank)
        self.assertEqual(seen["missing"], missing, f"{seen}: {job.said()}")
        self.assertIn(f"rank {missing}", seen["what"])
        self.assert_seen_in_time(job, rank)
        self.assertTrue(seen["refuses"], seen)
        job.wait_for("exit", [rank])
        self.assertEqual(job.exit_code(rank), 1)

    def assert_survivors_name(self, job, victim):
        for rank in range(job.ranks):
            if rank != victim:
                self.assert_named(job, rank, victim)

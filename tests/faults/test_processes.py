"""A process is killed or stopped in the middle of a call: every other rank says which one is missing, in time."""
import os
import signal
import time
import unittest

from jobs import RANKS, TCP, FaultTestCase, fault_rank, wait_until

VICTIM = 2


class KilledTestCase(FaultTestCase):
    def kill_and_check(self, where, **options):
        job = self.start(fault_rank(self.folder, "kill", where, VICTIM), **options)
        job.finish()
        self.assert_survivors_name(job, VICTIM)
        self.assertFalse(job.has("seen", VICTIM))
        self.assertEqual(job.exit_code(VICTIM), 128 + signal.SIGKILL)

    def test_during_dispatch_over_shared_memory(self):
        self.kill_and_check("dispatch")

    def test_during_combine_over_shared_memory(self):
        self.kill_and_check("combine")

    def test_during_dispatch_over_tcp(self):
        self.kill_and_check("dispatch", environment=TCP)

    def test_during_combine_over_tcp(self):
        self.kill_and_check("combine", environment=TCP)

    def test_while_some_wait_elsewhere(self):
        """Ranks 0 and 1 wait for the victim, and rank 3, which has all it needs, for them: it names the victim, too."""
        job = self.start(fault_rank(self.folder, "kill", "part", VICTIM))
        job.finish()
        self.assert_survivors_name(job, VICTIM)
        self.assertIn("dispatch", job.seen(0)["what"])
        self.assertIn("set-up call", job.seen(3)["what"])

    def test_at_any_moment(self):
        for moment in range(3):
            job = self.start(fault_rank(self.folder, "barriers"), environment=TCP if moment == 1 else None)
            job.wait_for("ready", range(RANKS))
            time.sleep(0.05 * moment)
            victim = 3 - moment
            os.kill(job.pid(victim), signal.SIGKILL)
            job.finish()
            self.assert_survivors_name(job, victim)
            for left in self.folder.iterdir():
                left.unlink()

    def test_of_eight(self):
        """More processes than cores."""
        job = self.start(fault_rank(self.folder, "kill", "combine", VICTIM, nodes=2), ranks=8)
        job.finish()
        self.assert_survivors_name(job, VICTIM)

    def test_nobody(self):
        """The same program without a fault: so the errors of the other tests come from the faults."""
        job = self.start(fault_rank(self.folder))
        self.assertEqual(job.finish(), 0, job.said())
        self.assertEqual([job.exit_code(rank) for rank in range(RANKS)], [0] * RANKS)


class KilledBeforeStartTestCase(FaultTestCase):
    def test_with_recovery(self):
        """The launcher goes on without it: the others wait for it in start-up, and no longer than they may."""
        job = self.start(fault_rank(self.folder, "kill", "start", VICTIM))
        job.finish()
        for rank in range(RANKS):
            if rank == VICTIM:
                continue
            self.assertTrue(job.has("seen", rank), job.said())
            self.assertIn("did not come", job.seen(rank)["what"])
            self.assert_seen_in_time(job, rank)
            job.wait_for("exit", [rank])
            self.assertEqual(job.exit_code(rank), 1)

    def test_without_recovery(self):
        began = time.monotonic()
        job = self.start(fault_rank(self.folder, "kill", "start", VICTIM), recovery=False)
        self.assertNotEqual(job.finish(), 0)
        self.assertLess(time.monotonic() - began, 30)


class StoppedTestCase(FaultTestCase):
    def stop_and_check(self, where, **options):
        job = self.start(fault_rank(self.folder, "stop", where, VICTIM), **options)
        survivors = [rank for rank in range(RANKS) if rank != VICTIM]
        job.wait_for("seen", survivors)
        self.assert_survivors_name(job, VICTIM)
        os.kill(job.pid(VICTIM), signal.SIGCONT)  # it finds that it was given up, and does not hang either
        wait_until(lambda: job.has("exit", VICTIM), f"rank {VICTIM} hangs after it was continued")
        self.assertNotEqual(job.exit_code(VICTIM), 0)
        job.finish()

    def test_during_dispatch_over_shared_memory(self):
        self.stop_and_check("dispatch")

    def test_during_combine_over_shared_memory(self):
        self.stop_and_check("combine")

    def test_during_dispatch_over_tcp(self):
        self.stop_and_check("dispatch", environment=TCP)

    def test_during_combine_over_tcp(self):
        self.stop_and_check("combine", environment=TCP)


if __name__ == "__main__":
    unittest.main()

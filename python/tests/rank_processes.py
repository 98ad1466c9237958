"""Tests whose ranks are processes: starts them, and takes what they return."""

import multiprocessing
import random
import socket
import time
import traceback

LIMIT = 120  # seconds for all of them


def free_port():
    """A port that nothing listens at, below those that connections get by themselves: of these, one may be taken before
    the test listens there."""
    for tries_left in reversed(range(100)):
        port = random.SystemRandom().randrange(12_000, 32_000)
        with socket.socket() as found:
            try:
                found.bind(("127.0.0.1", port))
                return port
            except OSError:
                if tries_left == 0:
                    raise


def _run(body, arguments, answers):
    try:
        answers.send(("returned", body(*arguments)))
    except BaseException as error:  # pylint: disable=broad-except
        answers.send(("raised", f"{type(error).__name__}: {error}\n{traceback.format_exc()}"))


class Ranks:
    """body(rank, size, *arguments) on `size` new processes. `body` is a function of a module."""

    def __init__(self, size, body, *arguments):
        context = multiprocessing.get_context("spawn")
        self.answers, self.processes = [], []
        for rank in range(size):
            mine, theirs = context.Pipe(duplex=False)
            process = context.Process(target=_run, args=(body, (rank, size, *arguments), theirs))
            process.start()
            theirs.close()
            self.answers.append(mine)
            self.processes.append(process)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process, answer in zip(self.processes, self.answers):
            process.kill()
            process.join()
            process.close()
            answer.close()

    def result(self, rank):
        """What the body returned there; None where its process was killed."""
        end = time.monotonic() + LIMIT
        try:
            assert self.answers[rank].poll(max(0, end - time.monotonic())), f"rank {rank} goes on"
            how, what = self.answers[rank].recv()
        except EOFError:
            return None
        assert how == "returned", f"rank {rank}: {what}"
        return what

    def results(self):
        return [self.result(rank) for rank in range(len(self.processes))]


def run(size, body, *arguments):
    with Ranks(size, body, *arguments) as ranks:
        return ranks.results()

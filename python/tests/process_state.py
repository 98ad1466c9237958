"""What a process has: tests compare it before and after a loop that should leave nothing."""

import operator
import os
import pathlib
import threading
import time

GROWTH = 1024  # KiB that the allocator may keep; a loop that leaves a heap behind each time takes more


def open_files_and_mappings():
    """Files, ports too, memory shared with other processes, and threads of Python."""
    maps = pathlib.Path("/proc/self/maps").read_text()
    return len(os.listdir("/proc/self/fd")), maps.count("memfd:ferry"), threading.active_count()


def resident():
    """KiB of memory."""
    return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024


def threads(expected, seconds=10):
    """All threads, those of C++ too. One that has ended may be listed for a moment."""
    end = time.monotonic() + seconds
    while len(os.listdir("/proc/self/task")) > expected and time.monotonic() < end:
        time.sleep(0.01)
    return len(os.listdir("/proc/self/task"))


def require_unchanged(once, count):
    """Calls once() `count` times. Calls before that fill caches."""
    for _ in range(count // 10):
        once()
    before, tasks, memory = open_files_and_mappings(), threads(0, 0.1), resident()
    for _ in range(count):
        once()
    after = open_files_and_mappings()  # fewer where something else had a file open before, as a store of torch may
    assert all(map(operator.le, after, before)), f"{after} files, mappings and threads, {before} before {count} times"
    assert threads(tasks) <= tasks
    growth = resident() - memory
    assert growth < GROWTH, f"{growth} KiB of {count} times"

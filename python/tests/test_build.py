"""What a build has in it, and what it says of GPUs where it has none, or where there are none."""

import subprocess
import sys

import pytest

import ferry

SHAPE = dict(ranks=8, experts=256, top_k=8, max_tokens=128, hidden=7168)


def run_script(text):
    return subprocess.run([sys.executable, "-W", "error", "-c", text], capture_output=True, text=True, timeout=120,
                          check=True).stdout


def test_it_says_what_is_in_it():
    info = ferry.build_info()
    assert info["version"] == ferry.__version__
    assert ferry.has_cuda() == (info["cuda"] is not None) == bool(info["cuda_architectures"])


@pytest.mark.skipif(ferry.has_cuda(), reason="this build has GPU ranks")
def test_without_gpus_it_says_how_to_get_them():
    for call in (lambda: ferry.cuda_worlds(2), lambda: ferry.run_ranks(2, print, device="cuda"),
                 lambda: ferry.cuda_state_bytes(**SHAPE)):
        with pytest.raises(ferry.Unsupported, match="FERRY_CUDA=ON"):
            call()
    assert ferry.cuda_devices() == 0


@pytest.mark.skipif(not ferry.has_cuda(), reason="this build has no GPU ranks")
def test_a_gpu_that_is_not_there_is_named():
    with pytest.raises(ValueError, match=f"device 99 does not exist.*{ferry.cuda_devices()}"):
        ferry.cuda_worlds(1, devices=[99])
    with pytest.raises(ValueError, match="1 GPUs.*2 ranks"):
        ferry.cuda_worlds(2, devices=[0])
    assert ferry.cuda_state_bytes(**SHAPE) > 0


def test_import_is_quick_and_leaves_gpus_alone():
    """Time of CPU: the test may run beside others."""
    times = [float(run_script("""
import time, numpy
start = time.process_time()
import ferry
taken = time.process_time() - start
with open("/proc/self/maps", encoding="ascii") as maps:
    assert not any("libcuda" in line for line in maps)
print(taken)
""")) for _ in range(5)]
    assert min(times) < 0.09, "with numpy, which takes 0.11 s itself, less than 0.2 s"


def test_a_device_is_cpu_or_cuda():
    with pytest.raises(ValueError, match="gpu"):
        ferry.run_ranks(2, print, device="gpu")
    assert ferry.run_ranks(1, lambda world: world.device) == ["cpu"]

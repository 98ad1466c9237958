"""`run` is a function like ferry.run_ranks: on CPUs, and on GPUs where there are some."""

import pytest

import devices

collect_ignore_glob = [] if devices.TORCH else ["torch_tests/*"]
GPUS = devices.Gpus()


@pytest.fixture(params=["cpu", "cuda"])
def run(request):
    if request.param == "cpu":
        return devices.run_on_cpus
    why_not = devices.why_no_gpus()
    if why_not:
        pytest.skip(why_not)
    return GPUS.run

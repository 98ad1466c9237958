"""What `pip install .` would build, by what CMake finds: GPU ranks wherever nvcc 13 is, with a GPU on the machine or not."""

import pathlib
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
tomllib = pytest.importorskip("tomllib", reason="Python 3.11 reads pyproject.toml")
pytest.importorskip("nanobind", reason="configuring the module needs it")
pytestmark = pytest.mark.skipif(not (shutil.which("cmake") and shutil.which("ninja")), reason="needs cmake and ninja")
HAS_NVCC = shutil.which("nvcc") is not None or pathlib.Path("/usr/local/cuda/bin/nvcc").exists()


class Build:
    """The package's build as pip configures it, but for these settings: what the configuring said of CUDA, and the
    commands that would build all of it."""

    def __init__(self, folder, **settings):
        package = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["scikit-build"]
        defines = package["cmake"]["define"] | {"FERRY_APPS": "OFF", "FERRY_SHMEM": "OFF", "SKBUILD": "2"}
        defines |= {"Python_EXECUTABLE": sys.executable} | settings
        done = subprocess.run(["cmake", "-G", "Ninja", "-S", ROOT, "-B", folder,
                               *(f"-D{name}={value}" for name, value in defines.items())], capture_output=True, text=True,
                              timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
        self.said = [line.removeprefix("-- ") for line in done.stdout.splitlines() if line.startswith("-- CUDA:")]
        listed = subprocess.run(["ninja", "-C", folder, "-t", "commands", "all"], capture_output=True, text=True, timeout=60,
                                check=True)
        self.commands = listed.stdout.splitlines()

    def has(self, file):
        return any(file in command for command in self.commands)


@pytest.mark.skipif(not HAS_NVCC, reason="nvcc was not found")
def test_gpu_ranks_where_nvcc_is(tmp_path):
    build = Build(tmp_path)
    assert len(build.said) == 1
    assert "GPU ranks for 90a-real are built in" in build.said[0]
    assert "-Ccmake.define.FERRY_CUDA=OFF leaves them out" in build.said[0]
    assert build.has("cuda_world.cpp") and build.has("src/cuda/kernels/launch.cu") and not build.has("no_cuda.cpp")


def test_none_where_they_are_left_out(tmp_path):
    build = Build(tmp_path, FERRY_CUDA="OFF")
    assert build.said == ["CUDA: left out (FERRY_CUDA=OFF)"]
    assert build.has("no_cuda.cpp") and not build.has("src/cuda/kernels/") and not build.has("cuda_world.cpp")


def test_an_old_nvcc_is_said_and_no_error(tmp_path):
    nvcc = tmp_path / "nvcc"
    nvcc.write_text("#!/bin/sh\necho 'Cuda compilation tools, release 12.4, V12.4.131'\n", encoding="utf-8")
    nvcc.chmod(0o755)
    build = Build(tmp_path / "build", FERRY_NVCC=str(nvcc))
    assert build.said == [f"CUDA: left out ({nvcc} is of CUDA 12; GPU ranks need 13 or newer)"]
    assert build.has("no_cuda.cpp") and not build.has("src/cuda/kernels/")


@pytest.mark.skipif(not HAS_NVCC, reason="nvcc was not found")
@pytest.mark.skipif(any(pathlib.Path("/dev").glob("nvidia[0-9]*")), reason="a GPU was found")
def test_by_hand_a_gpu_decides(tmp_path):
    """As `cmake` by hand, `./dev wheel` and `./dev check python` have it."""
    build = Build(tmp_path, FERRY_CUDA="AUTO")
    assert len(build.said) == 1 and "no GPU was found" in build.said[0]
    assert build.has("no_cuda.cpp") and not build.has("src/cuda/kernels/launch.cu")

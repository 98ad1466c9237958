"""The `ferry` command that comes with the package."""

import pathlib
import subprocess
import sysconfig

import pytest

import ferry

pytestmark = pytest.mark.skipif(not ferry.build_info()["command"], reason="built with FERRY_APPS=OFF")


def run(folder, *arguments):
    command = pathlib.Path(sysconfig.get_path("scripts")) / "ferry"
    done = subprocess.run([command, *arguments], capture_output=True, text=True, timeout=120, check=False, cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_version(tmp_path):
    assert run(tmp_path, "--version") == f"ferry {ferry.__version__}\n"


def test_says_what_a_user_of_pip_can_do(tmp_path):
    text = " ".join(run(tmp_path, "info").split())
    for not_of_pip in ("./dev build cuda", "configure again", "FERRY_SHMEM=AUTO"):
        assert not_of_pip not in text


def test_demo(tmp_path):
    table = [line for line in run(tmp_path, "demo").splitlines() if line.endswith("  ok")]
    assert [line.split()[0] for line in table] == ferry.formats.names()
    assert (tmp_path / "ferry-demo.svg").stat().st_size > 0

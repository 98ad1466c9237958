"""tests/support/run_pytest.py, which ctest runs for the tests on GPUs: what was skipped whole has not passed, whatever its
reason, and what failed was not skipped, whatever it printed."""

import pathlib
import subprocess
import sys

import pytest

RUNNER = pathlib.Path(__file__).resolve().parents[2] / "tests" / "support" / "run_pytest.py"
PASSED, FAILED, NONE_CHOSEN, SKIPPED = 0, 1, 5, 77
TESTS = '''import pytest
def test_passed(): pass
def test_failed(): assert "" == "no GPU was found"
def test_skipped_inside(): pytest.skip("this build has no NVSHMEM")
@pytest.mark.skip(reason="takes two GPUs")
def test_skipped_outside(): pass
'''
SKIPS_ALL = "import pytest\npytest.importorskip('no_such_module')\n"


@pytest.mark.parametrize("text, chosen, code", [
    (TESTS, "passed", PASSED), (TESTS, "passed or skipped", PASSED), (TESTS, "skipped", SKIPPED),
    (TESTS, "failed or skipped", FAILED), (TESTS, "nosuch", NONE_CHOSEN), (SKIPS_ALL, "passed", SKIPPED)])
def test_exit_code(tmp_path, text, chosen, code):
    (tmp_path / "test_some.py").write_text(text)
    done = subprocess.run([sys.executable, RUNNER, "-k", chosen, "test_some.py"], cwd=tmp_path, capture_output=True,
                          check=False, timeout=60)
    assert done.returncode == code, done.stdout

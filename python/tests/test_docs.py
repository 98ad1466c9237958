"""The example runs, and docs/python.md shows a part of it as it is."""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[2]


def test_example():
    done = subprocess.run([sys.executable, "-W", "error", ROOT / "examples" / "moe_layer.py"], capture_output=True,
                          text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("64 tokens to 8 experts on 4 ranks and back")


def test_the_page_has_the_text_of_the_example():
    page = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    shown = re.search(r"```python\n(def body.*?)```", page, re.DOTALL).group(1)
    assert shown in (ROOT / "examples" / "moe_layer.py").read_text(encoding="utf-8")

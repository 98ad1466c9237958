#!/usr/bin/env python3
"""What cmake/FerryAdvice.cmake tells those who lack a part: in a build by pip nothing that pip's user cannot do."""

import pathlib
import re
import subprocess
import tempfile
import unittest

ADVICE = pathlib.Path(__file__).resolve().parent.parent / "cmake" / "FerryAdvice.cmake"


def advice(*settings):
    """The texts by their variables."""
    with tempfile.TemporaryDirectory() as folder:
        script = pathlib.Path(folder, "print.cmake")
        names = sorted(set(re.findall(r"set\((FERRY_\w+)", ADVICE.read_text())))
        script.write_text(f"include(\"{ADVICE}\")\n" + "".join(f'message(NOTICE "{name}=${{{name}}}")\n' for name in names))
        done = subprocess.run(["cmake", *settings, "-P", script], capture_output=True, text=True, timeout=60, check=True)
    return dict(line.split("=", 1) for line in done.stderr.splitlines())


class AdviceTests(unittest.TestCase):
    def test_each_build_has_all_texts(self):
        for settings in ([], ["-DSKBUILD=2"]):
            for name, text in advice(*settings).items():
                self.assertNotEqual(text, "", name)
                self.assertNotIn(";", text, name)

    def test_of_pip(self):
        texts = advice("-DSKBUILD=2")
        self.assertEqual(texts["FERRY_BUILD_WITH_GPUS"], "pip install . -Ccmake.define.FERRY_CUDA=ON")
        for name, text in texts.items():
            for what in ("configure again", "FERRY_SHMEM=AUTO", "did not find"):
                self.assertNotIn(what, text, name)
            if "./dev" in text:
                self.assertIn("in a clone with ./dev build", text, name)

    def test_of_cmake(self):
        for name, text in advice().items():
            self.assertNotIn("pip", text, name)


if __name__ == "__main__":
    unittest.main()

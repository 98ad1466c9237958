#!/usr/bin/env python3
"""What configuring takes and refuses, and which nvcc it takes."""

import os
import pathlib
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
CMAKE = ROOT / "cmake"


def run(*arguments, **environment):
    return subprocess.run(["cmake", *arguments], capture_output=True, text=True, timeout=120, check=False,
                          env={name: value for name, value in os.environ.items() if name not in ("CUDACXX", "CUDA_PATH")}
                          | environment)


class FolderCase(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name, "a folder")
        self.folder.mkdir()

    def script(self, text, *settings, **environment):
        path = self.folder / "script.cmake"
        path.write_text(f"cmake_minimum_required(VERSION 3.25)\n{text}", encoding="utf-8")
        return run(*settings, "-P", path, **environment)

    def nvcc(self, name, release):
        """A program that says that it is of this CUDA."""
        path = self.folder / name / "nvcc"
        path.parent.mkdir()
        path.write_text(f"#!/bin/sh\necho 'Cuda compilation tools, release {release}, V{release}.1'\n", encoding="utf-8")
        path.chmod(0o755)
        return path


class ChoiceTests(FolderCase):
    def choice(self, value, of="choice"):
        done = self.script(f'include("{CMAKE}/FerryChoices.cmake")\nset(WHAT "{value}")\n'
                           f'ferry_{of}(WHAT AUTO ON OFF)\nmessage(NOTICE "${{WHAT}}")\n')
        return done.stderr.strip() if done.returncode == 0 else " ".join(done.stderr.split())

    def test_booleans(self):
        for value in ("on", "YES", "1", "true", "ON"):
            self.assertEqual(self.choice(value), "ON", value)
        for value in ("off", "No", "0", "FALSE"):
            self.assertEqual(self.choice(value), "OFF", value)
        self.assertEqual(self.choice("auto"), "AUTO")

    def test_others_are_refused(self):
        for value in ("", "NVC", "2"):
            self.assertIn(f"WHAT is '{value}'; it must be one of AUTO, ON, OFF", self.choice(value))

    def test_lists(self):
        self.assertEqual(self.choice("ON;OFF", "choices"), "ON;OFF")
        self.assertIn("WHAT has 'units'; there are AUTO, ON, OFF", self.choice("ON;units", "choices"))


class NvccTests(FolderCase):
    def found(self, *settings, **environment):
        done = self.script(f'include("{CMAKE}/FerryNvcc.cmake")\nmessage(NOTICE "${{FERRY_NVCC_RELEASE}} ${{FERRY_NVCC}}")\n',
                           *settings, **environment)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stderr.strip()

    def test_what_is_named_comes_first(self):
        path, environment, named = self.nvcc("path", "12.4"), self.nvcc("environment", "13.1"), self.nvcc("named", "14.0")
        on_path = f"{path.parent}:{os.environ['PATH']}"
        self.assertEqual(self.found(PATH=on_path), f"12 {path}")
        self.assertEqual(self.found(PATH=on_path, CUDACXX=str(environment)), f"13 {environment}")
        self.assertEqual(self.found(f"-DCMAKE_CUDA_COMPILER={named}", PATH=on_path, CUDACXX=str(environment)), f"14 {named}")

    def test_what_is_named_and_not_there(self):
        self.assertEqual(self.found(CUDACXX=str(self.folder / "none")), "0 FERRY_NVCC-NOTFOUND")


class SubprojectTests(FolderCase):
    def test_the_project_around_keeps_its_own(self):
        (self.folder / "CMakeLists.txt").write_text(
            "cmake_minimum_required(VERSION 3.25)\nproject(around LANGUAGES CXX)\n"
            f'add_subdirectory("{ROOT}" ferry)\nmessage(NOTICE "type=[${{CMAKE_BUILD_TYPE}}]")\n', encoding="utf-8")
        done = run("-S", self.folder, "-B", self.folder / "build", "-DFERRY_CUDA=OFF", "-DFERRY_SHMEM=OFF")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("type=[]", done.stderr)
        self.assertEqual([path.name for path in (self.folder / "build").iterdir() if path.is_dir()
                          and path.name not in ("CMakeFiles", "ferry")], [])
        run("--install", self.folder / "build", "--prefix", self.folder / "installed")
        self.assertFalse((self.folder / "installed").exists())


class PackageTests(FolderCase):
    """ferry-config.cmake, with empty targets: what it finds."""

    def found(self, package, *words):
        config = f"{self.folder}/lib/cmake/ferry"
        text = (f'project(uses LANGUAGES NONE)\ninclude(CMakePackageConfigHelpers)\nset(CMAKE_INSTALL_PREFIX "{self.folder}")\n'
                f'configure_package_config_file("{CMAKE}/ferry-config.cmake.in" "{config}/ferry-config.cmake" '
                f'INSTALL_DESTINATION "{config}")\nlist(APPEND CMAKE_MODULE_PATH "{self.folder}")\n')
        text += "".join(f'file(WRITE "{config}/{name}-targets.cmake" "")\n' for name in ("ferry", "ferry-cuda"))
        text += "".join(f'file(WRITE "{self.folder}/Find{name}.cmake" "set({name}_FOUND TRUE)")\n' for name in ("fmt", "Threads"))
        text += f'find_package({package} QUIET {" ".join(words)} PATHS "{self.folder}" NO_DEFAULT_PATH)\n'
        text += f'message(NOTICE "${{{package}_FOUND}} ${{{package}_cuda_FOUND}} ${{{package}_NOT_FOUND_MESSAGE}}")\n'
        (self.folder / "CMakeLists.txt").write_text(f"cmake_minimum_required(VERSION 3.25)\n{text}", encoding="utf-8")
        done = run("-S", self.folder, "-B", tempfile.mkdtemp(dir=self.folder), "-DCMAKE_DISABLE_FIND_PACKAGE_CUDAToolkit=ON")
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stderr.splitlines()[0].strip()

    def test_components_count_by_either_name(self):
        for package in ("ferry", "Ferry"):
            self.assertEqual(self.found(package), "1 FALSE")
            self.assertIn("0 FALSE component shmem is not part of this", self.found(package, "COMPONENTS", "shmem"))

    def test_without_the_toolkit(self):
        self.assertEqual(self.found("ferry", "OPTIONAL_COMPONENTS", "cuda"), "1 FALSE")
        for component in ("cuda", "nvshmem"):
            self.assertIn("0 FALSE component cuda takes the CUDA toolkit", self.found("ferry", "COMPONENTS", component))


class RefusalTests(FolderCase):
    def refused(self, *settings):
        done = run("-S", ROOT, "-B", tempfile.mkdtemp(dir=self.folder), *settings)
        self.assertNotEqual(done.returncode, 0, done.stdout)
        return " ".join(done.stderr.split())

    def test_what_is_asked_for_and_cannot_be(self):
        old = self.nvcc("old", "12.4")
        self.assertIn(f"FERRY_CUDA=ON, but {old} is of CUDA 12", self.refused("-DFERRY_CUDA=ON", f"-DCMAKE_CUDA_COMPILER={old}"))
        self.assertIn("FERRY_NVSHMEM=ON, but it has no GPU ranks", self.refused("-DFERRY_CUDA=off", "-DFERRY_NVSHMEM=ON"))

    def test_a_build_in_the_tree(self):
        (self.folder / "CMakeLists.txt").write_bytes((ROOT / "CMakeLists.txt").read_bytes())
        done = run(self.folder, "-B", self.folder)
        self.assertIn("A build needs a folder of its own", done.stderr)

    def test_words(self):
        for setting, said in (("FERRY_CUDA=NO_SUCH", "one of AUTO, NVCC, ON, OFF"), ("FERRY_SHMEM=NVCC", "one of AUTO, ON, OFF"),
                              ("FERRY_TEST_SUITES=units", "'units'; there are unit, protocol")):
            self.assertIn(said, self.refused(f"-D{setting}"), setting)


if __name__ == "__main__":
    unittest.main()

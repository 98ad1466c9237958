"""`ferry layer` with processes as ranks: the same files as with threads, and what a launcher sees of bad input."""
import json
import os
import subprocess
import tempfile
import unittest

from support import BINARY, FORMATS, REDUCTIONS, FerryTestCase, ferry, make_layer

OSHRUN = os.environ["FERRY_OSHRUN"]
TRANSPORTS = {"shared memory": {}, "tcp": {"UCX_TLS": "tcp,self"}}


def oshrun(processes, *arguments, environment=None):
    """Runs the tool as so many processes and returns the finished launcher, output as text. Jobs beside each other have
    a folder each: one that ends removes the common one while another makes it."""
    with tempfile.TemporaryDirectory(prefix="ferry") as folder:
        return subprocess.run([OSHRUN, "-np", str(processes), BINARY, *map(str, arguments)], capture_output=True,
                              text=True, timeout=300,
                              env={**os.environ, "OMPI_MCA_orte_tmpdir_base": folder, **(environment or {})})


class ProcessesTestCase(FerryTestCase):
    def files_under(self, folder):
        return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}

    def compare(self, arrays, processes, *options, transport="shared memory", nodes=1):
        """Runs the layer on threads and on processes; both must leave the same files."""
        inputs = self.save(arrays)
        common = [*inputs, *options, "--ranks", processes, "--json"]
        reports, files = [], []
        for name in ("threads", "processes"):
            folder = self.folder / f"{name}{len(list(self.folder.iterdir()))}"
            folder.mkdir()
            written = ["--output", folder / "y.npy", "--dump", folder / "rows"]
            if name == "threads":
                done = ferry("layer", "--backend", "cpu", *common, *written)
            else:
                done = oshrun(processes, "layer", "--backend", "auto" if processes > 1 else "shmem", "--nodes", nodes,
                              *common, *written, environment=TRANSPORTS[transport])
            self.assert_done(done)
            reports.append(json.loads(done.stdout))
            files.append(self.files_under(folder))
        self.assertEqual(reports[1]["backend"], "shmem")
        for counted in ("rounds", "rows", "messages", "wire_bytes", "dispatch_bytes", "non_finite_blocks"):
            self.assertEqual(reports[0][counted], reports[1][counted], counted)
        self.assertEqual(files[0].keys(), files[1].keys())
        for name in files[0]:
            self.assertEqual(files[0][name], files[1][name], name)


class SameFilesTestCase(ProcessesTestCase):
    def test_formats(self):
        for number, format_name in enumerate(FORMATS):
            with self.subTest(format=format_name):
                self.compare(make_layer(shared_inter=24 * (number % 2)), 4, "--format", format_name, "--combine",
                             REDUCTIONS[number % 2], nodes=1 + number % 4)

    def test_tcp(self):
        for nodes, reduction in ((1, "by_rank"), (2, "exact")):
            with self.subTest(nodes=nodes, reduction=reduction):
                self.compare(make_layer(tokens=203, hidden=2880, inter=16), 4, "--combine", reduction, "--format",
                             "mxfp8", transport="tcp", nodes=nodes)

    def test_fewer_tokens_than_processes(self):
        self.compare(make_layer(tokens=3), 4, "--check", nodes=2)
        self.compare(make_layer(tokens=0), 2)

    def test_int64_ids(self):
        arrays = make_layer()
        arrays["topk-ids"] = arrays["topk-ids"].astype("int64")
        self.compare(arrays, 3)

    def test_one_process(self):
        self.compare(make_layer(), 1)


class RefusedTestCase(ProcessesTestCase):
    def refused(self, processes, expected, *options, code=2, missing=None):
        output = self.folder / "y.npy"
        inputs = self.save(make_layer())
        if missing:
            (self.folder / missing).unlink()
        done = oshrun(processes, "layer", "--backend", "shmem", *inputs, "--output", output, *options)
        self.assertEqual(done.returncode, code, done.stderr)
        said = [line for line in done.stderr.splitlines() if line.startswith("ferry: ")]
        self.assertEqual(len(said), 1, done.stderr)
        for part in expected:
            self.assertIn(part, said[0])
        self.assertFalse(output.exists())

    def test_ranks_that_are_not_the_processes(self):
        self.refused(2, ["--ranks 4", "2 processes"], "--ranks", 4)

    def test_more_nodes_than_ranks(self):
        self.refused(2, ["--nodes 3", "2"], "--ranks", 2, "--nodes", 3)

    def test_a_file_that_only_the_first_process_opens(self):
        self.refused(3, ["--tokens", "tokens.npy"], "--ranks", 3, code=1, missing="tokens.npy")

    def test_too_little_symmetric_memory(self):
        inputs = self.save(make_layer(tokens=8000, hidden=1024, inter=4))
        done = oshrun(2, "layer", "--backend", "shmem", *inputs, "--ranks", 2, "--output", self.folder / "y.npy",
                      environment={"SHMEM_SYMMETRIC_HEAP_SIZE": "32M"})
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("SHMEM_SYMMETRIC_HEAP_SIZE", done.stderr)
        self.assertFalse((self.folder / "y.npy").exists())

    def test_as_much_symmetric_memory_as_info_says(self):
        inputs = self.save(make_layer(tokens=8000, hidden=1024, inter=4))
        shape = ["--ranks", 2, "--experts", 10, "--top-k", 3, "--tokens", 4000, "--hidden", 1024]
        size = json.loads(ferry("info", "--backend", "shmem", *shape, "--json").stdout)["shmem_symmetric_heap_size"]
        one_round = ["--dump", self.folder / "dump"]
        done = oshrun(2, "layer", "--backend", "shmem", *inputs, "--ranks", 2, "--output", self.folder / "y.npy", *one_round,
                      environment={"SHMEM_SYMMETRIC_HEAP_SIZE": size})
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_the_deadline_is_that_of_the_start_too(self):
        """The other process of the job never starts OpenSHMEM."""
        layer = ["layer", "--backend", "shmem", *self.save(make_layer()), "--ranks", 2, "--output", self.folder / "y.npy"]
        done = subprocess.run([OSHRUN, "-np", "1", BINARY, *map(str, layer), "--deadline", "1", ":", "-np", "1", "sleep",
                               "30"], capture_output=True, text=True, timeout=300)
        for words in "OpenSHMEM had not started after 1000 ms", "--deadline sets a longer deadline":
            self.assertIn(words, done.stderr)

    def test_no_launcher(self):
        done = ferry("layer", "--backend", "shmem", *self.save(make_layer()), "--ranks", 2, "--output",
                     self.folder / "y.npy")
        self.assertEqual(done.returncode, 1)
        self.assertIn("oshrun", done.stderr)


if __name__ == "__main__":
    unittest.main()

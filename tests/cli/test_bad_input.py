"""What `ferry layer` refuses: each with its exit code, one line that names the argument, the value and the limit, and
no output file."""
import io
import os
import resource
import unittest

import numpy as np

from support import SANITIZED, FerryTestCase, ferry, make_layer

BAD_USE = 2
FAILURE = 1


class RefusalTestCase(FerryTestCase):
    def refused(self, arrays, code, *words, options=(), ranks=2):
        process = self.layer(arrays, *options, ranks=ranks)
        self.assert_refused(process, code, *words)
        self.assert_no_output()

    def changed(self, name, array):
        arrays = make_layer()
        arrays[name] = array
        return arrays


class ValuesTestCase(RefusalTestCase):
    def test_id_too_large(self):
        arrays = make_layer(missing=0)
        arrays["topk-ids"][7, 1] = 10
        self.refused(arrays, BAD_USE, "--topk-ids", "token 7", "k 1", "10", "0 to 9")

    def test_id_below_minus_one(self):
        arrays = make_layer(missing=0)
        arrays["topk-ids"][60, 2] = -2
        self.refused(arrays, BAD_USE, "--topk-ids", "token 60", "k 2", "-2", "0 to 9")

    def test_large_int64_id_does_not_wrap(self):
        arrays = make_layer(missing=0)
        arrays["topk-ids"] = arrays["topk-ids"].astype(np.int64)
        arrays["topk-ids"][3, 0] += 2**32
        self.refused(arrays, BAD_USE, "--topk-ids", "token 3", str(arrays["topk-ids"][3, 0]))

    def test_repeated_id(self):
        arrays = make_layer(missing=0)
        arrays["topk-ids"][9, 2] = arrays["topk-ids"][9, 0]
        self.refused(arrays, BAD_USE, "--topk-ids", "token 9", "k 0", "k 2", "once")

    def test_top_k_too_large(self):
        self.refused(make_layer(experts=64, top_k=33), BAD_USE, "--topk-ids", "33", "32")

    def test_top_k_beyond_experts(self):
        arrays = make_layer(experts=10, top_k=4)
        arrays["gate-up"], arrays["down"] = arrays["gate-up"][:3], arrays["down"][:3]
        self.refused(arrays, BAD_USE, "--topk-ids", "K is 4", "3")

    def test_hidden(self):
        self.refused(make_layer(hidden=48), BAD_USE, "--tokens", "48", "multiple of 32")


class DtypesTestCase(RefusalTestCase):
    def test_float64(self):
        for name in ("tokens", "topk-weights", "gate-up", "down"):
            with self.subTest(name=name):
                arrays = self.changed(name, make_layer()[name].astype(np.float64))
                self.refused(arrays, BAD_USE, f"--{name}", "float64", "float32")

    def test_float_ids(self):
        arrays = self.changed("topk-ids", make_layer()["topk-ids"].astype(np.float32))
        self.refused(arrays, BAD_USE, "--topk-ids", "float32", "int32 or int64")

    def test_other_dtypes(self):
        for dtype in (np.int16, np.uint64, np.bool_, np.complex64, np.float16):
            with self.subTest(dtype=dtype):
                self.refused(self.changed("topk-ids", make_layer()["topk-ids"].astype(dtype)), BAD_USE, "--topk-ids",
                             np.dtype(dtype).name)

    def test_big_endian(self):
        arrays = self.changed("tokens", make_layer()["tokens"].astype(">f4"))
        self.refused(arrays, BAD_USE, "--tokens", ">f4", "big-endian")

    def test_fortran_order(self):
        arrays = self.changed("tokens", np.asfortranarray(make_layer()["tokens"]))
        self.refused(arrays, BAD_USE, "--tokens", "Fortran", "C order")

    def test_records_and_objects(self):
        self.refused(self.changed("tokens", np.zeros(3, [("a", "<f4")])), BAD_USE, "--tokens", "records")
        self.refused(self.changed("tokens", np.array([None, 1], object)), BAD_USE, "--tokens", "Python objects")


class ShapesTestCase(RefusalTestCase):
    def test_each_array(self):
        layer = make_layer()
        for name, array, wanted in (
                ("tokens", layer["tokens"][0], "[tokens, hidden]"),
                ("topk-ids", layer["topk-ids"][:-1], "[61, any]"),
                ("topk-ids", layer["topk-ids"][:, 0], "[tokens, K]"),
                ("topk-weights", layer["topk-weights"][:, :2], "[61, 3]"),
                ("topk-weights", layer["topk-weights"].T.copy(), "[61, 3]"),
                ("gate-up", layer["gate-up"][:, :, :32].copy(), "[any, any, 64]"),
                ("gate-up", layer["gate-up"][0], "[experts, 2 * inter, hidden]"),
                ("gate-up", layer["gate-up"][:, :95].copy(), "even"),
                ("down", layer["down"][:9], "[10, 64, 48]"),
                ("down", layer["down"].transpose(0, 2, 1).copy(), "[10, 64, 48]")):
            with self.subTest(name=name, shape=array.shape):
                self.refused(self.changed(name, array), BAD_USE, f"--{name}", ", ".join(map(str, array.shape)), wanted)

    def test_shared_expert(self):
        shared = make_layer(shared_inter=16)
        only_one = {name: array for name, array in shared.items() if name != "shared-down"}
        self.refused(only_one, BAD_USE, "--shared-gate-up", "--shared-down", "both")
        shared["shared-down"] = shared["shared-down"][:, :8].copy()
        self.refused(shared, BAD_USE, "--shared-down", "[64, 8]", "[64, 16]")


class FilesTestCase(RefusalTestCase):
    def with_file(self, name, content):
        options = self.save(make_layer())
        (self.folder / f"{name}.npy").write_bytes(content)
        process = ferry("layer", "--ranks", 2, *options, "--output", self.folder / "y.npy")
        self.assert_no_output()
        return process

    def content(self, name="tokens"):
        self.save(make_layer())
        return (self.folder / f"{name}.npy").read_bytes()

    def test_truncated_data(self):
        for cut in (1, 4, 1000):
            with self.subTest(cut=cut):
                process = self.with_file("tokens", self.content()[:-cut])
                self.assert_refused(process, FAILURE, "--tokens", "truncated", 61 * 64 * 4, 61 * 64 * 4 - cut)

    def test_truncated_header(self):
        for size in (1, 5, 6, 7, 8, 9, 10, 40, 127):
            with self.subTest(size=size):
                self.assert_refused(self.with_file("tokens", self.content()[:size]), FAILURE, "--tokens", "truncated")

    def test_longer_than_announced(self):
        self.assert_refused(self.with_file("tokens", self.content() + b"\0"), FAILURE, "--tokens", "longer")

    def test_empty(self):
        self.assert_refused(self.with_file("tokens", b""), FAILURE, "--tokens", "empty")

    def test_foreign(self):
        for content in (b"hello, world\n" * 100, b"\x89PNG\r\n\x1a\n" + b"\0" * 500, b"\x93NUMPX" + b"\0" * 500):
            with self.subTest(content=content[:8]):
                self.assert_refused(self.with_file("tokens", content), FAILURE, "--tokens", "not a .npy file")

    def test_npz(self):
        np.savez(self.folder / "a.npz", x=np.ones(3))
        self.assert_refused(self.with_file("tokens", (self.folder / "a.npz").read_bytes()), FAILURE, "--tokens", ".npz")

    def test_damaged_header(self):
        whole = self.content()
        for old, new in ((b"'descr'", b"'dexcr'"), (b"False", b"Falsy"), (b"(61, 64)", b"(61, -4)"),
                         (b"(61, 64)", b"(61; 64)"), (b"'shape'", b"'descr'"), (b", }", b", ]"), (b"'<f4'", b"'<f4\"")):
            with self.subTest(new=new):
                self.assertIn(old, whole)
                self.assert_refused(self.with_file("tokens", whole.replace(old, new)), FAILURE, "--tokens", "damaged")

    def test_version(self):
        whole = bytearray(self.content())
        whole[6] = 9
        self.assert_refused(self.with_file("tokens", bytes(whole)), FAILURE, "--tokens", "version", "9")

    def test_sizes_that_overflow(self):
        whole = self.content().replace(b"(61, 64), }" + b" " * 30, b"(4611686018427387904, 4611686018427387), }", 1)
        self.assert_refused(self.with_file("tokens", whole), FAILURE, "--tokens", "large")

    def test_other_versions_are_read(self):
        for version in ((1, 0), (2, 0), (3, 0)):
            with self.subTest(version=version):
                file = io.BytesIO()
                np.lib.format.write_array(file, make_layer()["tokens"], version=version)
                self.assert_done(self.with_file_done(file.getvalue()))

    def with_file_done(self, content):
        options = self.save(make_layer())
        (self.folder / "tokens.npy").write_bytes(content)
        return ferry("layer", "--ranks", 2, *options, "--output", self.folder / "y.npy")

    def test_missing_and_not_a_file(self):
        options = self.save(make_layer())
        (self.folder / "tokens.npy").unlink()
        run = lambda: ferry("layer", "--ranks", 2, *options, "--output", self.folder / "y.npy")
        self.assert_refused(run(), FAILURE, "--tokens", "No such file")
        (self.folder / "tokens.npy").mkdir()
        self.assert_refused(run(), FAILURE, "--tokens", "not a regular file")
        self.assert_no_output()


class OutputTestCase(RefusalTestCase):
    def to(self, output, *options):
        return ferry("layer", "--ranks", 2, *self.save(make_layer()), "--output", output, *options)

    def test_parent_is_missing(self):
        self.assert_refused(self.to(self.folder / "no" / "y.npy"), FAILURE, "--output", "does not exist")
        self.assertFalse((self.folder / "no").exists())

    def test_parent_is_a_file(self):
        (self.folder / "file").write_text("")
        self.assert_refused(self.to(self.folder / "file" / "y.npy"), FAILURE, "--output", "does not exist")

    def test_directory(self):
        self.assert_refused(self.to(self.folder), FAILURE, "--output", "not a regular file")

    def test_device(self):
        self.assert_refused(self.to("/dev/null"), FAILURE, "--output /dev/null", "not a regular file")
        self.assertTrue(os.path.exists("/dev/null"))

    def test_read_only_file_system(self):
        self.assert_refused(self.to("/proc/y.npy"), FAILURE, "--output", "cannot be written")

    @unittest.skipIf(os.geteuid() == 0, "root may write anywhere")
    def test_read_only_directory(self):
        (self.folder / "locked").mkdir(mode=0o500)
        self.assert_refused(self.to(self.folder / "locked" / "y.npy"), FAILURE, "--output", "Permission denied")

    def test_full_disk(self):
        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))

        options = self.save(make_layer())
        process = ferry("layer", "--ranks", 2, "--backend", "cpu", *options, "--output", self.folder / "y.npy",
                        preexec_fn=limit)
        self.assert_refused(process, FAILURE, "--output", "cannot be written")
        self.assert_no_output()

    def test_dump_folder(self):
        (self.folder / "file").write_text("")
        dump_to = lambda folder: self.to(self.folder / "y.npy", "--dump", folder)
        self.assert_refused(dump_to(self.folder / "file"), FAILURE, "--dump", "not a directory")
        self.assert_refused(dump_to(self.folder / "a" / "b"), FAILURE, "--dump", "cannot be made")
        self.assert_no_output()

    def test_earlier_output_survives_a_failure(self):
        (self.folder / "y.npy").write_text("old")
        arrays = make_layer(missing=0)
        arrays["topk-ids"][0, 0] = 99
        self.assert_refused(self.layer(arrays), BAD_USE, "99")
        self.assertEqual((self.folder / "y.npy").read_text(), "old")


class OptionsTestCase(RefusalTestCase):
    def test_ranks(self):
        for ranks, limits in ((0, "1 to 2048"), (-1, "1 to 2048"), (2049, "1 to 2048"), (73, "1 to 72")):
            with self.subTest(ranks=ranks):
                self.refused(make_layer(), BAD_USE, f"--ranks {ranks}", limits, ranks=ranks)

    def test_more_ranks_than_experts(self):
        words = ("--ranks 11", "at most the number of experts, 10")
        self.refused(make_layer(experts=10), BAD_USE, *words, ranks=11)

    def test_nodes(self):
        for nodes, why in ((0, "1 to 2048"), (2, "1 node")):
            self.refused(make_layer(), BAD_USE, f"--nodes {nodes}", why, options=("--nodes", nodes))

    def test_format(self):
        self.refused(make_layer(), BAD_USE, "fp9", "nvfp4", options=("--format", "fp9"))

    def test_combine(self):
        self.refused(make_layer(), BAD_USE, "--combine", "sum", "by_rank", options=("--combine", "sum"))

    def test_reduction(self):
        self.refused(make_layer(), BAD_USE, "--reduction", "sum", "by_rank", "either", options=("--reduction", "sum"))
        self.refused(make_layer(), BAD_USE, "--combine exact", "--reduction by_rank", "either",
                     options=("--reduction", "by_rank", "--combine", "exact"))
        self.refused(make_layer(), BAD_USE, "--message-copies 3", "2, 4", options=("--message-copies", "3"))

    def test_input_scale(self):
        self.refused(make_layer(), BAD_USE, "--input-scale 0", "greater than 0", options=("--input-scale", "0"))

    def test_backend(self):
        for backend in ("shmem", "cuda", "nvshmem"):
            with self.subTest(backend=backend):
                process = self.layer(make_layer(), "--backend", backend)
                if process.returncode != 0:
                    self.assert_refused(process, FAILURE, f"--backend {backend}")
                    self.assert_no_output()
        self.refused(make_layer(), BAD_USE, "--backend", "tpu", "cpu", options=("--backend", "tpu"))

    def test_too_many_tokens_for_one_round(self):
        arrays = make_layer(tokens=3, experts=1000, top_k=2, inter=2, hidden=32)
        arrays["tokens"] = np.zeros((2_200_000, 32), np.float32)
        arrays["topk-ids"] = np.full((2_200_000, 2), -1, np.int32)
        arrays["topk-weights"] = np.zeros((2_200_000, 2), np.float32)
        one_round = ("--dump", self.folder / "dump")
        self.refused(arrays, BAD_USE, "one round (--dump), 2200000", "1 to 2097151, with 2 of 1000 experts", options=one_round, ranks=1)

    def test_missing_options(self):
        process = ferry("layer", "--ranks", 2)
        self.assert_refused(process, BAD_USE, "--tokens", "required")
        self.assert_refused(ferry("layer", "--ranks", "two"), BAD_USE, "--ranks", "two")
        self.assert_refused(ferry("layer", "--rank", "2"), BAD_USE, "--rank")
        self.assert_refused(ferry("carry"), BAD_USE, "carry")


class MemoryTestCase(RefusalTestCase):
    def sparse(self, name, shape):
        """A file whose data takes no room on the disk."""
        with open(self.folder / f"{name}.npy", "wb") as file:
            np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": shape})
            file.truncate(file.tell() + 4 * int(np.prod(shape, dtype=np.int64)))

    def test_weights_larger_than_memory(self):
        options = self.save(make_layer())
        self.sparse("gate-up", (10, 2 * 2**27, 64))
        self.sparse("down", (10, 64, 2**27))
        process = ferry("layer", "--ranks", 2, *options, "--output", self.folder / "y.npy")
        self.assert_refused(process, FAILURE, "--gate-up", "687.2 GB", "available")
        self.assert_no_output()

    @unittest.skipIf(SANITIZED, "a sanitizer's shadow memory needs more than the limit")
    def test_limit_of_the_process(self):
        options = self.save(make_layer())
        self.sparse("gate-up", (10, 2 * 2**19, 64))
        self.sparse("down", (10, 64, 2**19))
        limit = lambda: resource.setrlimit(resource.RLIMIT_DATA, (1 << 30, 1 << 30))
        process = ferry("layer", "--ranks", 2, "--backend", "cpu", *options, "--output", self.folder / "y.npy",
                        preexec_fn=limit)
        self.assert_refused(process, FAILURE, "--gate-up", "2.68 GB", "available")
        self.assert_no_output()


if __name__ == "__main__":
    unittest.main()

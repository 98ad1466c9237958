"""`ferry layer --dump`: rows, offsets, scales and payload of every rank, against the routing done again in numpy."""
import json
import unittest

import numpy as np

from support import FORMATS, REDUCTIONS, FerryTestCase, bf16, ferry, make_layer, split


def owners(experts, ranks):
    """The rank of every expert: the first experts % ranks ranks own one more."""
    return np.repeat(np.arange(ranks), split(experts, ranks))


def route(ids, experts, ranks, alignment, shared):
    """For each rank: padded row offsets, and the (source, token, k) of each row, None for padding."""
    top_k = ids.shape[1]
    sizes = split(len(ids), ranks)
    starts = np.concatenate([[0], np.cumsum(sizes)])
    owner = owners(experts, ranks)
    result = []
    for rank in range(ranks):
        groups = [[(rank, t, top_k) for t in range(sizes[rank])]] if shared else []
        for e in np.flatnonzero(owner == rank):
            groups.append([(s, t, k) for s in range(ranks) for t in range(sizes[s]) for k in range(top_k)
                           if ids[starts[s] + t, k] == e])
        rows, offsets = [], []
        for group in groups:
            offsets.append(len(rows))
            rows += group
            rows += [None] * (-len(rows) % alignment)
        result.append((offsets + [len(rows)], rows))
    return result, starts


class DumpTestCase(FerryTestCase):
    def load(self, rank, name):
        return np.load(self.folder / "dump" / f"rank{rank}" / f"{name}.npy")

    def row_scales(self, rank, format_name, scales, row, first_row, group, count):
        """The scales of a row in column order, wherever the layout puts them."""
        if format_name == "fp8_block128":
            return scales[:, row]
        if format_name != "nvfp4":
            return scales[row]
        offset = int(self.load(rank, "scales_offsets")[group])
        j = row - first_row
        block = (first_row // 128 + offset + j // 128) & 0xFFFFFFFF
        return np.array([scales[block, c // 4, j % 32, j % 128 // 32, c % 4] for c in range(count)])

    def check(self, format_name, reduction, ranks, hidden=160, shared=False, tokens=75):
        arrays = make_layer(tokens=tokens, hidden=hidden, experts=11, top_k=3, inter=8, shared_inter=8 if shared else 0)
        done = self.layer(arrays, "--format", format_name, "--combine", reduction, "--dump", self.folder / "dump",
                          ranks=ranks)
        self.assert_done(done)
        # The same tokens through `ferry codec`, one after the other: what each row must hold.
        np.save(self.folder / "bf16.npy", bf16(arrays["tokens"]))
        has_scales = ["--scales", self.folder / "s.npy"] if format_name != "bf16" else []
        self.assert_done(ferry("codec", "encode", "--format", format_name, "--in", self.folder / "bf16.npy",
                               "--payload", self.folder / "p.npy", *has_scales))
        payloads = np.load(self.folder / "p.npy")
        token_scales = np.load(self.folder / "s.npy") if has_scales else None
        alignment = 4 if format_name == "fp8_block128" else 1
        layout = {"bf16": "none", "fp8_block128": "transposed", "nvfp4": "tiled"}.get(format_name, "row_major")
        for rank in range(ranks):
            said = json.loads((self.folder / "dump" / f"rank{rank}" / "format.json").read_text())
            self.assertEqual(said, {"format": format_name, "hidden": hidden, "scale_layout": layout, "input_scale": 1})
        expected, starts = route(arrays["topk-ids"], 11, ranks, alignment, shared)
        for rank, (offsets, rows) in enumerate(expected):
            np.testing.assert_array_equal(self.load(rank, "row_offsets"), np.array(offsets, np.uint32))
            np.testing.assert_array_equal(self.load(rank, "expert_ids"), np.arange(len(offsets) - 1, dtype=np.int32))
            info, payload, scales = (self.load(rank, name) for name in ("src_info", "payload", "scales"))
            self.assertEqual(info.dtype, np.int32)
            self.assertEqual(payload.dtype, np.uint8)
            self.assertEqual(payload.shape, (offsets[-1], payloads.shape[1]))
            for index, row in enumerate(rows):
                group = max(g for g in range(len(offsets) - 1) if offsets[g] <= index)
                found = None
                if format_name != "bf16":
                    found = self.row_scales(rank, format_name, scales, index, offsets[group], group,
                                            token_scales.shape[1])
                if row is None:
                    self.assertEqual(info[index].tolist(), [-1, -1])
                    self.assertFalse(payload[index].any())
                    self.assertFalse(found.any())
                    continue
                source, token, k = row
                self.assertEqual(info[index].tolist(), [token, k])
                np.testing.assert_array_equal(payload[index], payloads[starts[source] + token])
                if found is not None:
                    np.testing.assert_array_equal(found, token_scales[starts[source] + token])

    def test_formats(self):
        for format_name in FORMATS:
            for reduction in REDUCTIONS:
                with self.subTest(format=format_name, reduction=reduction):
                    self.check(format_name, reduction, 3)

    def test_ranks(self):
        for ranks in (1, 4, 8):
            with self.subTest(ranks=ranks):
                self.check("fp8_block128", "by_rank", ranks)

    def test_shared_expert(self):
        for format_name in ("bf16", "fp8_block128", "nvfp4"):
            with self.subTest(format=format_name):
                self.check(format_name, "by_rank", 4, shared=True)

    def test_many_tiles(self):
        self.check("nvfp4", "exact", 1, hidden=96, tokens=900)

    def test_dump_replaces_an_earlier_one(self):
        self.check("bf16", "exact", 3)
        self.check("mxfp8", "exact", 3)

    def test_offsets_of_an_earlier_format_go(self):
        arrays = make_layer()
        offsets = [self.folder / "dump" / f"rank{rank}" / "scales_offsets.npy" for rank in range(2)]
        self.assert_done(self.layer(arrays, "--format", "nvfp4", "--dump", self.folder / "dump"))
        self.assertTrue(all(file.exists() for file in offsets))
        other = offsets[0].with_name("notes.npy")
        other.write_text("not of a dump")
        self.assert_done(self.layer(arrays, "--format", "mxfp8", "--dump", self.folder / "dump"))
        self.assertFalse(any(file.exists() for file in offsets))
        self.assertTrue(other.exists())

    def test_codec_decodes_a_dump(self):
        """Each row as its token comes back through `ferry codec`; padding is 0."""
        arrays = make_layer(tokens=75, hidden=160, experts=11, top_k=3, inter=8)
        np.save(self.folder / "bf16.npy", bf16(arrays["tokens"]))
        out, p, s = (self.folder / f"{name}.npy" for name in ("out", "p", "s"))
        for format_name in FORMATS:
            with self.subTest(format=format_name):
                scale = ["--input-scale", 37.5] if format_name == "nvfp4" else []
                self.assert_done(self.layer(arrays, "--format", format_name, "--dump", self.folder / "dump", *scale, ranks=3))
                options = ["--format", format_name, *scale]
                files = ["--payload", p, *(["--scales", s] if format_name != "bf16" else [])]
                self.assert_done(ferry("codec", "encode", *options, "--in", self.folder / "bf16.npy", *files))
                self.assert_done(ferry("codec", "decode", *options, *files, "--out", out))
                tokens, starts = np.load(out), np.concatenate([[0], np.cumsum(split(75, 3))])
                alignment = 4 if format_name == "fp8_block128" else 1
                for rank, (_, rows) in enumerate(route(arrays["topk-ids"], 11, 3, alignment, False)[0]):
                    self.assert_done(ferry("codec", "decode", *options, "--dump", self.folder / "dump" / f"rank{rank}",
                                           "--out", out))
                    expected = [tokens[starts[row[0]] + row[1]] if row else np.zeros(160) for row in rows]
                    np.testing.assert_array_equal(np.load(out), np.array(expected, np.float32))

    def test_a_dump_names_its_format(self):
        out = self.folder / "out.npy"
        for format_name, scale in (("fp8_block128", []), ("nvfp4", ["--input-scale", 37.5])):
            self.assert_done(self.layer(make_layer(), "--format", format_name, "--dump", self.folder / "dump", *scale))
            dump = ["--dump", self.folder / "dump" / "rank0", "--out", out]
            self.assert_done(ferry("codec", "decode", "--format", format_name, *scale, *dump))
            told = out.read_bytes()
            self.assert_done(ferry("codec", "decode", *dump))
            self.assertEqual(out.read_bytes(), told)
            out.unlink()
        self.assert_refused(ferry("codec", "decode", "--dump", self.folder / "dump", "--out", out), 2,
                            "has the folders of all ranks", f"{self.folder / 'dump'}/rank0")
        (self.folder / "dump" / "rank0" / "format.json").unlink()
        self.assert_refused(ferry("codec", "decode", *dump), 2, "--format is required", "format.json")
        self.assert_refused(ferry("codec", "decode", "--payload", "p.npy", "--out", out), 2, "--format is required")

    def test_scales_of_a_dispatch_are_told(self):
        arrays = make_layer(tokens=75, hidden=160, experts=11, top_k=3, inter=8)
        for format_name, layout in (("fp8_block128", "transposed"), ("nvfp4", "tiled")):
            self.assert_done(self.layer(arrays, "--format", format_name, "--dump", self.folder / "dump"))
            rank = self.folder / "dump" / "rank0"
            process = ferry("codec", "decode", "--format", format_name, "--payload", rank / "payload.npy", "--scales",
                            rank / "scales.npy", "--out", self.folder / "out.npy")
            self.assert_refused(process, 2, "--scales", "so lie the scales of a dispatch", layout, "--dump DIR")

    def test_dumps_that_are_none(self):
        decode = lambda *options: ferry("codec", "decode", "--out", self.folder / "out.npy", *options)
        self.assert_refused(decode("--format", "mxfp8"), 2, "--payload is required, or --dump")
        self.assert_refused(decode("--format", "mxfp8", "--dump", self.folder), 1, "--dump", "payload.npy", "No such file")
        missing = self.folder / "no"
        self.assert_refused(decode("--dump", missing), 1, f"--dump {missing}: No such file or directory")
        self.assert_refused(decode("--format", "mxfp8", "--dump", "d", "--payload", "p"), 2, "--dump", "--payload")
        arrays = make_layer(tokens=75, hidden=160, experts=11, top_k=3, inter=8)
        self.assert_done(self.layer(arrays, "--format", "nvfp4", "--dump", self.folder / "dump"))
        rank = self.folder / "dump" / "rank0"
        self.assert_refused(decode("--format", "mxfp4", "--dump", rank), 2, "--format mxfp4: the rows of", "are in nvfp4")
        other_scale = decode("--format", "nvfp4", "--input-scale", 37.5, "--dump", rank)
        self.assertIn("note: --input-scale 37.5: the rows of", other_scale.stderr)
        (self.folder / "out.npy").unlink()
        said = json.loads((rank / "format.json").read_text())
        for scale in (0.0, -1, 1e-60, 1e60):
            (rank / "format.json").write_text(json.dumps(said | {"input_scale": scale}))
            self.assert_refused(decode("--dump", rank), 2, "format.json: is not as `ferry layer --dump`")
        (rank / "format.json").write_text("{}")
        self.assert_refused(decode("--format", "nvfp4", "--dump", rank), 2, "format.json: is not as `ferry layer --dump`")
        (rank / "format.json").unlink()
        self.assert_refused(decode("--format", "mxfp4", "--dump", rank), 2, "scales.npy: shape is [")
        self.assert_refused(ferry("codec", "decode", "--format", "nvfp4", "--dump", rank, "--out", rank / "payload.npy"), 2,
                            "is also --dump: give another file")
        offsets = np.load(rank / "scales_offsets.npy")
        np.save(rank / "scales_offsets.npy", offsets + np.uint32(1000))
        self.assert_refused(decode("--format", "nvfp4", "--dump", rank), 2, "tile")
        np.save(rank / "row_offsets.npy", np.load(rank / "row_offsets.npy")[:-1])
        self.assert_refused(decode("--format", "nvfp4", "--dump", rank), 2, "row_offsets.npy", "must be the number of rows")

    def test_larger_dump_is_not_mixed_in(self):
        arrays = make_layer()
        self.assert_done(self.layer(arrays, "--dump", self.folder / "dump", ranks=4))
        (self.folder / "y.npy").unlink()
        process = self.layer(arrays, "--dump", self.folder / "dump", ranks=3)
        self.assert_refused(process, 2, "--dump", "rank3", "0 to 2")
        self.assert_no_output()


if __name__ == "__main__":
    unittest.main()

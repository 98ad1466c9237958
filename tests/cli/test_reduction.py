"""`ferry layer --reduction`: combines of an exchange that could do both, and what they may be."""
import json
import unittest

import numpy as np

from support import REDUCTIONS, FerryTestCase, make_layer


class ReductionOfTheExchangeTestCase(FerryTestCase):
    def output(self, arrays, *options):
        self.assert_done(self.layer(arrays, *options, ranks=3))
        return np.load(self.folder / "y.npy").tobytes()

    def test_combines_that_choose_give_the_same_bytes(self):
        arrays = make_layer(tokens=53, hidden=160, experts=13, top_k=4, inter=40)
        for combine in REDUCTIONS:
            alone = self.output(arrays, "--combine", combine)
            for options in ((), ("--rows", "padded"), ("--message-copies", 4), ("--result-format", "bf16", "--check")):
                with self.subTest(combine=combine, options=options):
                    self.assertEqual(self.output(arrays, "--reduction", "either", "--combine", combine, *options), alone)
        for options, same in ((("exact",), "exact"), (("by_rank",), "by_rank"), (("either",), "by_rank"),
                              (("either", "--rows", "by_source"), "by_rank")):
            self.assertEqual(self.output(arrays, "--reduction", *options), self.output(arrays, "--combine", same), options)

    def test_check_knows_the_bound_of_combines_that_choose(self):
        arrays = make_layer(tokens=53, hidden=160, experts=13, top_k=4, inter=40)
        for combine in REDUCTIONS:
            shares = []
            for options in ((), ("--reduction", "either")):
                done = self.layer(arrays, "--combine", combine, "--result-format", "mxfp8", "--check", "--json", *options)
                self.assert_done(done)
                report = json.loads(done.stdout)
                shares.append(report["check"]["worst_share_of_bound"])
            self.assertEqual(shares[0], shares[1])
            self.assertEqual((report["combine"], report["reduction"], report["message_copies"]), (combine, "either", 2))


if __name__ == "__main__":
    unittest.main()

"""The code of docs/torch.md runs."""

import pathlib
import re

import torch

PAGE = (pathlib.Path(__file__).parents[3] / "docs" / "torch.md").read_text(encoding="utf-8")


def test_the_layer_of_the_page():
    torch.manual_seed(0)
    shown = re.search(r"```python\n(import ferry.torch.*?)```", PAGE, re.DOTALL).group(1)
    names = {}
    exec(shown.replace("ferry.run_ranks(", "found = ferry.run_ranks("), names)  # pylint: disable=exec-used
    for sums, of_tokens, of_matrices in names["found"]:
        assert sums.shape == of_tokens.shape == (16, 256) and of_matrices.shape == (2, 256, 1024)
        assert all(tensor.isfinite().all() and tensor.any() for tensor in (sums, of_tokens, of_matrices))

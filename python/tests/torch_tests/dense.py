"""The dense layer: every token through its experts in plain torch, with no exchange."""

import torch


def expert(matrix, rows):
    return torch.tanh(rows @ matrix)


def sums(tokens, ids, weights, matrices, *, shared=None):
    """[n, hidden]: for each token the sum over k of weight times its expert's output."""
    found = []
    for token, row in enumerate(tokens):
        one = torch.zeros_like(row) if shared is None else expert(shared, row)
        for k, number in enumerate(ids[token].tolist()):
            if number >= 0:
                one = one + (1 if weights is None else weights[token, k]) * expert(matrices[number], row)
        found.append(one)
    return torch.stack(found) if found else tokens * 0


def gradients(layers, matrices, of_sums, **more):
    """Of all ranks' [(tokens, ids, weights)]: ([sums], [gradient of tokens], [of weights], of matrices), in float64."""
    matrices = matrices.double().requires_grad_()
    given = [(tokens.detach().double().requires_grad_(), ids, weights.detach().double().requires_grad_())
             for tokens, ids, weights in layers]
    results = [sums(*one, matrices, **more) for one in given]
    total = sum((result * of.double()).sum() for result, of in zip(results, of_sums))
    leaves = [leaf for tokens, _, weights in given for leaf in (tokens, weights)]
    *of_leaves, of_matrices = torch.autograd.grad(total, [*leaves, matrices], materialize_grads=True)
    return [result.detach() for result in results], of_leaves[0::2], of_leaves[1::2], of_matrices


def assert_close(got, want, room):
    """No element is off by more than `room` of the largest one."""
    assert got.shape == want.shape
    if want.numel():
        want = want.detach()
        error = float((got.detach().double() - want).abs().max()) / max(float(want.abs().max()), 1e-30)
        assert error <= room, f"off by {error:.2e} of the largest element; {room:.0e} is allowed"

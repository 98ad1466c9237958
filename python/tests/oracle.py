"""The serial oracle: where tokens go and what comes back, in plain loops that share no code with the library."""

import dataclasses

import numpy as np


@dataclasses.dataclass
class Layer:
    """The inputs of all ranks: tokens f32 [n, hidden], ids [n, K], weights f32 [n, K] of each."""

    ranks: int
    experts: int
    top_k: int
    hidden: int
    tokens: list
    ids: list
    weights: list

    def owner(self, expert):
        """The E % R first ranks own one expert more; experts of a rank are consecutive."""
        first = 0
        for rank in range(self.ranks):
            first += self.experts // self.ranks + (rank < self.experts % self.ranks)
            if expert < first:
                return rank
        raise AssertionError(expert)

    def experts_of(self, rank):
        return [expert for expert in range(self.experts) if self.owner(expert) == rank]

    def rows_of(self, rank):
        """[(expert, source, token, k)] in the order of rows by_expert: expert, source rank, token."""
        return [(expert, source, token, k) for expert in self.experts_of(rank) for source in range(self.ranks)
                for token in range(len(self.ids[source])) for k in range(self.top_k)
                if self.ids[source][token][k] == expert]

    def messages_of(self, rank):
        """[(source, token)] in the order of rows by_source."""
        mine = set(self.experts_of(rank))
        return [(source, token) for source in range(self.ranks) for token in range(len(self.ids[source]))
                if mine & set(self.ids[source][token].tolist())]

    def results_of(self, rank, arrivals):
        """The results of this rank's experts where expert e multiplies by e + 1."""
        values = arrivals.values()
        for group, expert in enumerate(self.experts_of(rank)):
            values[arrivals.rows_of(group)] *= expert + 1
        return values

    def sums(self, rank, factor):
        """What comes home where expert e multiplies by factor(e), in float64."""
        sums = np.zeros((len(self.tokens[rank]), self.hidden))
        for token, (ids, weights) in enumerate(zip(self.ids[rank], self.weights[rank])):
            for expert, weight in zip(ids, weights):
                if expert >= 0:
                    sums[token] += float(weight) * factor(int(expert)) * self.tokens[rank][token].astype(np.float64)
        return sums


def make_layer(ranks, experts, top_k, hidden, counts, *, seed=0, missing=0.2, only=None):
    """Random tokens that bf16 holds exactly. `missing`: how many ids are -1; `only`: experts that tokens name."""
    random = np.random.default_rng(seed)
    choices = np.arange(experts) if only is None else np.asarray(only)
    tokens, ids, weights = [], [], []
    for n in counts:
        tokens.append(random.integers(-8, 9, (n, hidden)).astype(np.float32))
        named = [random.permutation(choices)[:top_k] for _ in range(n)]
        of_rank = np.full((n, top_k), -1, np.int64)
        for token, row in enumerate(named):
            of_rank[token, :len(row)] = row
        of_rank[random.random((n, top_k)) < missing] = -1
        ids.append(of_rank)
        weights.append((random.integers(1, 5, (n, top_k)) / 4).astype(np.float32))
    return Layer(ranks, experts, top_k, hidden, tokens, ids, weights)

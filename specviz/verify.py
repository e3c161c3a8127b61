"""Acceptance rules: pure functions (draft, p, coins) -> Verdict. This docstring is the glossary of the project.

p           target law after a prefix, after all sampling settings
q           draft law that a token was drawn from, after the same settings; a point mass if nothing was drawn
gamma       draft length: how many tokens are proposed in a round
alpha       acceptance rate: accepted / examined. For one token, P(accept) = sum_x min(p(x), q(x)) = 1 - TV(p, q)
c           t_draft / t_target: one drafter forward in units of one target forward of one row
v(n)        a target forward of n rows in units of one of one row
tau         emitted tokens a target pass: accepted + 1, less what a stop cuts off
accepted    a drafted token that passed its test, hence is emitted
recovered   the token drawn from the residual after a rejection (from p itself under the typical rule, which has no residual)
bonus       the token drawn from p when no candidate was left to reject
residual    max(p - q, 0) / Z, the law that makes up for what accepting min(p, q) leaves out
u           the uniform number of one test: accepted exactly when u < threshold, so never at 0 and always at 1

Every rule here but those outside LOSSLESS emits exactly the law of plain decoding, whatever the drafter. The tests prove
it by summing over every draft and every branch, which is why randomness comes in through `coins`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch

from specviz.tree import Draft


class Rows(Protocol):
    """The laws p, by row: a float[N + 1, V], or what makes each float[V] only when it is asked for."""

    def __getitem__(self, row: int, /) -> torch.Tensor: ...


class Coins(Protocol):
    """All randomness of a run. `toss(a)` is heads with probability a, `draw(law)` is a token of it; both give the uniform used."""

    def toss(self, threshold: float) -> tuple[float, bool]: ...

    def draw(self, law: torch.Tensor) -> tuple[float, int]: ...


class SeededCoins:
    """float64 uniforms in [0, 1) from one generator of its own: the global random state is never touched."""

    def __init__(self, seed: int):
        self.generator = torch.Generator().manual_seed(seed)

    def uniform(self) -> float:
        return float(torch.rand((), dtype=torch.float64, generator=self.generator))

    def toss(self, threshold: float) -> tuple[float, bool]:
        u = self.uniform()
        return u, u < threshold

    def draw(self, law: torch.Tensor) -> tuple[float, int]:
        """law: float[V], non-negative, not necessarily normalised. Inverse of the cumulative sum, in float64."""
        u = self.uniform()
        return u, pick(law, u)


def pick(law: torch.Tensor, u: float) -> int:
    """The token whose interval of the cumulative law holds u in [0, 1). Never one without mass, whose interval is empty."""
    if int(law.count_nonzero()) == 1:
        return int(law.argmax())
    cumulative = law.double().cumsum(0)
    index = int(torch.searchsorted(cumulative, u * cumulative[-1], right=True))
    return index if index < len(law) else int(law.nonzero()[-1])


@dataclass(frozen=True)
class Toss:
    node: int
    p: float  # of the node's token in the law it was tested against (a residual, after a rejected sibling)
    q: float
    u: float
    threshold: float
    accepted: bool


@dataclass(frozen=True)
class Verdict:
    path: tuple[int, ...]  # accepted nodes, root to leaf
    token: int  # drawn after the last of them
    kind: str  # "recovered" | "bonus"
    tests: tuple[Toss, ...]  # in the order in which they were made
    draw: float  # the uniform that drew `token`
    residual: torch.Tensor | None  # float[V] that `token` was drawn from, after a rejection (typical rule: never)
    fell_back: bool = False  # a residual without mass was replaced by p


def residual_of(p: torch.Tensor, q: torch.Tensor | None, x: int) -> tuple[torch.Tensor, bool]:
    """float[V] normalised max(p - q, 0), and whether it had no mass, in which case it is p.

    q None is the point mass on x; nothing is taken away where p has none there, as with most siblings at temperature 0.
    No mass means p = q up to rounding, where a rejection has probability zero: any law is exact then, and p is finite.
    """
    if q is None and p[x] == 0:
        return p, False
    left = p.double() if q is None else (p.double() - q.double()).clamp_(min=0)
    if q is None:
        left = left.clone()
        left[x] = 0
    mass = left.sum()
    return (left / mass, False) if mass > 0 else (p.double(), True)


def token_rule(draft: Draft, p: Rows, coins: Coins) -> Verdict:
    """Children of the last accepted node are tried in order; after a rejection p becomes the residual for the next one.

    p: p[0] float[V] is the law after the root, p[i + 1] after node i; only the rows that are reached are asked for.
    One candidate: Leviathan et al. 2023 and Chen et al. 2023. Siblings from the same q: SpecInfer (Miao et al. 2024).
    Siblings without replacement, each with its renormalised q: EAGLE (Li et al. 2024). Point masses (q is None): the
    test is u < p(x) and the residual is p without x, as in EAGLE-2. All are this one recursion.
    """
    node, path, tests = -1, [], []
    while True:
        law, rejected, fell_back = p[node + 1], False, False
        for child in draft.children(node):
            x = int(draft.tokens[child])
            q = None if draft.q is None else draft.q[child]
            p_x, q_x = float(law[x]), 1.0 if q is None else float(q[x])
            threshold = min(1.0, p_x / q_x) if q_x > 0 else 0.0
            u, accepted = coins.toss(threshold)
            tests.append(Toss(child, p_x, q_x, u, threshold, accepted))
            if accepted:
                node = child
                path.append(child)
                break
            rejected = True
            law, fell_back = residual_of(law, q, x)
        else:
            u, token = coins.draw(law)
            return Verdict(tuple(path), token, "recovered" if rejected else "bonus", tuple(tests), u, law if rejected else None, fell_back)


def block_rule(draft: Draft, p: Rows, coins: Coins) -> Verdict:
    """Block verification (Sun et al. 2025) of a chain: the longest prefix whose own test passes is accepted.

    Thresholds are h_i, not p/q: P_0 = 1, P_i = min(1, P_{i-1} p(x_i)/q(x_i)); R_i = sum max(P_i p - q, 0) with the laws
    after x_i; h_i = R_i / (R_i + 1 - P_i), and h_gamma = P_gamma. Never accepts fewer tokens than the token rule on average.
    Raises ValueError for a tree.
    """
    if not draft.is_chain or any(draft.probe):
        raise ValueError("Block verification needs a chain; choose the token rule for trees.")
    count = len(draft)
    laws = torch.stack([p[row] for row in range(count + 1)]).double()
    q = laws.new_zeros(count, laws.shape[-1])
    for i in range(count):
        q[i] = draft.q[i].double() if draft.q is not None else q[i].index_fill_(0, draft.tokens[i].to(q.device), 1.0)
    weight, weights, tests, accepted = 1.0, [1.0], [], 0
    for i in range(count):
        x = int(draft.tokens[i])
        p_x, q_x = float(laws[i, x]), float(q[i, x])
        weight = min(1.0, weight * p_x / q_x) if q_x > 0 else 0.0
        weights.append(weight)
        threshold = weight
        if i + 1 < count:
            mass = float((weight * laws[i + 1] - q[i + 1]).clamp_(min=0).sum())
            threshold = mass / (mass + 1 - weight) if mass + 1 - weight > 0 else 1.0
        u, passed = coins.toss(threshold)
        tests.append(Toss(i, p_x, q_x, u, threshold, passed))
        accepted = i + 1 if passed else accepted
    path = tuple(range(accepted))
    if accepted == count:
        u, token = coins.draw(laws[count])
        return Verdict(path, token, "bonus", tuple(tests), u, None)
    left = (weights[accepted] * laws[accepted] - q[accepted]).clamp_(min=0)
    mass = left.sum()
    law, fell_back = (left / mass, False) if mass > 0 else (laws[accepted], True)
    u, token = coins.draw(law)
    return Verdict(path, token, "recovered", tuple(tests), u, law, fell_back)


def typical_rule(draft: Draft, p: Rows, coins: Coins, epsilon: float = 0.09, delta: float = 0.3) -> Verdict:
    """Typical acceptance (Medusa, Cai et al. 2024, section 2.3.1): NOT lossless above temperature 0, where it equals plain decoding.

    A token is good enough when p(x) > min(epsilon, delta exp(-H(p))), p being the law after its parent and H its entropy
    in nats. Chance has no say: thresholds are 1 or 0. Of all paths of such tokens the longest is accepted, the likelier
    one of equals; the token after it is drawn from p. p: as for the token rule.
    """

    @functools.cache
    def limit(row: int) -> float:
        return min(epsilon, delta * float(torch.special.entr(p[row].double()).sum().neg().exp()))

    passes, length, weight = [], [0], [0.0]  # of the path down to each row, -1 where one of its tokens fails
    for node, parent in enumerate(draft.parents):
        good, mass = length[parent + 1] >= 0 and not draft.is_probe(node), 0.0
        if good:
            mass = float(p[parent + 1][draft.tokens[node]])
            # what is above epsilon, or below the limit of a law without preference, needs no entropy: that is a pass over the row
            good = mass > limit(parent + 1) if delta / len(p[parent + 1]) < mass <= epsilon else mass > epsilon
        passes.append(good)
        length.append(length[parent + 1] + 1 if good else -1)
        weight.append(weight[parent + 1] + math.log(mass) if good else 0.0)
    leaf = max(range(len(length)), key=lambda row: (length[row], weight[row])) - 1
    path = draft.path(leaf)
    tests: list[Toss] = []
    for parent in (-1, *path):
        for child in draft.children(parent):
            chosen = child in path
            if passes[child] and not chosen:
                continue  # good enough, but on a shorter or less likely path: neither accepted nor rejected
            x = draft.tokens[child]
            threshold = 1.0 if chosen else 0.0
            u, accepted = coins.toss(threshold)
            tests.append(Toss(child, float(p[parent + 1][x]), 1.0 if draft.q is None else float(draft.q[child, x]), u, threshold, accepted))
            if chosen:
                break
    u, token = coins.draw(p[leaf + 1])
    kind = "recovered" if draft.children(leaf) else "bonus"
    return Verdict(tuple(path), token, kind, tuple(tests), u, None)


Rule = Callable[[Draft, Rows, Coins], Verdict]
RULES: dict[str, Rule] = {"token": token_rule, "block": block_rule, "typical": typical_rule}
LOSSLESS = frozenset({"token", "block"})

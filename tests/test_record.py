"""What is displayed recomputes what was decided: every threshold, verdict, residual and draw follows from the trace alone."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from specviz.chance import expectation
from specviz.decode import Limits, decode
from specviz.drafters import DraftModel, Plain, PromptLookup
from specviz.sampling import Sampling
from specviz.stats import summary
from specviz.toy import ToyTarget, random_table
from specviz.trace import Trace, dumps, loads
from specviz.tree import tree
from tests.law import outcomes, remembering
from tests.tinymodels import Watched, prompt_ids, run, tiny
from tests.treedrafters import PartlyRight, TopTree, TreeDrafter

TOY = ToyTarget(random_table(6, 2, seed=1), order=2), ToyTarget(random_table(6, 1, seed=2))
TARGETS = {
    "toy": lambda: TOY,
    "llama": lambda: (tiny("llama"), tiny("llama", noise=0.15)),
    "gemma3": lambda: (tiny("gemma3"), tiny("gemma3", noise=0.15)),
}
DRAFTERS = {
    "plain": lambda model: Plain(),
    "lookup": lambda model: PromptLookup(gamma=4, ngram=2),
    "draft": lambda model: DraftModel(model, gamma=3, confidence=0.0),
    "adaptive": lambda model: DraftModel(model, gamma=2, adaptive="heuristic", confidence=0.2),
    "top tree": lambda model: TopTree(model, (3, 2)),
    "with replacement": lambda model: TreeDrafter(model, (2, 2), "replace"),
    "without replacement": lambda model: TreeDrafter(model, (3, 2), "without"),
    "guesses": lambda model: PartlyRight([1, 2, 3] * 30, 8, model.vocab, 0.5, 3),
}
SETTINGS = {
    "T=1": Sampling(temperature=1.0, seed=3),
    "T=0": Sampling(),
    "all": Sampling(temperature=1.2, top_k=5, top_p=0.9, min_p=0.02, repetition_penalty=1.2, seed=5),
}
CHAINS = ("plain", "lookup", "draft", "adaptive", "guesses")
CASES = [
    (target, drafter, settings, rule)
    for target in TARGETS
    for settings in (SETTINGS if target != "gemma3" else ["T=1"])
    for rule, drafters in (("token", DRAFTERS), ("block", CHAINS))
    for drafter in drafters
]


def trace_of(target: str, drafter: str, settings: str, rule: str, **how) -> Trace:
    model, draft = TARGETS[target]()
    ids = [i % 5 for i in range(8)] if target == "toy" else [*prompt_ids(4), *prompt_ids(4)]
    how = {"capture": 64, **how}
    header, rounds = run(model, DRAFTERS[drafter](draft), ids, SETTINGS[settings], Limits(25), rule=rule, **how)
    return Trace(header, rounds)


def near(value, want, per: float = 1.0):
    """per: what the computation divides by, which scales the rounding of what was stored."""
    assert value == pytest.approx(want, abs=2e-6 / max(per, 1e-4)), (value, want)


@pytest.mark.parametrize(("target", "drafter", "settings", "rule"), CASES)
def test_decisions_and_counts_recompute_from_the_trace(target, drafter, settings, rule):
    trace = loads(dumps(trace_of(target, drafter, settings, rule)))
    assert trace.header.rule == rule and trace.iterations[-1].stop == "limit"
    for it in trace.iterations:
        rows = {row.after: row for row in it.rows}
        end = it.path[-1] if it.path else -1
        assert rows.keys() == {-1, end, *(node.parent for node in it.nodes)}  # what a leaf's law says decided nothing
        for row in it.rows:
            for column in (row.p, row.model, row.q, row.residual):
                assert column is None or (min(column) >= 0 and sum(column) <= 1 + 1e-5)
            children = [node.token for node in it.nodes if node.parent == row.after]
            if row.q is not None:
                overlap = sum(map(min, row.p, row.q))  # every token with mass in both is listed: capture is the vocabulary
                near(row.overlap, overlap)
            elif children:
                near(row.overlap, sum(mass for token, mass in zip(row.ids, row.p, strict=True) if token in children))
            else:
                assert row.overlap is None
        for node in it.nodes:
            row = rows[node.parent]
            near(node.p, row.p[row.ids.index(node.token)])
            likelier = sum(m > row.model[row.ids.index(node.token)] + 1e-9 for m in row.model)
            assert node.rank == likelier
        assert [row.after for row in it.rows if row.residual is not None] == ([end] if it.kind == "recovered" else [])
        (by_token if rule == "token" else by_block)(it, rows)
        drawn(it, rows[end])
    check_counts(trace, TARGETS[target]()[0])


def law(row) -> dict[int, float]:
    return dict(zip(row.ids, row.p, strict=True))


def less(p: dict[int, float], q: dict[int, float]) -> tuple[dict[int, float], float]:
    """Normalised max(p - q, 0), and what it was divided by."""
    left = {t: max(mass - q.get(t, 0.0), 0.0) for t, mass in p.items()}
    total = sum(left.values())
    return ({t: mass / total for t, mass in left.items()}, total) if total > 0 else (p, 1.0)


def by_token(it, rows) -> None:
    """Walks the tree: each child against p, then against what its rejected siblings left over."""
    at, tests, scale = -1, list(it.tests), 1.0
    p = law(rows[-1])
    while tests:
        test = tests.pop(0)
        node = it.nodes[test.node]
        assert node.parent == at
        near(test.p, p[node.token], scale)
        near(test.q, 1.0 if node.q is None else node.q)
        near(test.threshold, min(1.0, test.p / test.q) if test.q else 0.0)
        assert test.accepted == (test.u < test.threshold)
        if test.accepted:
            at, p, scale = test.node, law(rows[test.node]), 1.0
            continue
        p, total = less(p, law_of_child(it, rows, test.node))
        scale *= total
    assert at == (it.path[-1] if it.path else -1)
    row = rows[at]
    if row.residual is not None and not it.note.get("fell_back"):
        for token, value in zip(row.ids, row.residual, strict=True):
            near(value, p.get(token, 0.0), scale)


def law_of_child(it, rows, child: int) -> dict[int, float]:
    """What a child was drawn from. Siblings without replacement: the first one's law without the earlier ones, rescaled."""
    node = it.nodes[child]
    if node.q is None:
        return {node.token: 1.0}
    row = rows[node.parent]
    q = dict(zip(row.ids, row.q, strict=True))
    earlier = [n.token for n in it.nodes[:child] if n.parent == node.parent]
    if q[node.token] and abs(node.q - q[node.token]) > 1e-6:
        q = {t: 0.0 if t in earlier else mass for t, mass in q.items()}
        total = sum(q.values())
        q = {t: mass / total for t, mass in q.items()}
    near(node.q, q[node.token], 0.01)
    return q


def by_block(it, rows) -> None:
    """Block verification: thresholds h_i from the products of p/q, and the last one that passes counts."""
    count, weight, accepted, weights = len(it.nodes), 1.0, 0, [1.0]
    assert [test.node for test in it.tests] == list(range(count))
    for i, (node, test) in enumerate(zip(it.nodes, it.tests, strict=True)):
        q = 1.0 if node.q is None else node.q
        near(test.p, node.p)
        near(test.q, q)
        weight = min(1.0, weight * node.p / q) if q else 0.0
        weights.append(weight)
        want = weight
        if i + 1 < count:
            q_next = law_of_child(it, rows, i + 1)
            mass = sum(max(weight * p - q_next.get(t, 0.0), 0.0) for t, p in law(rows[i]).items())
            want = mass / (mass + 1 - weight) if mass + 1 - weight > 1e-9 else 1.0
            if mass + 1 - weight < 1e-4:
                want = test.threshold  # nothing over nothing: rounding decides, and any value is exact
        assert test.threshold == pytest.approx(want, abs=2e-4 if i + 1 < count else 2e-6)
        assert test.accepted == (test.u < test.threshold)
        accepted = i + 1 if test.accepted else accepted
    assert it.path == list(range(accepted))
    row = rows[accepted - 1]
    if row.residual is not None and not it.note.get("fell_back"):
        q = law_of_child(it, rows, accepted)
        left, total = less({t: weights[accepted] * p for t, p in law(row).items()}, q)
        for token, value in zip(row.ids, row.residual, strict=True):
            near(value, left.get(token, 0.0), total)


def drawn(it, row) -> None:
    """The last token has mass in the law it was drawn from, and is where `draw` points in the cumulative law."""
    source = dict(zip(row.ids, row.residual if row.residual is not None else row.p, strict=True))
    assert source[it.token] > 0 and 0 <= it.draw < 1
    below = sum(mass for token, mass in source.items() if token < it.token)
    slack = 1e-5 if row.residual is None else 1e-3
    assert below - slack <= it.draw <= below + source[it.token] + slack


def check_counts(trace: Trace, model) -> None:
    counts = summary(trace)
    rounds = trace.iterations
    cut = sum(len(it.discarded) for it in rounds)
    assert counts.new_tokens == len(trace.ids) == sum(len(it.path) + 1 for it in rounds) - cut == 25
    assert counts.accepted <= counts.examined <= counts.drafted or not counts.drafted
    assert counts.iterations == len(rounds) and counts.passes == sum(it.passes for it in rounds)
    at = trace.header.prompt_ids[-1]
    for i, it in enumerate(rounds):
        assert (it.index, it.root) == (i, at)
        assert it.emitted + it.discarded == [it.nodes[n].token for n in it.path] + [it.token]
        assert all(it.nodes[n].depth == d for d, n in enumerate(it.path, 1))
        at = it.emitted[-1] if it.emitted else at
        assert it.start == pytest.approx(sum(before.time for before in rounds[:i]))
        assert it.seconds.keys() == {"draft", "target", "verify", "commit", "record"} | ({"prefill"} if i == 0 else set())
        named = {it.root, it.token, *it.emitted, *it.discarded, *(n.token for n in it.nodes), *(t for row in it.rows for t in row.ids)}
        assert {int(t) for t in it.texts} == named
        assert all(bytes.fromhex(text) == model.token_bytes(int(t)) for t, text in it.texts.items())


@pytest.mark.parametrize("drafter", DRAFTERS)
def test_what_is_captured_changes_nothing_that_is_decided(drafter):
    runs = [trace_of("llama", drafter, "T=1", "token", capture=capture) for capture in (0, 1, 8)]
    facts = [[(it.emitted, it.path, it.tests, it.draw, [n.q for n in it.nodes]) for it in trace.iterations] for trace in runs]
    assert facts[0] == facts[1] == facts[2]
    assert [[n.p for n in it.nodes] for it in runs[1].iterations] == [[n.p for n in it.nodes] for it in runs[2].iterations]
    for bare, full in zip(runs[0].iterations, runs[1].iterations, strict=True):
        for node, known in zip(bare.nodes, full.nodes, strict=True):  # laws that no decision needed are not made
            assert node.p == (known.p if node.parent in (-1, *bare.path) else None)
    assert all(not it.rows and all(n.rank == -1 for n in it.nodes) for it in runs[0].iterations)
    for it in runs[1].iterations:
        for row in it.rows:
            assert len(row.ids) <= 2 + 3 + 1


def test_the_drawn_and_the_drafted_are_always_listed():
    for drafter in DRAFTERS:
        for it in trace_of("llama", drafter, "all", "token", capture=1).iterations:
            rows = {row.after: row for row in it.rows}
            assert all(node.token in rows[node.parent].ids for node in it.nodes)
            assert it.token in rows[it.path[-1] if it.path else -1].ids


class Noting(TreeDrafter):
    """A note that mentions tokens which are no nodes."""

    def propose(self, state):
        draft = super().propose(state)
        self.drafts = [*getattr(self, "drafts", []), draft]
        return dataclasses.replace(draft, note={"guesses": [[60, 61]], "named": [60, 61]})


def test_tokens_that_a_note_names_have_texts():
    target, drafter = tiny("llama"), Noting(tiny("llama", noise=0.1), (2, 1))
    header, rounds = run(target, drafter, [1, 2], Sampling(), Limits(6))
    for it in rounds:
        assert it.note == {"guesses": [[60, 61]]}
        assert bytes.fromhex(it.texts["60"]) == target.token_bytes(60) and "61" in it.texts
    assert loads(dumps(Trace(header, rounds))).iterations == rounds


def test_what_probes_say_is_not_recorded_and_the_first_candidate_is_none_of_them():
    class First(TreeDrafter):
        """A probe stands before the candidates, with a law that says something else."""

        def propose(self, state):
            draft = super().propose(state)
            if not len(draft):
                return draft
            odd = torch.zeros_like(draft.q[0])
            odd[3] = 1
            tokens, parents = [3, *draft.tokens.tolist()], [-1, *(parent + (parent >= 0) for parent in draft.parents)]
            return tree(tokens, parents, [odd, *draft.q], probe=(True, *[False] * len(draft)))

    header, rounds = run(TOY[0], First(TOY[1], (1, 1), "replace"), [1, 2], Sampling(temperature=1.0), Limits(12), capture=64)
    for it in rounds:
        root = next(row for row in it.rows if row.after == -1)
        if len(it.nodes) > 1:
            assert root.q[root.ids.index(it.nodes[1].token)] == it.nodes[1].q
            near(root.overlap, sum(map(min, root.p, root.q)))
        assert 0 not in {row.after for row in it.rows}
    assert loads(dumps(Trace(header, rounds))).iterations == rounds


class Probing(TreeDrafter):
    """Adds tokens that are scored but are no candidates."""

    def propose(self, state):
        draft = super().propose(state)
        tokens, parents = draft.tokens.tolist(), list(draft.parents)
        probe = tuple([False] * len(parents) + [True, True])
        return tree([*tokens, 1, 2], [*parents, -1, len(parents)], probe=probe)


def test_probes_are_scored_and_never_judged():
    target = Watched(tiny("llama"))
    header, rounds = run(target, Probing(tiny("llama", noise=0.1), (2, 2)), [1, 2], Sampling(temperature=1.0), Limits(20))
    for it in rounds:
        assert [node.probe for node in it.nodes][-2:] == [True, True]
        assert not {len(it.nodes) - 1, len(it.nodes) - 2} & {*it.path, *(test.node for test in it.tests)}
    counted = summary(Trace(header, rounds))
    assert counted.drafted <= sum(len(it.nodes) - 2 for it in rounds)
    assert loads(dumps(Trace(header, rounds))).ids == Trace(header, rounds).ids


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("drafter", ["plain", "lookup", "draft", "top tree"])
def test_what_a_round_brings_on_average_is_what_its_nodes_promise(drafter, settings):
    """Summed over all draws and branches of one round: exactly; no round of a run has to be lucky."""
    target, draft = ToyTarget(random_table(3, 2, seed=1), order=2, stop_ids=(2,)), ToyTarget(random_table(3, 1, seed=2))
    sampling = remembering(SETTINGS[settings])
    promised = brought = 0.0

    def first(coins):
        how = {"prompt_ids": [0, 1, 0, 1], "coins": coins, "capture": 1}
        records = decode(target, DRAFTERS[drafter](draft), "", sampling, Limits(3), **how)
        return Trace(next(records), [next(records)])

    for trace, probability in outcomes(first):
        found = expectation(trace)
        promised += probability * found.expected
        brought += probability * found.measured
    assert promised == pytest.approx(brought, abs=1e-12) and promised >= 1


def test_a_long_run_brings_what_it_promised():
    for drafter in ("draft", "top tree", "lookup"):
        model, draft = TARGETS["toy"]()
        header, rounds = run(model, DRAFTERS[drafter](draft), [0, 1, 2, 0, 1], SETTINGS["T=1"], Limits(600), capture=1)
        found = expectation(Trace(header, rounds))
        assert found.rounds == len(rounds) and 0 < found.error < 0.1
        assert abs(found.measured - found.expected) < 4.5 * found.error

"""What is counted, against the fixture worked out by hand, and the identities every run must keep."""

import dataclasses
import itertools
import json

import pytest

from specviz import chance, stats
from specviz import trace as tr
from tests import traces


@pytest.mark.parametrize("order", sorted(set(itertools.permutations((4, 0, 2, 1)))))
def test_f5_in_every_order(order):
    run = traces.f5(order)
    total = stats.summary(run)
    assert (total.drafted, total.accepted, total.examined, total.new_tokens) == (16, 7, 10, 11)
    assert total.accepted_of_drafted == 7 / 16 and total.alpha == 7 / 10
    assert total.mean_accepted == 1.75 and total.tau == 2.75 and total.wasted == 9
    positions = stats.by_position(run)
    assert [p.unconditional for p in positions] == [0.75, 0.5, 0.25, 0.25]
    assert [p.conditional for p in positions] == pytest.approx([0.75, 2 / 3, 0.5, 1.0])
    assert stats.accept_lengths(run) == [1, 1, 1, 0, 1]


CASES = {
    "f5": traces.f5(),
    "all": traces.run(4, 4, 4),
    "none": traces.run(0, 0),
    "plain": traces.run(0, 0, 0, plain=True),
    "cut in accepted": traces.run(2, 4, keep=2, stop="end_of_text"),
    "cut at the end": traces.run(2, 4, keep=4, stop="stop_string"),
    "cut before a rejection": traces.run(2, keep=1, stop="end_of_text"),
    "cut exactly before the last": traces.run(2, keep=2, stop="end_of_text"),
    "tree": traces.tree(),
    "empty": tr.Trace(traces.header(), []),
}


@pytest.mark.parametrize("name", CASES)
def test_identities(name):
    run = CASES[name]
    total = stats.summary(run)
    cut = sum(len(it.discarded) for it in run.iterations)
    assert total.new_tokens == sum(len(it.path) + 1 for it in run.iterations) - cut == len(run.ids)
    assert sum(stats.accept_lengths(run)) == total.iterations
    assert sum(n * count for n, count in enumerate(stats.accept_lengths(run))) == total.accepted
    assert total.accepted <= total.examined <= total.drafted and total.discarded == cut
    positions = stats.by_position(run)
    for counts in ([p.drafted for p in positions], [p.examined for p in positions], [p.accepted for p in positions]):
        assert counts == sorted(counts, reverse=True)
    assert sum(p.accepted for p in positions) == total.accepted and sum(p.examined for p in positions) == total.examined
    verdicts = [v for it in run.iterations for v in stats.verdicts(it)]
    assert verdicts.count("accepted") == total.accepted
    assert sum(v in ("accepted", "rejected", "untested") for v in verdicts) == total.drafted
    assert [token for it in run.iterations for token, _ in stats.origins(it)] == run.ids
    assert [name for it in run.iterations for _, name in stats.origins(it)].count("accepted") == total.accepted
    for rate in (total.alpha, total.accepted_of_drafted, *(p.conditional for p in positions)):
        assert rate is None or 0 <= rate <= 1
    json.dumps(total.as_dict(), allow_nan=False)


def test_what_a_stop_cut_off_counts_nowhere():
    run = CASES["cut in accepted"]  # second round: 4 accepted and a bonus, of which a stop keeps 2
    total = stats.summary(run)
    assert (total.drafted, total.examined, total.accepted, total.new_tokens, total.discarded) == (6, 5, 4, 5, 3)
    assert stats.verdicts(run.iterations[1]) == ["accepted", "accepted", "discarded", "discarded"]
    before = stats.summary(CASES["cut before a rejection"])  # the rejection came after the stop
    assert (before.drafted, before.examined, before.accepted, before.alpha) == (1, 1, 1, 1.0)
    at = stats.summary(CASES["cut exactly before the last"])
    assert (at.examined, at.accepted, at.new_tokens) == (2, 2, 2)


def test_a_round_without_a_verdict_is_no_round_but_its_time_counts():
    run = traces.f5()
    last = dataclasses.replace(run.iterations[-1], stop="")
    void = dataclasses.replace(
        last, index=4, root=last.emitted[-1], emitted=[], discarded=[], path=[], tests=[], stop="error", message="NaN"
    )
    total = stats.summary([run.header, *run.iterations[:3], last, void])
    assert (total.iterations, total.drafted, total.examined, total.tau, total.stop) == (4, 16, 10, 2.75, "error")
    assert total.seconds["draft"] == pytest.approx(5 * traces.SECONDS["draft"])
    assert stats.verdicts(void) == ["discarded"] * 4 and sum(stats.accept_lengths([void])) == 0


def test_rates_of_nothing_are_none():
    total = stats.summary([])
    assert total.tau is total.alpha is total.mean_accepted is total.accepted_of_drafted is total.tokens_per_s is None
    plain = stats.summary(CASES["plain"])
    assert plain.alpha is None and plain.tau == 1 and plain.mean_accepted == 0
    assert stats.by_position(CASES["plain"]) == [] and stats.accept_lengths(CASES["plain"]) == [3]


def test_adding_round_by_round_equals_the_whole():
    run = traces.run(4, 1, 0, 3)
    total = stats.Summary()
    for it in run.iterations:
        total = total.plus(it)
    assert total == stats.summary(run) == stats.summary(run.iterations) == stats.summary(iter([run.header, *run.iterations]))
    assert stats.Summary().seconds["total"] == 0  # no state shared between summaries


def test_speed_is_all_tokens_by_all_seconds():
    # 100 tokens in 1 s and 100 in 10 s are 18.2 a second, not 55
    fast = traces.chain(0, 1, list(range(10, 109)), 99, 109, seconds={"target": 1.0, "prefill": 50.0})
    slow = traces.chain(1, 109, list(range(110, 209)), 99, 209, seconds={"target": 10.0})
    total = stats.summary([fast, slow])
    assert total.tokens_per_s == pytest.approx(200 / 11)
    assert total.seconds["total"] == 11 and total.seconds["prefill"] == 50
    points = stats.speeds([fast, slow], window=1.0)
    assert [p.now for p in points] == pytest.approx([100, 10]) and points[-1].so_far == pytest.approx(200 / 11)
    assert [p.tokens for p in points] == [100, 200] and [p.time for p in points] == [1, 11]


def test_the_window_holds_whole_rounds():
    its = [traces.chain(i, 1, [], 0, 5, seconds={"target": 0.1}) for i in range(30)]
    assert [p.now for p in stats.speeds(its, window=1.0)] == pytest.approx([10.0] * 30)
    assert stats.speeds([]) == []
    assert stats.speeds([traces.chain(0, 1, [], 0, 5, seconds={"target": 0.0})])[0].now == 0  # a clock that shows nothing


def test_siblings_share_one_position():
    total = stats.summary(traces.tree())  # a sibling rejected, one accepted, then one rejected: two positions, one accepted
    assert (total.drafted, total.examined, total.accepted, total.alpha) == (4, 2, 1, 0.5)
    assert stats.verdicts(traces.tree().iterations[0]) == ["rejected", "accepted", "untested", "rejected", "probe"]


def test_block_verification_counts_positions_not_tosses():
    it = traces.chain(0, 1, [10, 11, 12, 13], 2, 20)
    tosses = [(0, False), (1, True), (2, False), (3, False)]  # one for every token; the last that passes decides
    tests = [tr.Test(i, 0.5, 0.5, 0.1 if passed else 0.9, 0.5, passed) for i, passed in tosses]
    it = dataclasses.replace(it, tests=tests, stop="limit")
    run = tr.Trace(traces.header(rule="block"), [it])
    assert tr.loads(tr.dumps(run)) == run
    total = stats.summary(run)
    assert (total.accepted, total.examined) == (2, 3)
    assert stats.verdicts(it) == ["accepted", "accepted", "rejected", "untested"]
    assert chance.overlap(run) is None


def test_overlap_beside_the_measured_rate():
    result = chance.overlap(traces.f5())  # the builder records the row of the rejection: three such rows
    assert (result.rows, result.expected, result.measured) == (3, pytest.approx(0.6), 0.0)
    assert 0 <= result.low <= result.measured < result.high < 1
    assert chance.overlap(CASES["plain"]) is None
    cut = traces.run(2, keep=1, stop="end_of_text")
    assert chance.overlap(cut) is None  # its only row lies behind the stop


def test_the_overlap_of_fixed_siblings_is_their_mass_and_a_hit_is_any_of_them():
    it = traces.tree().iterations[0]  # 10 rejected, 11 accepted after the root; 13 rejected after 11
    laws = [tr.Row(-1, [10, 11], [0.2, 0.5], [0.2, 0.5], overlap=0.7), tr.Row(1, [13], [0.1], [0.1], overlap=0.1)]
    result = chance.overlap(tr.Trace(traces.header(), [dataclasses.replace(it, rows=laws)]))
    assert (result.rows, result.expected, result.measured) == (2, pytest.approx(0.4), 0.5)
    drawn = [dataclasses.replace(node, q=0.5) for node in it.nodes]  # then it is the first sibling's alone
    result = chance.overlap(tr.Trace(traces.header(), [dataclasses.replace(it, nodes=drawn, rows=laws)]))
    assert (result.rows, result.measured) == (2, 0.0)
    assert chance.overlap(tr.Trace(traces.header(rule="typical"), [dataclasses.replace(it, rows=laws)])) is None


def test_what_a_tree_promises():
    it = traces.tree().iterations[0]  # 10: 0.2, 11: 0.5, 12 after 10: 0.3, 13 after 11: 0.1, and a probe
    assert chance.chances(it) == [0.2, 0.5, 0.3, 0.1, 0.0]
    found = chance.expectation(traces.tree())
    assert (found.rounds, found.measured) == (1, 2) and found.expected == pytest.approx(1 + 0.2 + 0.5 + 0.06 + 0.05)
    ended = chance.expectation(tr.Trace(traces.header(stop_ids=[11]), [it]))  # what follows an end of text is never emitted
    assert ended.expected == pytest.approx(1 + 0.2 + 0.06)
    twice = dataclasses.replace(it, nodes=[*it.nodes[:1], dataclasses.replace(it.nodes[1], token=10), *it.nodes[2:]])
    assert chance.chances(twice)[:2] == [0.2, 0.0]
    drawn = dataclasses.replace(it, nodes=[dataclasses.replace(node, q=0.5) for node in it.nodes])
    assert chance.chances(drawn) is None and chance.expectation(tr.Trace(traces.header(), [drawn])) is None
    assert chance.expectation(tr.Trace(traces.header(rule="block"), [it])) is None
    assert chance.expectation(CASES["empty"]) is None
    assert chance.expectation(traces.run(0, 0, plain=True)).expected == 1
    chain = traces.run(1, drafted=2)  # p = q = 0.8, then p 0.1 against q 0.8
    assert chance.expectation(chain).expected == pytest.approx(1 + 1 + 0.125)


def test_wilson_interval():
    low, high = chance.wilson(7, 10)
    assert (low, high) == (pytest.approx(0.3968, abs=1e-4), pytest.approx(0.8922, abs=1e-4))
    assert chance.wilson(0, 5)[0] == 0 and chance.wilson(5, 5)[1] == 1


def test_first_difference():
    assert stats.first_difference([1, 2], [1, 2]) is None and stats.first_difference([], []) is None
    assert stats.first_difference([1, 2, 3], [1, 9, 3]) == 1
    assert stats.first_difference([1, 2], [1, 2, 3]) == 2 == stats.first_difference([1, 2, 3], [1, 2])

"""Same text or where not, how near a tie that was, what a round costs, and why a lane is slower."""

import dataclasses
import math

import pytest

from specviz import compare
from specviz import trace as tr
from tests import traces


def one(token, model=(0.5, 0.4), ids=(7, 8), dtype="float32", stop="limit", sampling=None):
    """A plain run of one token, predicted from a row over `ids`."""
    it = traces.chain(0, 1, [], 0, token, stop=stop)
    row = tr.Row(-1, list(ids), [1.0, 0.0], list(model))
    return tr.Trace(traces.header(dtype=dtype, sampling=sampling or {"temperature": 0.0}), [dataclasses.replace(it, rows=[row])])


def test_same_text():
    a = traces.f5()
    assert compare.same_text(a, a) is None
    assert compare.same_text(a, traces.run(0, 0)) == 0
    shorter = traces.run(4, 0, 2)
    assert compare.same_text(a, shorter) == len(shorter.ids)
    for stop in ("", "stopped", "error"):  # judged as far as it came
        part = traces.run(4, 0, 2, stop=stop)
        assert compare.same_text(a, part) is None and compare.same_text(part, a) is None


def test_a_near_tie_needs_both_gaps_and_both_tokens():
    tie = (0.45, 0.45 * (1 - 5e-4))
    a, b = one(7, tie), one(8, tie[::-1])
    result = compare.margin(a, b, 0)
    assert result.near_tie is True and result.a.logits == pytest.approx(5e-4, rel=1e-3)
    assert (result.a.first, result.b.first) == (7, 8)
    assert compare.margin(a, one(8, (0.5, 0.4)), 0).near_tie is False  # one side was sure
    assert compare.margin(a, one(9, tie), 0).near_tie is False  # a third token is no tie of these two
    assert compare.margin(one(7), one(8), 0).near_tie is False


def test_the_limit_follows_the_coarser_format():
    gap = (0.5, 0.5 * math.exp(-0.1))
    assert compare.margin(one(7, gap), one(8, gap), 0).near_tie is False
    result = compare.margin(one(7, gap), one(8, gap, dtype="bfloat16"), 0)
    assert result.near_tie is True and result.limit == compare.NEAR_TIE["bfloat16"]


def test_what_cannot_be_told():
    for sampling in ({"temperature": 0.8}, {"temperature": 0.0, "repetition_penalty": 1.3}):
        assert compare.margin(one(7, sampling=sampling), one(8), 0).near_tie is None
    blind = dataclasses.replace(one(8), iterations=[dataclasses.replace(one(8).iterations[0], rows=[])])
    result = compare.margin(one(7), blind, 0)
    assert result.near_tie is None and result.b is None and result.a is not None
    assert compare.gap_at(one(7), 5) is None


def test_the_gap_is_read_from_the_row_that_predicted_the_token():
    run = traces.f5()  # round 0 emits 5 tokens, and the builder keeps the row of its last one
    assert compare.gap_at(run, 4) == compare.Gap(14, 15, 0.6, 0.3)
    assert compare.gap_at(run, 3) is None
    assert compare.gap_at(run, 5) == compare.Gap(19, 20, 0.6, 0.3)
    assert compare.Gap(1, 2, 1.0, 0.0).logits == math.inf


def timed(accepted, drafted=4, plain=False, **seconds):
    run = traces.run(*accepted, drafted=drafted, plain=plain)
    base = dict.fromkeys(traces.SECONDS, 0.0) | seconds
    return dataclasses.replace(run, iterations=[dataclasses.replace(it, seconds=base) for it in run.iterations])


PLAIN = timed((0,) * 4, plain=True, target=0.010, verify=0.001)


def test_costs_and_the_speedup_they_add_up_to():
    lane = timed((4, 0, 2, 1), draft=0.008, target=0.012, verify=0.002, record=0.001)
    cost = compare.costs(lane, PLAIN)
    assert (cost.gamma, cost.c, cost.v, cost.draft) == (4, pytest.approx(0.2), pytest.approx(1.2), pytest.approx(0.8))
    assert (cost.overhead, cost.record, cost.plain_extra) == (pytest.approx(0.2), pytest.approx(0.1), pytest.approx(0.1))
    measured = (11 / (4 * 0.023)) / (1 / 0.011)
    assert cost.speedup(2.75) == pytest.approx(measured)
    alone = compare.costs(lane)
    assert alone.v == pytest.approx(1) and alone.c == pytest.approx(0.008 / 4 / 0.012)
    assert compare.costs(timed((0,), target=0.0)) is None and compare.costs(tr.Trace(traces.header(), [])) is None


@pytest.mark.parametrize(
    "reason, lane",
    {
        "alpha": timed((0, 0, 0, 1), draft=0.004, target=0.011),
        "draft": timed((4, 3, 4, 3), draft=0.060, target=0.011),
        "target": timed((3, 2, 3, 2), draft=0.002, target=0.045),
        "overhead": timed((3, 3, 3, 3), draft=0.002, target=0.011, verify=0.050),
        "capture": timed((3, 3, 3, 3), draft=0.002, target=0.011, record=0.050),
        "nothing_drafted": timed((0, 0), drafted=0, draft=0.002, target=0.010),
    }.items(),
)
def test_the_dominant_reason(reason, lane):
    cost = compare.costs(lane, PLAIN)
    tau = len(lane.ids) / len(lane.iterations)
    speedup = cost.speedup(tau)
    assert speedup < 1 and compare.slower_reason(speedup, tau, cost) == reason
    assert reason in compare.REASONS and compare.slower_reason(1.0, tau, cost) is None


def test_a_tree_is_predicted_by_its_nodes_and_a_chain_by_its_alpha():
    tree = traces.tree()
    assert compare.predicted_tau(tree) == pytest.approx(1.81)
    cost = compare.costs(tree, PLAIN)
    assert (cost.gamma, cost.chain) == (2, False)
    chain = traces.f5()
    assert compare.predicted_tau(chain) == pytest.approx(sum(0.7**i for i in range(5))) and compare.costs(chain, PLAIN).chain
    assert compare.predicted_tau(traces.run(0, plain=True)) is None
    drawn = dataclasses.replace(tree.iterations[0], nodes=[dataclasses.replace(n, q=0.9) for n in tree.iterations[0].nodes])
    assert compare.predicted_tau(dataclasses.replace(tree, iterations=[drawn])) is None

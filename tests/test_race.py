"""Lanes on their own clocks: the one that is behind goes next, refusals come before any work, and closing ends them all."""

from __future__ import annotations

import dataclasses

import pytest

from specviz.decode import Limits, RunError, decode
from specviz.drafters import DraftModel, Plain, PromptLookup
from specviz.race import MAX_LANES, race
from specviz.sampling import Sampling
from specviz.trace import Header
from tests import traces
from tests.tinymodels import Watched, library_greedy, tiny


def lane(seconds, closed=None, name="x"):
    """A lane whose rounds take `seconds`."""
    try:
        yield traces.header(method=name)
        start = 0.0
        for index, time in enumerate(seconds):
            it = traces.chain(index, 1, [], 0, 5, start=start, seconds={"target": time}, stop="limit" if index + 1 == len(seconds) else "")
            start += time
            yield it
    finally:
        if closed is not None:
            closed.append(name)


def test_the_lane_that_is_behind_goes_next():
    order = [name for name, _ in race({"slow": lane([3, 3, 3]), "quick": lane([1] * 8)})]
    assert order == ["slow", "quick", "slow", "quick", "quick", "quick", "slow", "quick", "quick", "quick", "slow", "quick", "quick"]


def test_at_every_moment_the_race_is_a_real_one():
    clocks, rounds = {"a": 0.0, "b": 0.0, "c": 0.0}, {"a": [0.3] * 9, "b": [1.0, 0.01, 0.7], "c": [0.2, 2.0, 0.1]}
    ended = set()
    for name, record in race({name: lane(seconds) for name, seconds in rounds.items()}):
        if isinstance(record, Header):
            continue
        assert clocks[name] == min(clock for other, clock in clocks.items() if other not in ended)
        clocks[name] = record.start + record.time
        if record.stop:
            ended.add(name)
    assert clocks == {name: pytest.approx(sum(seconds)) for name, seconds in rounds.items()}


def test_prefill_is_on_no_clock():
    first = traces.chain(0, 1, [], 0, 5, start=0.0, seconds={"prefill": 100.0, "target": 1.0})

    def prefilled():
        yield traces.header()
        yield first
        yield dataclasses.replace(traces.chain(1, 5, [], 0, 5, start=1.0, seconds={"target": 1.0}), stop="limit")

    assert [name for name, _ in race({"a": prefilled(), "b": lane([1.5, 1.5])})] == ["a", "b", "a", "b", "a", "b"]


def test_headers_come_first_and_a_refusal_before_any_work():
    good, bad = Watched(tiny("llama")), Watched(tiny("llama"))
    lanes = {
        "a": decode(good, Plain(), "", Sampling(), Limits(5), prompt_ids=[1]),
        "b": decode(bad, Plain(), "", Sampling(), Limits(5), prompt_ids=[999]),
    }
    with pytest.raises(RunError, match="outside the vocabulary"):
        list(race(lanes))
    assert not good.sessions and not bad.sessions and next(lanes["a"], None) is None


@pytest.mark.parametrize("after", [0, 1, 2, 5])
def test_closing_a_race_closes_every_lane(after):
    closed: list[str] = []
    records = race({"a": lane([1, 1, 1], closed, "a"), "b": lane([2, 2], closed, "b")})
    for _ in range(after):
        next(records)
    records.close()
    assert sorted(closed) == (["a", "b"] if after > 1 else ["a"] if after else [])  # what never began has nothing to end


def test_an_error_in_one_lane_ends_the_others():
    closed: list[str] = []

    def broken():
        yield traces.header()
        raise RunError("Out of luck.")

    with pytest.raises(RunError, match="Out of luck"):
        list(race({"a": lane([1, 1], closed, "a"), "b": broken(), "c": lane([1], closed, "c")}))
    assert sorted(closed) == ["a", "c"]


@pytest.mark.parametrize("count", [0, MAX_LANES + 1])
def test_too_few_or_too_many(count):
    with pytest.raises(ValueError, match=r"1 to 4 lanes"):
        list(race({str(i): lane([1]) for i in range(count)}))


def test_lanes_of_one_target_do_not_disturb_each_other():
    target, ids = tiny("llama"), [1, 2, 1, 2]
    drafters = {
        "plain": Plain(),
        "lookup": PromptLookup(),
        "draft": DraftModel(tiny("llama", noise=0.1), confidence=0.0),
        "twin": DraftModel(target, confidence=0.0),
    }
    found: dict[str, list[int]] = {name: [] for name in drafters}
    for name, record in race({name: decode(target, d, "", Sampling(), Limits(20), prompt_ids=ids) for name, d in drafters.items()}):
        if not isinstance(record, Header):
            found[name] += record.emitted
    assert set(map(tuple, found.values())) == {tuple(library_greedy(target, ids, 20))}

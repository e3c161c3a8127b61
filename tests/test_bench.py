"""The report, and the measurement behind it: what is counted, in which order, and what stops it."""

from __future__ import annotations

import math

import pytest

from specviz.bench import bench
from specviz.decode import Limits, RunError
from specviz.drafters import METHODS
from specviz.drafters.plain import Plain
from specviz.measure import ROWS, Measurement, row_cost
from specviz.sampling import Sampling
from specviz.stats import summary
from specviz.theory import cost_of_rows
from specviz.toy import ToyTarget, random_table
from tests.tinymodels import tiny

PROMPTS = ["abcabcabc", "the the the"]
DRAFTING = [name for name in METHODS if name != "plain"]


def target():
    return tiny("llama", max_position_embeddings=512)


def makers(on, names=DRAFTING):
    return {name: (lambda name=name: METHODS[name].tiny(on)) for name in names}


@pytest.fixture(scope="module")
def report():
    on = target()
    return bench(on, makers(on), PROMPTS, Sampling(), Limits(12), 1, raw=True, trained=lambda name: {"answer_tokens": len(name)})


def test_every_method_has_a_row(report):
    assert list(report["methods"]) == ["plain", *DRAFTING]
    assert set(report["v"]) == {str(n) for n in ROWS} and report["v"]["1"] == 1
    for name, row in report["methods"].items():
        assert row["equal_to_plain"] == "2/2" and row["differences"] == [], name
        assert row["prompts"] == 2 and row["new_tokens"] == 24 and row["lossless"] is True, name
        assert row["needs"] == METHODS[name].needs and row["trained"] == {"answer_tokens": len(name)}
        assert 0 <= row["record_cost"] < 1


def test_a_row_agrees_with_itself(report):
    unit, v = report["target_pass_ms"], {int(n): cost for n, cost in report["v"].items()}
    for name, row in report["methods"].items():
        each = row["seconds_per_iteration_ms"]
        assert row["tau"] == pytest.approx(row["new_tokens"] / row["iterations"], abs=1e-4)
        assert row["draft_cost"] == pytest.approx(each["draft"] / unit, rel=0.02, abs=2e-3)
        assert row["v_measured"] == pytest.approx(each["target"] / unit, rel=0.02, abs=2e-3)
        assert row["predicted"] == pytest.approx(row["tau"] / (row["draft_cost"] + row["v"]), rel=5e-3, abs=1e-3)
        assert row["gap"] + 1 == pytest.approx(row["speedup"] / row["predicted"], rel=5e-3, abs=2e-3)
        assert len(row["alpha_by_depth"]) == len(row["examined_by_depth"])
        assert sum(row["examined_by_depth"]) == row["examined"], name
        accepted = sum(a * n for a, n in zip(row["alpha_by_depth"], row["examined_by_depth"], strict=True))
        assert accepted == pytest.approx(row["accepted"], abs=0.02), name
        if row["rows"] == int(row["rows"]) and row["iterations"] > 1 and name == "plain":
            assert row["v"] == pytest.approx(cost_of_rows(v)(int(row["rows"])), abs=1e-3)
        if row["c"] is not None:
            assert row["c"] * row["passes"] == pytest.approx(row["draft_cost"], rel=0.02, abs=2e-3)
    plain = report["methods"]["plain"]
    assert plain["speedup"] == 1 and plain["rows"] == 1 and plain["tau"] == 1 and plain["alpha"] is None and plain["c"] is None
    assert plain["extra_parameters"] == 0 and 0 < plain["predicted"] <= 1


def test_trained_weights_are_counted_and_what_is_shared_is_not(report):
    for name, row in report["methods"].items():
        has = METHODS[name].needs in ("model", "head") or row["extra_parameters"] > 0
        assert (row["extra_parameters"] > 0) == has and row["extra_bytes"] >= 4 * row["extra_parameters"], name


def test_the_work_is_named_before_it_is_done_and_the_order_turns():
    on = target()
    done = Measurement(on, makers(on, ["prompt_lookup"]), [("abab", True)] * 3, Sampling(), Limits(4))
    steps = list(done.steps({"outside": print}))
    assert [(s.kind, s.method) for s in steps[:3]] == [("warm", "plain"), ("warm", "prompt_lookup"), ("v", "")]
    assert [s.method for s in steps[3:]] == [
        *("plain", "prompt_lookup", "outside"),
        *("prompt_lookup", "outside", "plain"),
        *("outside", "plain", "prompt_lookup"),
    ]
    assert done.row("plain") is None and done.unit is None and done.about()["target_pass_ms"] is None


def test_rows_come_with_the_first_prompt_that_both_have_done():
    on = target()
    done = Measurement(on, makers(on, ["prompt_lookup"]), [("abab", True), ("cdcd", True)], Sampling(), Limits(6))
    seen = []
    for step in done.steps():
        step.work()
        row = done.row("prompt_lookup")
        seen.append(None if row is None else row["prompts"])
    assert seen == [None, None, None, None, 1, 1, 2]  # warm, warm, v, plain, lookup; lookup, plain


def test_a_halted_run_is_not_counted():
    on, halted = target(), []
    done = Measurement(on, {}, [("abab", True)], Sampling(), Limits(40), halted=lambda: bool(halted))
    *first, last = done.steps()
    for step in first:
        step.work()
    halted.append(True)
    last.work()
    assert done.runs["plain"] == {} and done.row("plain") is None


def test_speedup_is_total_tokens_by_total_time():
    on = target()
    done = Measurement(on, makers(on, ["prompt_lookup"]), [(p, True) for p in PROMPTS], Sampling(), Limits(10), repeats=2)
    for step in done.steps():
        step.work()
    rates = {}
    for name in ("plain", "prompt_lookup"):
        runs = [summary(trace) for trace, _ in done.runs[name].values()]
        assert len(runs) == 4
        rates[name] = sum(s.new_tokens for s in runs) / sum(s.seconds["total"] for s in runs)
    assert done.row("prompt_lookup")["speedup"] == pytest.approx(rates["prompt_lookup"] / rates["plain"], abs=1e-4)
    runs = [total for _, total in done.runs["plain"].values()]
    assert done.unit == pytest.approx(sum(s.seconds["target"] for s in runs) / sum(s.iterations for s in runs))


def test_it_runs_on_a_table_and_above_temperature_0():
    on = ToyTarget(random_table(8, 1, 0), name="toy")
    got = bench(on, makers(on), ["abc"], Sampling(1.0, seed=3), Limits(8), 1)
    assert all(math.isfinite(row["speedup"]) and row["differences"] == [] for row in got["methods"].values())


def test_the_cost_of_rows_of_a_short_context():
    short = tiny("llama", max_position_embeddings=24)
    assert set(row_cost(short, repeats=1)) == {1, 2, 5, 9, 17}


def test_a_method_whose_text_differs_is_told():
    class Wrong(Plain):
        name = "wrong"

    on = target()
    done = Measurement(on, {"wrong": Wrong}, [("abab", True)], Sampling(), Limits(6))
    for step in done.steps():
        step.work()
    trace, total = done.runs["wrong"][0, 0]
    trace.iterations[-1].emitted[-1] += 1
    assert done.row("wrong")["equal_to_plain"] == "0/1" and total.new_tokens == 6


def test_a_prompt_that_cannot_be_run_is_named_before_any_work():
    on = target()

    def never():
        raise AssertionError("no method is made before the prompts are checked")

    with pytest.raises(RunError, match=r"Prompt 2 of 2: The prompt has 600 tokens"):
        bench(on, {"suffix": never}, ["abc", "a" * 600], Sampling(), Limits(4), 1, raw=True)

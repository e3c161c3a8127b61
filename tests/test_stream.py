"""The light lines of the page and the details of one iteration: what they say is what the record says."""

import dataclasses
import json

import pytest

from specviz import stats, theory
from specviz.ui.traceview import LANGUAGES, asker, head, table
from specviz.views import stream
from specviz.views.detail import detail
from tests import traces, wild

RUN = {"plain": wild.plain(wild.sampled()), "draft_model": wild.sampled()}


def lines(text):
    assert text.endswith("\n")
    return [json.loads(line) for line in text.splitlines()]


def test_a_value_is_one_line_a_record_and_each_is_strict_json():
    value = stream.replay("run1", RUN, {"plain": "Plain"})
    found = lines(value)
    assert found[0] == {"k": "run", "run": "run1", "lanes": [["plain", "Plain"], ["draft_model", "draft_model"]]}
    assert [one["lane"] for one in found if isinstance(one, dict) and one["k"] == "head"] == ["plain", "draft_model"]
    for lane, trace in RUN.items():
        its = [one for one in found if isinstance(one, list) and one[0] == lane]
        assert [one[1] for one in its] == list(range(len(trace.iterations)))
    assert [one["k"] for one in found[-1:]] == ["end"]
    assert "NaN" not in value and "Infinity" not in value


@pytest.mark.parametrize(
    "trace", [wild.sampled(), wild.cut(), traces.f5(), wild.plain(wild.sampled()), wild.fixed(wild.sampled()), traces.tree()]
)
def test_letters_and_bytes_give_the_emitted_tokens_and_the_counts(trace):
    emitted, accepted, examined = [], 0, 0
    for it in trace.iterations:
        line = lines(stream.step("x", trace.header, it))[0]
        marks, names = line[5], line[6].split(",")
        assert len(marks) == len(names) == len(it.nodes) + 1
        emitted += [bytes.fromhex(name.lstrip("!")) for mark, name in zip(marks, names, strict=True) if mark in "abcp"]
        accepted += marks.count("a")
        examined += marks.count("a") + marks.endswith("c")
        assert line[3] == [pytest.approx(it.seconds.get(phase, 0), abs=1e-6) for phase in stream.PHASES]
    total = stats.summary(trace)
    assert b"".join(emitted).decode("utf-8", "replace") == trace.text() and len(emitted) == total.new_tokens
    assert (accepted, examined) == (total.accepted, total.examined)


def test_what_a_stop_cut_off_is_upper_case():
    it = wild.cut().iterations[0]
    assert stream.letters(it) == "aaAB" and len(it.emitted) == 2


def test_special_tokens_are_marked_by_id_and_by_form():
    texts = {"1": b"<|im_end|>".hex(), "2": b"a".hex(), "3": b"<b>".hex()}
    assert [stream.token_name(k, texts, [2])[:1] for k in (1, 2, 3)] == ["!", "!", "3"]
    assert stream.token_name(9, texts, []) == ""


def test_a_line_is_short():
    trace = wild.plain(wild.sampled())
    longest = max(len(stream.step("plain", trace.header, it)) for it in trace.iterations[:5] if len(it.texts[str(it.token)]) < 20)
    assert longest < 110


def test_the_verdict_takes_its_numbers_from_stats_and_theory():
    end = stream.verdict(RUN["draft_model"], RUN["plain"])
    own, base = (stats.summary(RUN[lane]) for lane in ("draft_model", "plain"))
    assert end["speedup"] == pytest.approx(own.tokens_per_s / base.tokens_per_s)
    assert end["same"] is None and end["same_reason"] == "random"
    assert end["predicted"] > 0


def test_the_prediction_is_exact_where_theory_is():
    """Full acceptance: theory's mean tokens a round is the measured one, so predicted and measured agree."""
    lane = traces.run(4, 4, 4)
    plain = traces.run(*[0] * 15, plain=True)
    end = stream.verdict(lane, plain)
    assert theory.expected_tokens(1.0, 4) == 5 == stats.summary(lane).tau
    assert end["predicted"] == pytest.approx(end["speedup"], rel=0.02)


def test_same_text_or_where_it_parts():
    lane = wild.greedy(wild.sampled())
    same = stream.verdict(lane, wild.plain(lane))
    assert same["same"] is True and same["at"] is None
    other = wild.plain(lane)
    third = dataclasses.replace(other.iterations[3], token=wild.IDS[0], emitted=[wild.IDS[0]])
    other = dataclasses.replace(other, iterations=[*other.iterations[:3], third, *other.iterations[4:]])
    assert stream.verdict(lane, other)["same"] is False and stream.verdict(lane, other)["at"] == 3


def test_a_slow_lane_says_why_with_numbers():
    slow = dict(traces.SECONDS, draft=0.2)
    lane = traces.f5()
    lane = dataclasses.replace(lane, iterations=[dataclasses.replace(it, seconds=slow) for it in lane.iterations])
    end = stream.verdict(lane, traces.run(*[0] * 11, plain=True))
    assert end["speedup"] < 1 and end["slower"]["key"] == "draft"
    assert json.dumps(end, allow_nan=False)


def test_break_even_agrees_with_the_prediction():
    """Rounds that drafted nothing cost time too, so alpha may beat a naive break-even and still lose."""
    lane = traces.run(1, *[0] * 5, drafted=2)
    bare = [traces.chain(it.index, it.root, [], 0, it.token) for it in lane.iterations[1:5]]
    bare = [dataclasses.replace(new, emitted=old.emitted, start=old.start) for new, old in zip(bare, lane.iterations[1:5], strict=True)]
    slow = dict(traces.SECONDS, draft=0.01)
    mixed = [dataclasses.replace(it, seconds=slow) for it in (lane.iterations[0], *bare, lane.iterations[5])]
    lane = dataclasses.replace(lane, iterations=mixed)
    end = stream.verdict(lane, traces.run(*[0] * 7, plain=True))
    assert end["slower"]["alpha"] < end["slower"]["needed"] and end["predicted"] < 1


def test_lanes_that_did_nothing_make_no_numbers():
    empty = dataclasses.replace(wild.sampled(), iterations=[])
    end = stream.verdict(empty, empty)
    assert end["speedup"] is end["predicted"] is end["same"] is end["slower"] is None
    assert stream.finish({"draft_model": wild.sampled()}) == []


def test_a_note_knows_its_states():
    assert lines(stream.note("", "refused", "No <b>"))[0] == {"k": "note", "lane": "", "state": "refused", "message": "No <b>"}
    with pytest.raises(ValueError, match="state"):
        stream.note("", "odd")


# ---- details -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("trace", [*RUN.values(), wild.bare(wild.sampled()), wild.fixed(wild.sampled()), traces.tree()])
def test_details_repeat_the_record(trace):
    for it in trace.iterations:
        found = json.loads(json.dumps(detail(trace.header, it), allow_nan=False))
        assert [node["test"] for node in found["nodes"] if node["test"]] == [
            {"p": t.p, "q": t.q, "u": t.u, "threshold": t.threshold, "accepted": t.accepted} for t in sorted(it.tests, key=lambda t: t.node)
        ]
        for node, shown in zip(it.nodes, found["nodes"], strict=True):
            assert (shown["id"], shown["p"], shown["q"], shown["rank"]) == (node.token, node.p, node.q, node.rank)
            assert shown["row"] is None or found["rows"][shown["row"]]["after"] == node.parent
        for row, shown in zip(it.rows, found["rows"], strict=True):
            assert shown["p"] == row.p and shown["residual"] == row.residual and shown["overlap"] == row.overlap
            assert sum(shown["p"]) + shown["rest"]["p"] == pytest.approx(max(1.0, sum(row.p)))


def test_missing_laws_are_none_never_zero():
    found = detail(wild.bare(wild.sampled()).header, wild.bare(wild.sampled()).iterations[0])
    assert found["rows"] == [] and found["last"]["row"] is None and all(node["row"] is None for node in found["nodes"])


# ---- the server function believes nothing ------------------------------------------------------------------------------


GOOD = {"run": "r", "lane": "a", "index": 0}
ODD = [{**GOOD, "index": index} for index in (-1, True, 1.5, None, [0], "0")]
ODD += [{**GOOD, "run": name} for name in ("", "r" * 201, 1, None)] + [{**GOOD, "lane": None}, {}, None, [], "x", 3]


@pytest.mark.parametrize("asked", ODD)
def test_odd_arguments_never_reach_the_lookup(asked):
    def lookup(run, lane):
        raise AssertionError("looked up")

    assert asker(lookup)(asked) == {"error": "request"}


def test_lookup_answers_and_bounds():
    trace = wild.sampled()
    ask = asker(lambda run, lane: trace if (run, lane) == ("r", "a") else None)
    assert ask({"run": "r", "lane": "a", "index": 0})["index"] == 0
    assert ask({"run": "r", "lane": "b", "index": 0}) == {"error": "gone"}
    assert ask({"run": "r", "lane": "a", "index": 10**9}) == {"error": "index"}


def test_no_string_of_the_page_can_end_its_script():
    page = head()
    assert page.count("</script") == 1 and page.count("</style") == 1
    assert "http://" not in page.replace("http://www.w3.org/2000/svg", "") and "https://" not in page
    assert all(table(lang) for lang in LANGUAGES)

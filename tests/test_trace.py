"""The record both ways, and every kind of damaged or hostile file refused with one sentence."""

import dataclasses
import json
import re

import pytest

from specviz import stats
from specviz import trace as tr
from specviz.decode import Limits, decode
from specviz.sampling import Sampling
from specviz.toy import ToyTarget, random_table
from tests import traces
from tests.damage import HEADER, ITERATION, put
from tests.treedrafters import TreeDrafter

GOOD = {
    "f5": traces.f5(),
    "tree": traces.tree(),
    "plain": traces.run(0, 0, 0, plain=True),
    "cut": traces.run(2, 4, keep=2, stop="end_of_text"),
    "no iteration": tr.Trace(traces.header(), []),
    "still running": traces.run(1, 2, stop=""),
    "any text": tr.Trace(traces.header(prompt='<b>\u2028 "$x$" 🤗 \x00 \x1b[31m ‮'), []),
}


@pytest.mark.parametrize("name", GOOD)
def test_round_trip(name):
    run = GOOD[name]
    text = tr.dumps(run)
    assert tr.loads(text) == run == tr.loads(text.encode()) == tr.loads(b"\xef\xbb\xbf" + text.replace("\n", "\r\n\n").encode())
    assert tr.dumps(tr.loads(text)) == text
    assert list(tr.read_lines(text.splitlines(keepends=True) if "\u2028" not in text else text.split("\n")[:-1])) == [
        run.header,
        *run.iterations,
    ]
    for one in text.split("\n")[:-1]:
        json.loads(one, parse_constant=pytest.fail)


def test_text_and_ids():
    run = traces.f5()
    assert run.ids[:6] == [10, 11, 12, 13, 14, 19] and run.text().startswith("t10 t11 ") and run.stop == "limit"
    half = dataclasses.replace(traces.chain(0, 1, [], 0, 5, stop="limit"), texts={"5": "f09f", "6": ""})
    assert tr.Trace(traces.header(), [half]).text() == "\ufffd"
    assert tr.Trace(traces.header(), []).text() == "" and tr.Trace(traces.header(), []).stop == ""


def test_a_number_that_json_cannot_hold_is_never_written():
    bad = dataclasses.replace(traces.f5().iterations[0], draw=float("nan"))
    with pytest.raises(ValueError):
        tr.line(bad)


def refused(text) -> str:
    with pytest.raises(tr.TraceError) as caught:
        tr.loads(text)
    sentence = str(caught.value)
    assert type(caught.value) is tr.TraceError
    assert sentence.endswith((".", "specviz.")) and "\n" not in sentence and len(sentence) < 200
    assert not re.search(r"/[a-z]+/|\.py|Traceback|[A-Z]:\\", sentence), sentence
    return sentence


@pytest.mark.parametrize(
    "text",
    [
        "",
        " \n\n\t\n",
        b"",
        b"\xff\xfe\x00{",
        b"PK\x03\x04\x14\x00",
        b"\x80\x04\x95",
        "not json",
        "[]",
        "null",
        "3",
        '"specviz-trace"',
        "{}",
        '{"format": "other"}',
        '{"format": "specviz-trace"}',
        '{"format": "specviz-trace", "version": 2}',
        '{"format": "specviz-trace", "version": "../../etc/passwd"}',
        '{"format": "specviz-trace", "version": 1}',
        "[" * 200_000,
        '{"a":' * 100_000,
        '{"format": "specviz-trace", "version": ' + "9" * 10_000 + "}",
        "x" * (tr.MAX_BYTES + 1),
        "x" * 1_000_000,
    ],
    ids=lambda text: f"{text[:24]!r}",
)
def test_what_is_no_trace_at_all(text):
    refused(text)


def test_every_cut_of_a_file_is_refused_or_a_shorter_trace():
    text = tr.dumps(traces.f5())
    for end in range(0, len(text), 97):
        if text[: end + 1].endswith("}\n") or text[end : end + 1] == "\n":
            assert tr.loads(text[:end]).iterations == traces.f5().iterations[: text[:end].count("\n")]
        else:
            refused(text[:end])


def edited(change, number=1, run=None) -> str:
    """A good trace of which line `number` (0: the header) was changed."""
    lines = tr.dumps(run or traces.f5()).split("\n")[:-1]
    value = json.loads(lines[number])
    change(value)
    lines[number] = json.dumps(value)
    return "\n".join(lines)


@pytest.mark.parametrize("name", HEADER)
def test_a_bad_header(name):
    assert refused(edited(HEADER[name], 0)).startswith(("Line 1", "This trace"))


@pytest.mark.parametrize("name", ITERATION)
def test_a_bad_iteration(name):
    assert "ine 2" in refused(edited(ITERATION[name])) or name == "stopped before the end"


def test_a_good_note_comes_back_whole():
    note = {"score": [0.5, 0.25, 1.0, 0], "own": [1, 0.5, 0.0, 1e-9], "rank": [0, 3, 0, 1], "taps": [1, 2], "window": [[1, 2], []]}
    note |= {"guesses": [[7, 8]], "chance": [0.25], "pool": 3, "part": "lookup", "anything": {"else": [None, True, "x", [1.5]]}}
    text = edited(put("note", note))
    assert tr.loads(text).iterations[0].note == note


def test_a_rule_without_chance_has_thresholds_0_and_1():
    def typical(it):
        for test in it["tests"]:
            test.update(threshold=1.0 if test["accepted"] else 0.0)

    run = tr.Trace(traces.header(rule="typical", lossless=False), traces.tree().iterations)
    assert tr.loads(edited(typical, run=run)).iterations[0].path == [1]
    assert "neither 0 nor 1" in refused(tr.dumps(run))
    assert refused(edited(lambda it: (typical(it), it["tests"].reverse()), run=run))


def test_each_required_field_is_missed_by_name():
    for kind, number in ((tr.Header, 0), (tr.Iteration, 1)):
        for field in dataclasses.fields(kind):
            if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
                assert repr(field.name) in refused(edited(lambda record, name=field.name: record.pop(name), number))


@pytest.mark.parametrize("junk", [None, True, -1, 1.5, "x", [], {}, [[]], [None], {"a": None}, 10**300, [{"a": 1}]])
def test_any_junk_anywhere_is_refused_or_harmless(junk):
    """A field that takes the value (an empty list for an empty list) must give a trace that can be written again."""
    for number in (0, 1):
        for name in json.loads(tr.dumps(traces.f5()).split("\n")[number]):
            try:
                run = tr.loads(edited(put(name, junk), number))
            except tr.TraceError:
                continue
            assert tr.loads(tr.dumps(run)) == run and isinstance(run.text(), str)


@pytest.mark.parametrize(
    "number", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999", "1" * 400, "1" * 5000, "0x10", "01", "1_0", "+1", ".5", "5."]
)
@pytest.mark.parametrize("field", ["draw", "passes", "note"])
def test_numbers_that_are_none(number, field):
    text = tr.dumps(traces.f5())
    old = {"draw": '"draw":0.25', "passes": '"passes":4', "note": '"note":{}'}[field]
    new = {"draw": f'"draw":{number}', "passes": f'"passes":{number}', "note": f'"note":{{"x":{number}}}'}[field]
    assert old in text
    refused(text.replace(old, new, 1))


def test_one_field_twice():
    text = tr.dumps(traces.f5())
    assert "twice" in refused(text.replace('"draw":0.25', '"draw":0.25,"draw":0.5', 1))
    assert "twice" in refused(text.replace('"token":10', '"token":10,"token":11', 1))


def test_lines_missing_doubled_or_swapped():
    head, *its = tr.dumps(traces.f5()).split("\n")[:-1]
    refused("\n".join([*its]))
    refused("\n".join([head, *its[1:]]))
    refused("\n".join([head, its[0], *its]))
    refused("\n".join([head, its[1], its[0], *its[2:]]))
    refused("\n".join([head, head, *its]))
    refused("\n".join([head, *its, its[-1]]))


def test_the_line_that_is_named_is_the_line_of_the_file():
    lines = tr.dumps(traces.f5()).split("\n")[:-1]
    lines[2] = "{"
    assert "Line 5" in refused("\n\n" + "\n".join(lines))


def test_a_clock_that_runs_backwards():
    refused(edited(put("start", 0.0001), 3))


def test_siblings_may_be_tried_only_in_their_place():
    run = traces.tree()
    assert refused(edited(lambda it: it["tests"].insert(0, it["tests"].pop()), run=run))
    assert refused(edited(lambda it: it["tests"].pop(), run=run))  # then nothing was rejected after 11
    assert refused(edited(put("tests", 2, "node", 2), run=run))  # a child of the rejected sibling
    assert refused(edited(put("tests", 0, "node", 4), run=run))  # the probe


def test_a_run_that_ended_before_a_verdict():
    run = traces.run(1, 2, stop="")
    last = run.iterations[-1]
    void = dataclasses.replace(
        last, index=2, root=last.emitted[-1], start=9.0, emitted=[], path=[], tests=[], rows=[], token=0, stop="error", message="NaN"
    )
    whole = tr.Trace(run.header, [*run.iterations, void])
    assert tr.loads(tr.dumps(whole)) == whole
    refused(tr.dumps(tr.Trace(run.header, [*run.iterations, dataclasses.replace(void, stop="")])))


@pytest.mark.parametrize(
    "kind, widths, rule",
    [
        ("fixed", (3, 2), "token"),
        ("replace", (2, 2, 1), "token"),
        ("without", (3, 2), "token"),
        ("replace", (1,) * 4, "block"),
        ("fixed", (3, 2), "typical"),
        ("without", (2, 2), "typical"),
    ],
)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("capture", [0, 4])
def test_whatever_the_engine_writes_is_read_back(kind, widths, rule, temperature, capture):
    target = ToyTarget(random_table(12, 1, 0), stop_ids=(3,), context=60)
    draft = ToyTarget(0.5 * random_table(12, 1, 0) + 0.5 * random_table(12, 1, 1))
    for seed in range(4):
        sampling = Sampling(temperature=temperature, seed=seed, top_k=5, repetition_penalty=1.0 + 0.2 * (seed % 2))
        header, *its = decode(target, TreeDrafter(draft, widths, kind), "hello", sampling, Limits(40, ("ab",)), rule=rule, capture=capture)
        run = tr.Trace(header, its)
        assert tr.loads(tr.dumps(run)) == run
        total = stats.summary(run)
        assert total.new_tokens == len(run.ids) and total.accepted <= total.examined <= total.drafted
        assert [token for it in run.iterations for token, _ in stats.origins(it)] == run.ids

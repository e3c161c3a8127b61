"""The record both ways, and every kind of damaged or hostile file refused with one sentence."""

import copy
import dataclasses
import json
import re

import pytest

from specviz import trace as tr
from tests import traces

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


def put(*place):
    """Sets value at a path of keys: put("nodes", 0, "p", 2.0)."""
    *path, last, value = place

    def change(record):
        for key in path:
            record = record[key]
        record[last] = copy.deepcopy(value)

    return change


def nested(depth):
    value = 1
    for _ in range(depth):
        value = [value]
    return value


HEADER = {
    "target a number": put("target", 3),
    "lossless 1": put("lossless", 1),
    "lossless text": put("lossless", "true"),
    "version true": put("version", True),
    "version 1.0": put("version", 1.0),
    "prompt ids text": put("prompt_ids", "12"),
    "prompt id negative": put("prompt_ids", [-1]),
    "prompt id bool": put("prompt_ids", [True]),
    "prompt id fraction": put("prompt_ids", [1.5]),
    "prompt id 10^30": put("prompt_ids", [10**30]),
    "knobs a list": put("knobs", []),
    "knobs deep": put("knobs", "x", nested(50)),
    "knobs infinite": put("knobs", "gamma", float("inf")),
    "knobs huge": put("knobs", "gamma", 10**400),
    "sampling not a number": put("sampling", "temperature", float("nan")),
    "max_new negative": put("max_new", -1),
    "context null": put("context", None),
    "capture text": put("capture", "8"),
    "stop strings of numbers": put("stop_strings", [1]),
    "texts odd hex": put("texts", "1", "abc"),
    "texts no hex": put("texts", "1", "zz"),
    "texts key no number": put("texts", "one", "61"),
    "texts key negative": put("texts", "-1", "61"),
    "texts key other digits": put("texts", "१", "61"),
    "texts key long": put("texts", "1" * 5000, "61"),
    "texts endless": put("texts", "1", "61" * 500_000),
    "prompt endless": put("prompt", "a" * 1_000_000),
    "prompt half a pair": put("prompt", "\ud83e"),
}

ITERATION = {
    "index from 1": put("index", 1),
    "index bool": put("index", False),
    "start negative": put("start", -0.5),
    "start infinite": put("start", float("inf")),
    "start 1e300": put("start", 1e299),
    "start a 400-digit number": put("start", 10**400),
    "start text": put("start", "0"),
    "root of another run": put("root", 99),
    "root negative": put("root", -1),
    "nodes an object": put("nodes", {}),
    "nodes null": put("nodes", None),
    "nodes without end": lambda it: it["nodes"].extend([it["nodes"][-1]] * 20_000),
    "row without end": lambda it: it["rows"][0].update({name: [0] * 20_000 for name in ("ids", "p", "model", "q", "residual")}),
    "node a number": put("nodes", 0, 7),
    "node token negative": put("nodes", 3, "token", -5),
    "node token bool": put("nodes", 3, "token", True),
    "node token huge": put("nodes", 3, "token", 2**40),
    "node parent itself": put("nodes", 0, "parent", 0),
    "node parent later": put("nodes", 0, "parent", 2),
    "node parent -2": put("nodes", 0, "parent", -2),
    "node depth wrong": put("nodes", 2, "depth", 5),
    "node depth 0": put("nodes", 0, "depth", 0),
    "node p 2": put("nodes", 0, "p", 2.0),
    "node p nan": put("nodes", 0, "p", float("nan")),
    "node q negative": put("nodes", 0, "q", -0.1),
    "node q text": put("nodes", 0, "q", "0.5"),
    "node rank -2": put("nodes", 0, "rank", -2),
    "node probe 0": put("nodes", 0, "probe", 0),
    "accepted node a probe": put("nodes", 0, "probe", True),
    "row after nothing": put("rows", 0, "after", 9),
    "row after -2": put("rows", 0, "after", -2),
    "row column short": put("rows", 0, "p", [0.5]),
    "row column long": put("rows", 0, "residual", [0.1, 0.1, 0.1]),
    "row model missing": lambda it: it["rows"][0].pop("model"),
    "row id twice": put("rows", 0, "ids", [14, 14]),
    "row id negative": put("rows", 0, "ids", [14, -1]),
    "row p above one": put("rows", 0, "p", [1.2, 0.0]),
    "row sums to 1.4": put("rows", 0, "p", [0.7, 0.7]),
    "row overlap 3": put("rows", 0, "overlap", 3),
    "two rows of one node": lambda it: it["rows"].append(copy.deepcopy(it["rows"][0])),
    "test of nothing": put("tests", 0, "node", 44),
    "test of -1": put("tests", 0, "node", -1),
    "test twice": put("tests", 1, "node", 0),
    "test u 1.5": put("tests", 0, "u", 1.5),
    "test u above its threshold": put("tests", 0, "u", 1.0),
    "test accepted denied": put("tests", 0, "accepted", False),
    "test accepted 1": put("tests", 0, "accepted", 1),
    "test threshold not p/q": lambda it: it["tests"][0].update(threshold=0.5),
    "tests out of order": lambda it: it["tests"].reverse(),
    "tests missing": put("tests", []),
    "tests one short": lambda it: it["tests"].pop(),
    "path leaves the nodes": put("path", [0, 1, 2, 9]),
    "path -1": put("path", [-1]),
    "path skips a node": put("path", [0, 2, 3]),
    "path not from the root": put("path", [1, 2, 3]),
    "path backwards": put("path", [3, 2, 1, 0]),
    "path shorter than the decisions": put("path", [0, 1, 2]),
    "path of fractions": put("path", [0.0]),
    "token another": put("token", 77),
    "token negative": put("token", -1),
    "kind unknown": put("kind", "corrected"),
    "kind contradicts": put("kind", "recovered"),
    "draw 7": put("draw", 7),
    "emitted another token": put("emitted", [10, 11, 12, 13, 99]),
    "emitted one less": put("emitted", [10, 11, 12, 13]),
    "emitted one more": put("emitted", [10, 11, 12, 13, 14, 15]),
    "emitted nothing": put("emitted", []),
    "discarded from nowhere": put("discarded", [3]),
    "cut off without a stop": lambda it: it.update(emitted=[10, 11], discarded=[12, 13, 14]),
    "seconds negative": put("seconds", "draft", -1.0),
    "seconds endless": put("seconds", "draft", 1e200),
    "seconds text": put("seconds", "draft", "fast"),
    "passes negative": put("passes", -1),
    "passes fraction": put("passes", 1.5),
    "note deep": put("note", "x", nested(200)),
    "note infinite": put("note", "x", [float("-inf")]),
    "note huge": put("note", "x", 2**70),
    "note a list": put("note", []),
    "stop unknown": put("stop", "bored"),
    "stopped before the end": put("stop", "limit"),
    "reason endless": put("reason", "x" * 1_000_000),
    "message half a pair": put("message", "\udc00"),
    "texts bytes": put("texts", "10", "0g"),
    "texts key": put("texts", " 10", "61"),
    "draw missing": lambda it: it.pop("draw"),
}


@pytest.mark.parametrize("name", HEADER)
def test_a_bad_header(name):
    assert refused(edited(HEADER[name], 0)).startswith(("Line 1", "This trace"))


@pytest.mark.parametrize("name", ITERATION)
def test_a_bad_iteration(name):
    assert "ine 2" in refused(edited(ITERATION[name])) or name == "stopped before the end"


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

"""Opening and saving traces: what was saved comes back, and garbage is refused in one sentence."""

from __future__ import annotations

import pytest

from specviz.trace import Trace, TraceError
from specviz.ui import files
from specviz.ui.form import AskError
from tests.traces import chain, header


def lanes():
    plain = Trace(header(method="plain", drafter="", knobs={}), [chain(0, 1, [], 0, 9), chain(1, 9, [], 0, 8, stop="limit")])
    draft = Trace(header(), [chain(0, 1, [9, 8, 7], 2, 6), chain(1, 6, [5], 1, 4, stop="limit")])
    return {"plain": plain, "draft_model": draft}


def test_a_race_comes_back():
    text = files.text_of(lanes())
    assert files.lanes_of(text) == lanes()
    assert files.lanes_of(text.encode()) == lanes()


def test_lanes_of_one_method_keep_apart():
    trace = lanes()["draft_model"]
    assert list(files.lanes_of(files.text_of({"a": trace, "b": trace}))) == ["draft_model", "draft_model 2"]


@pytest.mark.parametrize(
    "garbage",
    [
        b"",
        b"\xff\xfe\x00",
        b"hello",
        b"{}",
        b"[1,2",
        b"\x00" * 1000,
        b'{"format":"specviz-trace"}',
        b'{"format":"specviz-trace","version":1}',
        b"[" * 200_000,
    ],
    ids=[str(i) for i in range(9)],
)
def test_garbage_is_one_sentence(garbage):
    with pytest.raises(TraceError) as caught:
        files.lanes_of(garbage)
    sentence = str(caught.value)
    assert sentence.count("\n") == 0 and sentence.endswith(".") and "/" not in sentence


def test_an_error_names_the_line_of_the_file():
    text = files.text_of(lanes()).replace('"index":1', '"index":5')
    good, bad = files.text_of(lanes()).split("\n"), text.split("\n")
    with pytest.raises(TraceError, match="Line 6"):
        files.lanes_of("\n".join([*good[:5], bad[5]]))


def test_too_much():
    trace = lanes()["plain"]
    with pytest.raises(AskError):
        files.lanes_of(files.text_of({str(i): trace for i in range(5)}))
    with pytest.raises(AskError):
        files.lanes_of(b" " * 32_000_001)


def test_many_files_are_measured_before_one_is_read(tmp_path):
    file = tmp_path / "a.jsonl"
    file.write_text(files.text_of(lanes()), "utf-8")
    assert files.opened([file]) == lanes()
    with pytest.raises(AskError):
        files.opened([file] * (32_000_000 // file.stat().st_size + 1))


def test_the_bundled_run_may_be_a_file_a_lane(tmp_path):
    assert files.bundled(tmp_path, {}) is None
    for name, trace in lanes().items():
        (tmp_path / f"race-{name}.jsonl").write_text(files.text_of({name: trace}), "utf-8")
    run = files.bundled(tmp_path, {"plain": "plain decoding"})
    assert list(run.traces.items()) == list(lanes().items()) and run.labels["plain"] == "plain decoding"


def test_a_recorded_run_answers_like_a_live_one():
    run = files.recorded(lanes(), {"plain": "plain"})
    assert run.done.is_set() and run.trace("plain") == lanes()["plain"] and run.trace("nobody") is None
    assert run.traces == lanes()

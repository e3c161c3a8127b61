"""Views: bytes of tokens made visible, the trace as terminal text, and charts, none of which may trust a token's text."""

import dataclasses
import json
import re
import subprocess
import sys

import pytest

from specviz import trace as tr
from specviz.views import charts, palette, text, tokens
from tests import traces

WILD = "🤗 世界 é 👩‍🚀".encode()
HOSTILE = [
    "<b>",
    "&lt;",
    "$x$ and $y$",
    "\x1b[2J\x1b]0;title\x07",
    "\r\b\x00",
    "\u202e\u2066",
    "%{x}",
    "<img src=x onerror=alert(1)>",
    "\x9b31m",
]


@pytest.mark.parametrize("size", [1, 2, 3, 5, 100])
def test_pieces_lose_nothing_and_hold_whole_characters(size):
    parts = [WILD[i : i + size] for i in range(0, len(WILD), size)]
    found = tokens.pieces(parts)
    assert b"".join(p.raw for p in found) == WILD and [i for p in found for i in p.tokens] == list(range(len(parts)))
    for piece in found:
        assert piece.whole and piece.raw.decode() and "⟨F0" not in piece.text
    assert "".join(tokens.running(p.raw) for p in found).replace("⟨U+200D⟩", "\u200d") == WILD.decode()


def test_one_byte_tokens_group_by_character():
    found = tokens.pieces([bytes([b]) for b in WILD])
    assert [p.text for p in found] == ["🤗", "␣", "世", "界", "␣", "é", "␣", "👩", "⟨U+200D⟩", "🚀"]
    assert [len(p.tokens) for p in found] == [4, 1, 3, 3, 1, 2, 1, 4, 3, 4]


def test_an_unfinished_tail_shows_its_bytes():
    found = tokens.pieces([b"a", b"\xf0\x9f"])
    assert [(p.text, p.whole) for p in found] == [("a", True), ("⟨F0 9F⟩", False)]
    assert tokens.unfinished(b"a\xf0\x9f\xa4") == 3 and tokens.unfinished("é".encode()) == 0
    assert tokens.pieces([]) == [] and tokens.visible(b"") == "∅"


def test_bytes_of_no_character_do_not_hold_up_what_follows():
    found = tokens.pieces([b"\xf0\x9f", b"A", b"\xff", b"\xed\xa0\x80", b"b"])  # left by a rejection; never valid; a surrogate
    assert [(p.tokens, p.text) for p in found] == [((0, 1), "⟨F0 9F⟩A"), ((2,), "⟨FF⟩"), ((3,), "⟨ED A0 80⟩"), ((4,), "b")]


@pytest.mark.parametrize("raw, shown", {
    "\ufeff".encode(): "⟨U+FEFF⟩",
    b" the\n\t": "␣the⏎⇥", b"\x1b[31m": "␛[31m", b"\x00\r\x7f": "␀␍␡", "\x9b\u200e\u202e".encode(): "⟨U+009B⟩⟨U+200E⟩⟨U+202E⟩",
    "\u00a0\u2028\ufffd\ue000".encode(): "⟨U+00A0⟩⟨U+2028⟩⟨U+FFFD⟩⟨U+E000⟩", "\u0301e\u0301".encode(): "◌\u0301e\u0301",
    "👩‍🚀".encode(): "👩‍🚀",
}.items())  # fmt: skip
def test_what_cannot_be_seen_is_made_visible(raw, shown):
    assert tokens.visible(raw) == shown


def test_labels_are_literal_and_distinct():
    texts = {1: b"the", 2: b" the", 3: b"The", 4: b"\xf0", 5: b"\xf0", 6: b"<b>", 7: b"a" * 40, 8: b"a" * 41}
    names = tokens.labels([1, 2, 3, 4, 5, 6, 7, 8, 9], texts)
    assert names[:6] == ["the", "␣the", "The", "⟨F0⟩ #4", "⟨F0⟩ #5", "<b>"] and names[8] == "#9"
    assert len(set(names)) == 9 and all(len(name) < 24 for name in names)


def hostile_run() -> tr.Trace:
    texts = {str(10 + i): word.encode("utf-8", "surrogatepass").hex() for i, word in enumerate(HOSTILE)}
    its = [traces.chain(0, 1, [10, 11, 12, 13], 4, 14, texts=texts), traces.chain(1, 14, [15, 16, 17, 18], 2, 13, stop="error", texts={})]
    its[1] = dataclasses.replace(its[1], message="bad \x1b[2J\n end", reason="why \x1b[0m")
    return tr.Trace(traces.header(prompt="\x1b]0;x\x07 <b> \n", target="\x1b[1m", drafter="d\r", knobs={"\x1b": "\x1b"}), its)


@pytest.mark.parametrize("color", [False, True])
def test_no_control_character_reaches_the_terminal(color):
    shown = text.show(hostile_run(), color)
    left = re.sub(r"\x1b\[[0-9;]*m", "", shown) if color else shown
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]", left)
    if color:  # exactly the codes of ours, each closed again
        codes = re.findall(r"\x1b\[([0-9;]*)m", shown)
        assert set(codes) <= {*text.CODES.values(), "0"} and codes[1::2] == ["0"] * (len(codes) // 2)
        assert not any(line.count("\x1b[") % 2 for line in shown.split("\n"))
    assert "␛]0;x␇ <b> ⏎" in left and "<img␣src=x␣onerror=alert(1)>" in left


def test_a_size_of_nought_is_called_what_it_means():
    assert text.listed({"size": 0, "depth": 8}) == "size automatic, depth 8" and text.listed({"size": 4}) == "size 4"


def test_marks_without_colour():
    lines = text.show(traces.f5()).split("\n")
    assert "   1  ✓t10␣ ✓t11␣ ✓t12␣ ✓t13␣  +t14␣  4/4  16.5 ms" in lines
    assert "   2  ✗t15␣ ·t16␣ ·t17␣ ·t18␣  ↻t19␣  0/4  16.5 ms" in lines
    assert any("7/10 = 70.0 % of examined, 7/16 = 43.8 % of drafted" in line for line in lines)
    assert any("2.75 tokens a target pass, 1.75 of them accepted" in line for line in lines)
    assert re.sub(r"\x1b\[[0-9;]*m", "", text.show(traces.f5(), True)) == text.show(traces.f5())


def test_rounds_of_every_kind():
    tree = text.show(traces.tree()).split("\n")
    start = tree.index("   1  ✓t11␣  ↻t20␣  1/2  4 candidates, 1 probe  16.5 ms  stop: limit")
    assert tree[start + 1 : start + 4] == ["      ✗t10␣ › ·t12␣", "      ✓t11␣ › ✗t13␣", "      ○t14␣"]
    cut = text.show(traces.run(2, 4, keep=2, stop="end_of_text"))
    assert "✓t15␣ ✓t16␣ ⌿t17␣ ⌿t18␣  ⌿t19␣  2/2" in cut and "end_of_text, 3 tokens cut off" in cut
    plain = text.show(traces.run(0, 0, plain=True))
    assert "   1  +t14␣  –" in plain and "n/a of examined" in plain
    assert "NOT EXACT" in text.show(tr.Trace(traces.header(lossless=False), []))
    assert "still running" in text.show(tr.Trace(traces.header(), []))


def test_the_story_is_the_text_and_says_where_it_breaks_off():
    its = [traces.chain(0, 1, [10, 11], 2, 12, stop="limit", texts={"10": "61", "11": "f09f", "12": "a4"})]
    run = tr.Trace(traces.header(), its)
    assert text.story(run) == "a⟨F0 9F A4⟩  (ends inside a character: 3 bytes)"
    assert text.story(traces.f5()) == traces.f5().text()


def test_lines_while_it_runs_are_the_lines_afterwards():
    run = traces.f5()
    lines = list(text.stream_lines(iter([run.header, *run.iterations])))
    assert all(line in text.show(run).split("\n") for line in lines) and len(lines) == 5 + 4


def figures(run, plain, lang, dark):
    lanes = {"plain <b>": plain, "$draft$": run}
    return {
        "lengths": charts.accept_lengths(run, lang, dark),
        "positions": charts.by_position(run, lang, dark),
        "split": charts.time_split(lanes, lang, dark),
        "rounds": charts.time_of_rounds(run, lang, dark),
        "speed": charts.speed_over_time(lanes, lang, dark),
        "expected": charts.expected_tokens(run, lang, dark),
        "gamma": charts.speedup_by_gamma(run, plain, lang, dark),
    }


RUNS = {
    "f5": (traces.f5(), traces.run(0, 0, 0, plain=True)),
    "hostile": (hostile_run(), traces.run(0, plain=True)),
    "plain": (traces.run(0, plain=True), traces.run(0, plain=True)),
    "empty": (tr.Trace(traces.header(), []), tr.Trace(traces.header(), [])),
    "tree": (traces.tree(), traces.run(0, plain=True)),
}


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("name", RUNS)
def test_charts(name, lang, dark):
    for figure in figures(*RUNS[name], lang, dark).values():
        data = json.loads(figure.to_json())
        json.dumps(data, allow_nan=False)
        assert {one["type"] for one in data["data"]} <= {"bar", "scatter"}
        layout = data["layout"]
        assert layout["paper_bgcolor"] == layout["plot_bgcolor"] == "rgba(0,0,0,0)"
        assert layout["font"]["color"] == ("#E6E6E6" if dark else "#222222")
        assert layout["title"]["text"] in palette.WORDS[lang].values()
        words = [one.get("name", "") for one in data["data"]] + list(layout["yaxis"].get("ticktext", []))
        assert not any(re.search(r"<(?!br)|\$", word) for word in words)


def test_charts_show_the_numbers_of_the_fixture():
    shown = figures(traces.f5(), traces.run(0, 0, 0, plain=True), "en", False)
    assert list(shown["lengths"].data[0].y) == [1, 1, 1, 0, 1]
    assert [list(one.y) for one in shown["positions"].data] == [[3, 2, 1, 1], [1, 1, 1, 0], [0, 1, 2, 3]]
    assert "75.0 % (3/4)" in shown["positions"].data[0].hovertext[0] and "66.7 % (2/3)" in shown["positions"].data[0].hovertext[1]
    point = shown["expected"].data[1]
    assert (point.x[0], point.y[0]) == (0.7, 2.75)
    assert sum(one.x[1] for one in shown["split"].data) == pytest.approx(1000 * 4 * 0.0165 / 11)


def test_the_theory_curve_meets_the_measurement_where_theory_holds():
    run, plain = traces.run(4, 4, 4), traces.run(0, 0, 0, plain=True)  # alpha = 1: theory is exact
    curve, best, measured, _ = charts.speedup_by_gamma(run, plain).data
    assert curve.y[4] == pytest.approx(measured.y[0]) == pytest.approx(5) and curve.y[0] == 1
    assert best.y[0] == max(curve.y)


def test_theory_of_lengths_is_not_drawn_for_a_tree():
    plain = traces.run(0, 0, 0, plain=True)
    for figure in (charts.expected_tokens(traces.tree()), charts.speedup_by_gamma(traces.tree(), plain)):
        assert any(len(one.x) == 1 for one in figure.data)  # the run itself is
        assert all(len(one.x) <= 2 for one in figure.data)


def test_both_languages_have_every_word():
    assert palette.WORDS["en"].keys() == palette.WORDS["zh"].keys()
    assert all(word for table in palette.WORDS.values() for word in table.values())


def test_views_draw_where_torch_and_gradio_cannot_be_imported():
    code = (
        "import sys; sys.modules.update(torch=None, gradio=None, transformers=None)\n"
        "from tests import test_views as t\n"
        "t.figures(*t.RUNS['f5'], 'en', True); t.text.show(t.RUNS['f5'][0], True)\n"
        "import specviz.stats, specviz.theory, specviz.compare\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)

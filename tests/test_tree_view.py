"""What is shown of trees: the light lines, the details, the terminal, and the page in a browser, over runs that really were drafted so."""

import json
import re

import pytest

from specviz import stats
from specviz import trace as tr
from specviz.views import stream, text
from specviz.views.detail import MOST_CHARACTERS, MOST_ENTRIES, MOST_ITEMS, bounded, detail
from tests import traces, treetraces

RUNS = {name: getattr(treetraces, name)() for name in ("fixed", "drawn", "greedy", "wide", "probes")}


def line(trace, it):
    return json.loads(stream.step("x", trace.header, it))


@pytest.mark.parametrize("trace", RUNS.values(), ids=RUNS)
def test_the_light_lines_know_the_shape_of_a_tree(trace):
    for it in trace.iterations:
        found = line(trace, it)
        if len(it.nodes) > 1:
            assert found[11] == [node.parent for node in it.nodes] and not stream.is_chain(it)
            assert found[5].count("o") == sum(node.probe for node in it.nodes)


def test_the_light_lines_of_a_chain_say_nothing_of_a_shape():
    for it in traces.f5().iterations:
        assert stream.is_chain(it) and len(line(traces.f5(), it)) < 12


@pytest.mark.parametrize("trace", RUNS.values(), ids=RUNS)
def test_details_of_a_tree_repeat_its_record(trace):
    assert tr.loads(tr.dumps(trace)).iterations == trace.iterations
    for it in trace.iterations:
        found = json.loads(json.dumps(detail(trace.header, it), allow_nan=False))
        assert found["is_chain"] == stream.is_chain(it) and found["path"] == it.path
        assert [node["parent"] for node in found["nodes"]] == [node.parent for node in it.nodes]
        for test in it.tests:
            assert found["nodes"][test.node]["test"]["p"] == test.p
        for name in ("own", "score", "taps"):
            assert found["note"].get(name) == it.note.get(name)


def test_token_ids_in_a_note_have_names():
    it = RUNS["probes"].iterations[0]
    note = detail(RUNS["probes"].header, it)["note"]
    assert [[one["name"] for one in level] for level in note["window"]] == [[b"d".hex()], [b"e".hex()]]
    assert [one["id"] for one in note["guesses"][0]] == it.note["guesses"][0] and "named" not in note
    assert note["pool"] == 1 and note["pool_size"] == 7


def test_a_note_from_anybody_is_bounded():
    deep = [[[[[1]]]]]
    note = {"text": "x" * 10_000, "list": list(range(10_000)), "deep": deep, "map": {str(k): k for k in range(1000)}, "none": None}
    note |= {f"more{k}": 1 for k in range(1000)} | {"fell_back": True}
    it = tr.Iteration(**{**traces.chain(0, 1, [10], 1, 11, stop="limit").__dict__, "note": note})
    shown = detail(traces.header(), it)["note"]
    assert len(shown) == MOST_ENTRIES and len(shown["text"]) == MOST_CHARACTERS and len(shown["list"]) == MOST_ITEMS
    assert shown["deep"] == [[[None]]] and len(shown["map"]) == MOST_ENTRIES and shown["none"] is None
    odd = {"window": [[1, True, -1, 2**40, "x", None, [2]], 3], "guesses": "no list"}
    it = tr.Iteration(**{**it.__dict__, "note": odd})
    found = detail(traces.header(), it)["note"]
    assert [one and one["id"] for one in found["window"][0][:6]] == [1, None, None, None, None, None] and found["guesses"] is None
    assert json.dumps(bounded(note), allow_nan=False)


# ---- the terminal ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("trace", RUNS.values(), ids=RUNS)
def test_the_terminal_shows_every_verdict_and_counts_the_rest(trace):
    for it in trace.iterations:
        lines = text.round_lines(it, trace.texts())
        below = "\n".join(lines[1:])
        verdicts = stats.verdicts(it)
        if len(it.nodes) > 1:
            for mark, name in (("✓", "accepted"), ("✗", "rejected")):
                assert below.count(mark) == verdicts.count(name)
            rest = sum(int(n) for n in re.findall(r"(\d+) (?:candidates|probes)", lines[-1])) if "      and " in lines[-1] else 0
            assert below.count("·") + below.count("○") + rest == verdicts.count("untested") + verdicts.count("probe")
            assert len(lines) <= 18
    assert "and 55 candidates not reached" in text.show(RUNS["wide"])


def test_the_terminal_indents_by_depth():
    lines = text.round_lines(RUNS["greedy"].iterations[1], RUNS["greedy"].texts())
    assert lines[0].startswith("   2  ✓a ✓s ✓f  +q  3/3  15 candidates")
    at = next(k for k, one in enumerate(lines[1:], 1) if one.strip().startswith("✓a"))
    assert lines[at] == "      ✓a" and lines[at + 1].startswith("        ✗") and lines[at + 2] == "        ✓s › ✓f"


def test_a_tree_of_any_depth_is_drawn():
    """A comb ten thousand deep, from a file, neither ends the stack nor fills the memory."""
    nodes = [tr.Node(10 + k % 2, max(-1, k - 2 - k % 2), k // 2 + 1, 0.1, None, 0) for k in range(4000)]
    tests = [tr.Test(k, 0.1, 1.0, 0.05, 0.1, True) for k in range(0, 4000, 2)]
    it = tr.Iteration(0, 0.0, 1, nodes, [], tests, [t.node for t in tests], 20, "bonus", 0.5, [10] * 2000 + [20], [], {}, 1, stop="limit")
    shown = text.round_lines(it, {10: b"a", 11: b"b", 20: b"c"})
    assert sum(map(len, shown)) < 10**6

"""What is shown of trees: the light lines, the details, the terminal, and the page in a browser, over runs that really were drafted so."""

import json
import re

import pytest
import torch

from specviz import stats
from specviz import trace as tr
from specviz.drafters import METHODS, knobs
from specviz.tree import Draft
from specviz.ui.traceview import LANGUAGES, table
from specviz.verify import LOSSLESS, RULES
from specviz.views import stream, text
from specviz.views.detail import MOST_CHARACTERS, MOST_ENTRIES, MOST_ITEMS, bounded, detail
from specviz.views.stream import letters
from tests import traces, treetraces
from tests.frontkit import RUNS as SERVED

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


def test_every_method_has_words():
    for lang in LANGUAGES:
        words = table(lang)
        for name, method in METHODS.items():
            assert words[f"page.method.{name}"] and words[f"method.{name}.what"] and f"method.{name}.paper" in words
            for knob in knobs(method):
                assert words.get(f"page.f.{name}.{knob.name}", words.get(f"page.f.{knob.name}"))
                assert words.get(f"page.i.{name}.{knob.name}", words.get(f"page.i.{knob.name}"))
        for rule in set(RULES) - LOSSLESS:
            said = words[f"rule.{rule}"] + words[f"page.rule.{rule}"]
            assert said.count("not lossless" if lang == "en" else "并非无损") == 2


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


# ---- the page ----------------------------------------------------------------------------------------------------------

TREES = ("fixedtree", "drawntree", "suretree", "probes", "typical")
WORDS = {"a": "accepted", "r": "rejected", "u": "untested", "b": "bonus", "c": "recovered", "o": "probe"}
MAP = "[...specviz.channels.main.views].find((view) => view.map).map"


def its(name):
    return SERVED[name]["draft_model"].iterations


def numbers(said):
    """{"p": 0.31, "u": 0.5} of a node's second line."""
    found = re.findall(r"(p′|p|q|u) ([0-9.]+(?:e−\d+)?)", said)
    return {name: float(x.replace("e−", "e-")) for name, x in found}


@pytest.mark.parametrize("name", TREES)
def test_every_node_stands_with_its_numbers_and_its_verdict(opened, name):
    one = opened(f"trace={name}")
    for it in its(name)[:3]:
        one.go(it.index)
        if len(it.nodes) < 2:
            continue
        spots = one.page.locator("#inspect .sv-tree [data-k]")
        assert spots.count() == len(it.nodes) + 1
        tests = {test.node: test for test in it.tests}
        for k, letter in enumerate(letters(it)):
            spot = one.page.locator(f"#inspect .sv-tree [data-k='{k}']")
            assert spot.get_attribute("data-verdict") == WORDS[letter]
            if k == len(it.nodes) or letter == "o":
                continue
            found, node, test = numbers(spot.locator("small").inner_text().replace("\n", " ")), it.nodes[k], tests.get(k)
            if test and name != "typical":
                assert found.get("p′", found.get("p")) == pytest.approx(test.p, abs=6e-4) and found["u"] == pytest.approx(test.u, abs=6e-4)
                assert ("p′" in found) == (abs(test.p - node.p) > 1e-9)
            else:
                assert found["p"] == pytest.approx(node.p, abs=6e-4) and "u" not in found
            assert ("q" in found) == (node.q is not None)
    assert one.errors == []


@pytest.mark.parametrize("name", ("fixedtree", "probes", "widetree"))
def test_the_mask_is_the_mask_of_the_target_pass(opened, name):
    one = opened(f"trace={name}")
    it = its(name)[1]
    one.go(1)
    mask = Draft(torch.tensor([node.token for node in it.nodes]), tuple(node.parent for node in it.nodes)).mask
    expected = [[0], *([0, *(j + 1 for j in range(len(it.nodes)) if mask[i, j])] for i in range(len(it.nodes)))]
    assert one.js(f"{MAP}.mask.sees.map((row) => [...row].sort((a, b) => a - b))") == expected
    trace = SERVED[name]["draft_model"]
    prefix = len(trace.header.prompt_ids) + len(trace.iterations[0].emitted) - 1
    assert f"{len(it.nodes) + 1} rows" in one.page.get_attribute("#inspect .sv-mask-cells", "aria-label")
    assert f"prefix of {prefix} tokens" in one.page.get_attribute("#inspect .sv-mask-cells", "aria-label")


def test_pointing_couples_node_row_column_and_path(opened):
    one = opened("trace=fixedtree")
    it = its("fixedtree")[0]
    one.go(0)
    leaf = next(i for i, node in enumerate(it.nodes) if node.depth == 3)
    path = [leaf]
    while it.nodes[path[0]].parent >= 0:
        path.insert(0, it.nodes[path[0]].parent)
    trail = "[...document.querySelectorAll('#inspect .sv-node.sv-trail')].map((n) => Number(n.dataset.k)).sort((a, b) => a - b)"
    one.page.locator(f"#inspect .sv-tree [data-k='{leaf}']").hover()
    one.wait(f"specviz.stats.inspect.shown === 'draft_model/0/{leaf}/full'")
    assert one.js(trail) == path and one.js("document.querySelectorAll('#inspect .sv-edge.sv-trail').length") == len(path)
    assert one.js("document.querySelectorAll('#inspect .sv-mask-band').length") == 2
    assert one.js("document.querySelector('#inspect .sv-mask-hot').getAttribute('d').split('M').length - 1") == len(path) + 2
    assert "sees the prefix" in one.text("#inspect .sv-mask-said") and one.at[2] != leaf
    # and from the matrix: the cell of another branch says so, a click opens the card
    side, left, top = one.js(f"(({{side, left, top}}) => [side, left, top])({MAP}.mask.size)")
    other = next(i for i, node in enumerate(it.nodes) if node.depth == 1 and i != path[0])
    x, y = left + (2 + other + 1.5) * side, top + (leaf + 1.5) * side
    cells = one.page.locator("#inspect .sv-mask-cells")
    cells.hover(position={"x": x, "y": y})
    one.page.wait_for_function("document.querySelector('#inspect .sv-mask-said').textContent.includes('does not see')")
    cells.click(position={"x": x, "y": y})
    one.wait(f"specviz.stats.inspect.token === {leaf}")
    one.page.mouse.move(2, 2)
    one.page.wait_for_function("document.querySelectorAll('#inspect .sv-node.sv-trail').length === 0")


def test_the_tree_is_walked_by_keyboard_in_the_order_in_which_it_is_drawn(opened):
    one = opened("trace=suretree")
    one.go(1)
    order = one.js(f"{MAP}.tree.order")
    assert sorted(order) == list(range(len(its("suretree")[1].nodes) + 1))
    one.page.locator("#inspect .sv-tree .sv-current").focus()
    for _ in order:
        one.page.keyboard.press("ArrowUp")
    one.wait(f"specviz.stats.inspect.token === {order[0]}")
    for k in order[1:]:
        one.page.keyboard.press("ArrowDown")
        one.wait(f"specviz.stats.inspect.token === {k}")
        assert one.js("document.activeElement.dataset.k") == str(k) and one.js("document.activeElement.closest('.sv-tree') !== null")
    assert one.js("document.querySelectorAll('#inspect .sv-tree [tabindex=\"0\"]').length") == 1
    assert float(one.js("getComputedStyle(document.activeElement).outlineWidth").removesuffix("px")) >= 2
    one.page.keyboard.press("ArrowRight")
    one.wait("specviz.stats.inspect.index === 2")


def test_a_node_that_was_not_tested_says_why(opened):
    one = opened("trace=fixedtree")
    said = set()
    for it in its("fixedtree")[:9]:
        marks = letters(it)
        for k in range(len(it.nodes)):
            if marks[k] != "u":
                continue
            branch = k
            while it.nodes[branch].parent not in (-1, *it.path):
                branch = it.nodes[branch].parent
            wanted = "was rejected" if marks[branch] == "r" else "tried first and accepted" if branch == k else "on another branch"
            if (wanted, it.index % 3) in said:
                continue
            said.add((wanted, it.index % 3))
            one.go(it.index, k)
            assert wanted in one.text("#inspect .sv-block p"), (it.index, k)
    assert {wanted for wanted, _ in said} == {"was rejected", "tried first and accepted", "on another branch"}
    one = opened("trace=probes")
    one.go(0, next(i for i, node in enumerate(its("probes")[0].nodes) if node.probe))
    assert "never a candidate" in one.text("#inspect .sv-block p") and one.page.locator("#inspect .sv-coin").count() == 0


def test_the_coin_of_a_later_sibling_is_about_what_was_left(opened):
    for name, formula in (("fixedtree", "p without what was tried before"), ("drawntree", "max(p − q, 0) / Z")):
        one = opened(f"trace={name}")
        it, test = next((it, t) for it in its(name) for t in it.tests if abs(t.p - it.nodes[t.node].p) > 1e-6)
        one.go(it.index, test.node)
        coin = one.page.locator("#inspect .sv-coin")
        assert float(coin.get_attribute("data-u")) == test.u and float(coin.get_attribute("data-threshold")) == test.threshold
        card = one.text("#inspect .sv-card")
        assert formula in card and "p′" in card and "Tested after" in card
        assert one.page.locator("#inspect [data-overlap]").count() == 0, "the overlap is not its acceptance probability"
        first = next(t for t in it.tests if it.nodes[t.node].parent == it.nodes[test.node].parent)
        one.go(it.index, first.node)
        assert "Tested after" not in one.text("#inspect .sv-card")
        row = next(row for row in it.rows if row.after == it.nodes[first.node].parent)
        shown = one.page.locator("#inspect [data-any]" if name == "fixedtree" else "#inspect [data-overlap]").first
        assert float(shown.get_attribute("data-any" if name == "fixedtree" else "data-overlap")) == pytest.approx(row.overlap)
        assert ("one of them is accepted" if name == "fixedtree" else "first of these") in shown.text_content()


def test_the_drawn_token_says_what_it_was_drawn_from(opened):
    one = opened("trace=fixedtree")
    lost = next(it for it in its("fixedtree") if it.kind == "recovered")
    one.go(lost.index, len(lost.nodes))
    assert "All 3 candidates here were rejected" in one.text("#inspect .sv-card") or "All 2 candidates here" in one.text(
        "#inspect .sv-card"
    )
    kept = next(it for it in its("fixedtree") if it.kind == "bonus" and it.nodes)
    one.go(kept.index, len(kept.nodes))
    assert "ends at a leaf" in one.text("#inspect .sv-card")
    one = opened("trace=drawntree")
    lost = next(it for it in its("drawntree") if it.kind == "recovered")
    one.go(lost.index, len(lost.nodes))
    assert "Each rejection left max(p − q, 0) / Z" in one.text("#inspect .sv-card")


def test_typical_acceptance_is_called_not_lossless_wherever_it_is_seen(opened):
    one = opened("trace=typical")
    assert "NOT lossless" in one.text("#race .sv-badges") and "not lossless" in one.text("#race .sv-about")
    it = next(it for it in its("typical") if it.tests)
    one.go(it.index, it.tests[0].node)
    assert "NOT lossless" in one.text("#inspect .sv-round") and "NOT lossless" in one.text("#inspect .sv-card")
    assert one.page.locator("#inspect .sv-coin").count() == 0 and "Chance has no say" in one.text("#inspect .sv-card")
    assert one.page.locator("#inspect [data-any]").count() == 0
    zh = opened("trace=typical&lang=zh")
    assert "并非无损" in zh.text("#race .sv-about") and "并非无损" in zh.text("#inspect .sv-round")


def test_how_a_round_was_drafted(opened):
    one = opened("trace=suretree")
    it = its("suretree")[1]
    one.go(1, 0)
    told = one.text("#inspect .sv-origin")
    assert "15 of 30 considered nodes were sent" in told and "after 4 layers" in told and "embeddings" in told
    assert f"expected {sum(it.note['score']):.2f} accepted tokens; this round had {len(it.path)}." in told
    assert f"draft's own{it.note['own'][0]:.3f}" in one.text("#inspect .sv-facts")
    one.page.click("#inspect [data-act=belief]")
    one.page.wait_for_function("document.querySelector('#inspect .sv-tree [data-k]').textContent.includes('own')")
    assert f"own {it.note['own'][0]:.2f}" in one.text("#inspect .sv-tree [data-k='0']")
    one = opened("trace=probes")
    one.go(0)
    told = one.text("#inspect .sv-origin")
    assert "levels: 2" in told and "1 of them begin after this root" in told and "7 in the whole pool" in told
    assert one.page.locator("#inspect .sv-node-probe").count() == 2
    one.page.click("#inspect [data-act=probes]")
    one.page.wait_for_function("document.querySelectorAll('#inspect .sv-node-probe').length === 0")
    one = opened("trace=medusa")
    it = next(it for it in its("medusa") if it.nodes)
    one.go(it.index)
    rows = one.page.locator("#inspect .sv-origin table").first.locator("tr")
    assert rows.count() == max(node.depth for node in it.nodes) and rows.first.text_content().startswith("head 1")
    said = {node.token for node in it.nodes if node.depth == 1}
    assert rows.first.locator("[data-k]").count() == len(said)


def test_a_chain_shows_its_mask_when_asked(opened):
    one = opened()
    one.go(0)
    assert one.page.locator("#inspect .sv-chip").count() > 1 and not one.page.locator("#inspect .sv-mask").is_visible()
    one.page.click("#inspect [data-act=mask]")
    one.page.locator("#inspect .sv-mask-cells").wait_for(state="visible")
    assert one.js(f"{MAP}.mask.sees.map((row) => row.length)") == [1, 2, 3, 4]


def seen(one, selector):
    """Whether a node of the tree lies inside of its frame."""
    frame, node = (one.page.locator(f"#inspect .sv-tree{part}").first.bounding_box() for part in ("", " " + selector))
    across, down = (
        frame[at] - 1 <= node[at] and node[at] + node[size] <= frame[at] + frame[size] + 1 for at, size in (("x", "width"), ("y", "height"))
    )
    return across and down


@pytest.mark.parametrize(("name", "width"), [("suretree", 390), ("widetree", 390), ("widetree", 1280), ("fixedtree", 1280)])
def test_a_tree_begins_at_its_root_and_says_that_it_goes_on(opened, name, width):
    one = opened(f"trace={name}", width=width, height=844)
    deep = max(its(name)[:-1], key=lambda it: max((node.depth for node in it.nodes), default=0))
    one.go(deep.index + 1)
    one.go(deep.index, len(deep.nodes))  # what the target drew stands at the very end of the path
    assert seen(one, ".sv-node-root")
    more, deeper = one.page.locator("#inspect .sv-tree-more"), one.page.locator("#inspect .sv-tree-more button >> nth=1")
    wide = one.js("(() => { const n = document.querySelector('#inspect .sv-tree'); return n.scrollWidth > n.clientWidth + 1; })()")
    assert more.is_visible() == wide and (wide or width > 390)
    if not wide:
        return
    deepest = max(one.page.locator("#inspect .sv-tree [data-k]").all(), key=lambda node: node.bounding_box()["x"]).get_attribute("data-k")
    assert not seen(one, f"[data-k='{deepest}']")
    deeper.focus()
    for _ in range(12):
        if deeper.get_attribute("aria-disabled") == "true":
            break
        before = one.js("document.querySelector('#inspect .sv-tree').scrollLeft")
        one.page.keyboard.press("Enter")
        one.page.wait_for_function(f"document.querySelector('#inspect .sv-tree').scrollLeft > {before}")
        one.page.wait_for_timeout(100)
    frame, node = (one.page.locator(f"#inspect .sv-tree{part}").bounding_box() for part in ("", f" [data-k='{deepest}']"))
    assert node["x"] + node["width"] <= frame["x"] + frame["width"] + 1 and not seen(one, ".sv-node-root")


@pytest.mark.parametrize("query", ["trace=widetree", "trace=probes&lang=zh", "trace=suretree&__theme=dark", "trace=typical&lang=zh"])
def test_trees_stay_inside_a_small_screen(opened, query):
    one = opened(query, width=390, height=844)
    one.go(1)
    assert one.js("document.documentElement.scrollWidth") <= 390
    inside = "!n.closest('.sv-hidden, .sv-law-name, .sv-text, .sv-strip, .sv-tree, .sv-mask-frame, .sv-scroll')"
    out = f"[...document.querySelectorAll('.sv *')].filter((n) => n.getBoundingClientRect().right > 391 && {inside})"
    assert one.js(f"{out}.map((n) => String(n.className)).slice(0, 5)") == []
    assert seen(one, ".sv-node-root")
    chosen = one.js("specviz.stats.inspect.token")
    order = one.js(f"{MAP}.tree.order")
    one.page.locator(f"#inspect .sv-tree [data-k='{chosen}']").focus()
    one.page.keyboard.press("ArrowDown" if chosen == order[0] else "ArrowUp")
    one.wait(f"specviz.stats.inspect.token !== {chosen}")
    assert seen(one, ".sv-current")
    if "zh" in query:
        left = one.js(
            "[...document.querySelectorAll('#inspect .sv-map, #inspect .sv-origin, #inspect .sv-card')].map((n) => n.textContent).join(' ')"
        )
        for word in ("tested", "accepted", "node", "probe", "candidate", "mask", "prefix", "draft"):
            assert word not in left
    assert one.errors == []

"""The two views in a real browser, over recorded runs: literal text, true numbers, languages, narrow screens, long runs."""

import json
import re
from pathlib import Path

import pytest

from specviz import stats
from specviz import trace as tr
from specviz.drafters import METHODS, knobs
from specviz.ui.traceview import WEB, TraceView, table
from specviz.views import stream
from tests import wild
from tests.frontkit import RUNS, SAMPLED, TITLE

SHOWN = "(s) => s.replace(/[↵⇥]/g, '')"  # signs that stand for characters


def test_hostile_tokens_are_shown_literally(opened):
    one = opened()
    assert one.page.title() == TITLE
    for selector in ("#race .sv-text >> nth=1", "#inspect .sv-strip"):
        text = one.text(selector)
        for token in wild.TEXTS[:5] + wild.TEXTS[9:12]:
            assert token.decode().replace("\n", "").replace(" ", "·" if "strip" in selector else " ") in text
    for index in range(len(SAMPLED.iterations)):
        one.go(index)
    assert one.js("document.querySelectorAll('#race img, #inspect img, .sv script, .sv b > i').length") == 0
    assert one.page.title() == TITLE and one.errors == []
    assert one.js("document.querySelectorAll('.sv-about')[1].textContent").startswith("<b>model</b>")


def test_a_character_split_over_tokens_is_one_and_half_ones_show_bytes(opened):
    one = opened()
    text = one.text("#race .sv-text >> nth=0")
    assert "🤗" in text and "F0 9F" not in text and "FF FE" in text and text.count("\ufffd") == 1
    # alone, out of its context, the first half is only bytes
    index, node = next((it.index, k) for it in SAMPLED.iterations for k, n in enumerate(it.nodes) if n.token == wild.IDS[5])
    one.go(index, node)
    assert "F0 9F" in one.text(f"#inspect .sv-chip[data-k='{node}']")
    assert one.text("#race .sv-pill") == "<|im_end|>"


def test_half_a_character_waits_for_its_other_half(opened):
    one = opened()
    made = one.js("""() => {
      const joiner = new specviz.bytes.Joiner(), bytes = (p) => 'hex:' + specviz.bytes.hex(p.open || p.bytes);
      const say = (t) => t.parts.map((p) => p.text ?? p.pill ?? (p.rest ? '‥' : bytes(p))).join('|');
      const tokens = ['20f09f', 'a4', '9721', 'e4b8', '41', 'ff', 'c3a9'].map((name) => specviz.bytes.parse(name));
      const steps = tokens.map((token) => { joiner.push(token); return tokens.map((t) => t.parts ? say(t) : '').join(' ; '); });
      return steps;
    }""")
    assert made[0].startswith(" |hex:F0 9F") and made[1].startswith(" |hex:F0 9F ; hex:A4")
    assert made[2].startswith(" |🤗 ; ‥ ; ‥|!")
    assert made[4].split(" ; ")[3:5] == ["hex:E4 B8", "A"] and made[6].split(" ; ")[5:7] == ["hex:FF", "é"]


def test_counts_and_speeds_are_those_of_the_record(opened):
    one = opened()
    for lane, trace in RUNS["wild"].items():
        total = stats.summary(trace)
        numbers = "(l) => [l.tokens.length, l.tau, l.alpha, l.speed, l.examined, l.accepted]"
        shown = one.js(f"({numbers})(specviz.channels.main.byKey['{lane}'])")
        assert shown[0] == total.new_tokens and (shown[4], shown[5]) == (total.examined, total.accepted)
        assert shown[1] == pytest.approx(total.tau) and shown[3] == pytest.approx(total.tokens_per_s, rel=1e-3)
        assert total.alpha is None or shown[2] == pytest.approx(total.alpha)
    end = stream.verdict(RUNS["wild"]["draft_model"], RUNS["wild"]["plain"])
    assert one.text("#race .sv-ratio-number") == f"{end['speedup']:.2f}×"
    assert f"predicted {end['predicted']:.2f}×" in one.text("#race .sv-checks")


def test_a_click_in_the_race_opens_the_token_in_inspect_and_tells_the_page(opened):
    one = opened()
    one.page.locator("#race .sv-lane >> nth=1").locator("[data-n='1']").click()
    one.wait("specviz.stats.inspect.lane === 'draft_model' && specviz.stats.inspect.index === 0 && specviz.stats.inspect.token === 1")
    one.page.wait_for_function("document.querySelector('#picked textarea').value.includes('draft_model')")
    assert json.loads(one.js("document.querySelector('#picked textarea').value")) == {
        "run": "wild",
        "lane": "draft_model",
        "index": 0,
        "token": 1,
    }


def test_refused_and_stopped_runs_are_visible(opened):
    refused = opened("trace=refused", ready="specviz.stats.lanes === 1")
    assert refused.text("#race .sv-note") == "refused: No model named <b>x</b>."
    stopped = opened("trace=stopped", ready="specviz.stats.iterations === 1")
    assert "stopped" in stopped.text("#race .sv-badges") and stopped.js("specviz.stats.ended") == 1


def test_both_languages_have_every_string_with_the_same_gaps():
    en, zh = table("en"), table("zh")
    assert en.keys() == zh.keys()
    for key in en:
        assert set(re.findall(r"\{(\w+)\}", en[key])) == set(re.findall(r"\{(\w+)\}", zh[key])), key
    scripts = "".join(path.read_text("utf-8") for path in WEB.glob("*.js"))
    used = set(re.findall(r"""sv\.t\(\s*"([\w.]*\w)"[,)\s]""", scripts))
    assert used and used <= en.keys()
    grown = set(re.findall(r"""sv\.t\(\s*"([\w.]+\.)" \+""", scripts))
    assert all(any(key.startswith(start) for key in en) for start in grown)
    assert {f"state.stop.{stop}" for stop in tr.STOPS} <= en.keys()


def test_the_language_changes_in_place(opened):
    one = opened("lang=zh")
    assert "实测" in one.text("#race .sv-headline") and one.js("document.documentElement.lang") == "zh-CN"
    one.js("specviz.setLang('en')")
    one.page.wait_for_function("document.querySelector('#race .sv-headline').textContent.includes('measured')")
    assert "Iteration" in one.text("#inspect .sv-round h4")
    one.js("specviz.setLang('zh')")
    one.page.wait_for_function("document.querySelector('#inspect .sv-round h4').textContent.includes('轮')")
    left = one.js("[...document.querySelectorAll('.sv')].map((n) => n.textContent).join(' ')")
    for word in ("accepted", "rejected", "iteration", "measured", "target pass", "tokens"):
        assert word not in left


def test_what_the_program_says_is_told_in_the_pages_language(opened):
    one, en, zh = opened("lang=zh"), table("en"), table("zh")
    for key in (key for key in en if key.startswith("program.")):
        for what in ("x", "$& {what}"):
            said = json.dumps(en[key].replace("{what}", what))
            assert one.js(f"specviz.said({said})") == zh[key].replace("{what}", what), key
    assert one.js("specviz.said('Loaded.') + specviz.said('')") == "Loaded."


@pytest.mark.parametrize("query", ["trace=wild", "trace=wild&lang=zh", "trace=long", "trace=greedy&__theme=dark"])
def test_nothing_sticks_out_at_390_pixels(opened, query):
    one = opened(query, width=390, height=844)
    one.go(0, 0)
    assert one.js("document.documentElement.scrollWidth") <= 390
    sticking = one.js("""[...document.querySelectorAll('.sv *')].filter((n) => n.getBoundingClientRect().right > 391
      && !n.closest('.sv-hidden, .sv-law-name, .sv-text, .sv-strip')).map((n) => String(n.className.baseVal ?? n.className)).slice(0, 5)""")
    assert sticking == []


def test_a_long_run_arrives_whole_and_follows_without_fighting_the_reader(opened):
    one = opened("trace=stopped", ready="specviz.stats.iterations === 1")
    one.page.click("#go")
    one.wait("specviz.stats.ended === 2 && specviz.stats.race.rendered === 2000")
    shown = one.js(f"[...document.querySelectorAll('#race .sv-text')].map((n) => ({SHOWN})(n.textContent))")
    assert shown == [trace.text() for trace in RUNS["long"].values()]
    bottom = one.js(
        "(() => { const n = document.querySelector('#race .sv-text'); return n.scrollHeight - n.scrollTop - n.clientHeight; })()"
    )
    assert bottom < 30
    assert one.js("document.querySelectorAll('#race .sv-bricks path').length") <= 10
    # a reader who went up stays there
    one.page.click("#go")
    one.wait("specviz.stats.race.rendered > 400 && specviz.stats.race.rendered < 1500")
    one.js("(() => { const n = document.querySelector('#race .sv-text'); n.scrollTop = 40; })()")
    one.wait("specviz.stats.ended === 2 && specviz.stats.race.rendered === 2000")
    assert one.js("document.querySelector('#race .sv-text').scrollTop") == 40
    assert one.errors == []


def test_the_page_asks_nobody_else_and_reports_no_error(opened):
    one = opened("trace=wild")
    one.go(1)
    one.page.reload()
    one.wait("specviz.stats.inspect.shown.endsWith('full')")
    assert one.hosts <= {"127.0.0.1", "localhost", None, ""} and one.errors == [] and one.js("specviz.stats.bad") == 0


def test_the_template_is_constant():
    view = TraceView("race", None, render=False, value=stream.replay("r", RUNS["wild"]))
    assert "$" not in view.html_template and "{" not in view.html_template and view.css_template == ""
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write", "".join(p.read_text("utf-8") for p in Path(WEB).glob("*.js"))
    )


# ---- verdict cards -----------------------------------------------------------------------------------------------------


CARDS = "[...document.querySelectorAll('#race .sv-verdict')]"


def race_of(one, *speeds, over=True):
    """Draws a race in which plain decoding gives ten tokens a second and the others `speeds` (None: nothing yet)."""
    one.page.evaluate(
        """([speeds, over]) => {
      const names = ["plain", ...speeds.map((_, k) => "m" + k)];
      const same = { rule: "token", knobs: {}, sampling: { temperature: 0 }, capture: 0 };
      const lines = [{ k: "run", run: "made" + Math.random(), lanes: names.map((name) => [name, name]) }];
      const lane = (key, speed) => {
        lines.push({ k: "head", lane: key, method: key, lossless: true, target: "t", drafter: "", prompt: "p", ...same });
        const one = (i) => [key, i, i / speed, [0, 1 / speed, 0, 0, 0], 0, "p", "61", "", over && i === 9 ? "limit" : ""];
        if (speed) for (let i = 0; i < 10; i++) lines.push(one(i));
        const end = { k: "end", lane: key, speedup: speed && speed / 10, predicted: null, same: true, slower: null };
        if (over && key !== "plain") lines.push(end);
      };
      lane("plain", 10);
      speeds.forEach((speed, k) => lane("m" + k, speed));
      specviz.channels.main.feed(lines.map((line) => JSON.stringify(line) + "\\n").join(""));
    }""",
        [list(speeds), over],
    )
    one.wait(f"document.querySelectorAll('#race .sv-verdict').length === {len(speeds)}")


@pytest.mark.parametrize("over", [True, False])
def test_a_verdict_looks_as_its_number_reads_also_while_it_changes(opened, over):
    one = opened()
    race_of(one, 15, 6, 10.02, over=over)
    cards = one.js(f"{CARDS}.map((n) => [n.dataset.standing, n.querySelector('.sv-ratio').firstChild.textContent])")
    assert cards == [["faster", "1.50×▲"], ["slower", "0.60×▼"], ["even", "1.00×"]]
    edges = one.js(f"{CARDS}.map((n) => getComputedStyle(n).borderLeftStyle)")
    colours = one.js(f"{CARDS}.map((n) => getComputedStyle(n).borderLeftColor)")
    assert edges == ["solid", "double", "dashed"] and len(set(colours)) == 3
    assert one.page.locator("#race .sv-slow").count() == int(over)
    race_of(one, None, None, over=over)
    assert one.js(f"{CARDS}.map((n) => n.dataset.standing)") == ["open", "open"]


@pytest.mark.parametrize("width", [390, 800, 1280])
@pytest.mark.parametrize("lanes", [1, 2, 3])
def test_verdict_cards_leave_no_hole(opened, width, lanes):
    one = opened(width=width)
    race_of(one, *[15, 6, 12][:lanes])
    frame = one.page.locator("#race .sv-headline").bounding_box()
    rows = {}
    for card in one.page.locator("#race .sv-verdict").all():
        box = card.bounding_box()
        rows.setdefault(round(box["y"]), []).append(box)
    for row in rows.values():
        assert row[0]["x"] == pytest.approx(frame["x"], abs=1)
        assert row[-1]["x"] + row[-1]["width"] == pytest.approx(frame["x"] + frame["width"], abs=1)
    assert len(rows) in {390: [lanes], 800: [1, 2, 3], 1280: [1]}[width]


# ---- settings ----------------------------------------------------------------------------------------------------------


def test_a_value_that_stands_for_something_else_is_said_in_words():
    """Whatever the help of a setting explains of 0 has words of its own, which the lane's line shows."""
    special = {knob.name for method in METHODS.values() for knob in knobs(method) if re.search(r"\b0 = ", knob.help)}
    assert special >= {"size", "confidence"}
    for lang in ("en", "zh"):
        assert {f"knob.{name}.0" for name in special} <= table(lang).keys()


def test_settings_read_as_the_form_calls_them(opened):
    one = opened()
    said = "Object.entries({size: 0, depth: 5, confidence: 0, seeded: true, 'a<b': 1}).map(([n, v]) => specviz.knob('eagle2', n, v))"
    assert one.js(said) == ["automatic size", "Tree depth 5", "no confidence stop", "starts from the prompt", "a<b 1"]
    assert one.js("specviz.knob('lookahead', 'ngram', 3)") == "n-gram length N 3"
    one.js("specviz.setLang('zh')")
    assert one.js(said)[:2] == ["树的大小自动", "树的深度 5"]

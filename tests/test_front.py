"""The two views in a real browser, over recorded runs: literal text, true numbers, keyboard, languages, narrow screens."""

import itertools
import json
import os
import re
import shutil
import time
from pathlib import Path
from urllib.parse import urlparse

import pytest

os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"

import gradio as gr

from specviz import stats
from specviz import trace as tr
from specviz.ui.traceview import WEB, TraceView, head, table
from specviz.views import stream
from tests import traces, wild

sync_api = pytest.importorskip("playwright.sync_api")
FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run"]
FLAGS += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
TITLE = "front test"


def long_run(rounds: int) -> tr.Trace:
    return traces.run(*[4] * rounds, drafted=4)


SAMPLED = wild.sampled()
RUNS = {
    "wild": {"plain": wild.plain(SAMPLED), "draft_model": SAMPLED},
    "greedy": {"plain": wild.plain(wild.greedy(SAMPLED)), "draft_model": wild.greedy(SAMPLED)},
    "block": {"plain": wild.plain(SAMPLED), "draft_model": wild.block(SAMPLED)},
    "bare": {"draft_model": wild.bare(SAMPLED)},
    "fixed": {"prompt_lookup": wild.fixed(SAMPLED)},
    "fallback": {"draft_model": wild.empty_residual(SAMPLED)},
    "cut": {"draft_model": wild.cut()},
    "lossy": {"draft_model": tr.Trace(wild.header(lossless=False), SAMPLED.iterations)},
    "long": {"plain": traces.run(*[0] * 1000, plain=True), "draft_model": long_run(200)},
}
NOTES = {
    "refused": stream.run("refused", {"plain": "Plain"}) + stream.note("", "refused", "No model named <b>x</b>."),
    "stopped": stream.run("stopped", {"plain": "Plain"})
    + stream.head("plain", RUNS["wild"]["plain"].header)
    + stream.step("plain", RUNS["wild"]["plain"].header, RUNS["wild"]["plain"].iterations[0])
    + stream.note("plain", "stopped"),
}


@pytest.fixture(scope="module")
def address():
    count = itertools.count()

    def lookup(run, lane):
        return RUNS.get(run.split("-")[0], {}).get(lane)

    def show(request: gr.Request):
        name = request.query_params.get("trace", "wild")
        return NOTES.get(name) or stream.replay(name, RUNS[name], {"plain": "Plain <i>lane</i>"})

    def grow():
        """The same run line by line, a few at a time, as the page would send it."""
        value = ""
        for k, line in enumerate(stream.replay(f"long-{next(count)}", RUNS["long"]).splitlines(keepends=True)):
            value += line
            if k % 150 == 0:
                yield value
                time.sleep(0.2)
        yield value

    with gr.Blocks(title=TITLE) as demo:
        go = gr.Button("go", elem_id="go")
        picked = gr.Textbox(elem_id="picked")
        race = TraceView("race", lookup, elem_id="race")
        TraceView("inspect", lookup, elem_id="inspect")

        def on_pick(event: gr.EventData):
            return json.dumps(event._data, sort_keys=True)

        race.pick(on_pick, outputs=picked)
        demo.load(show, outputs=race)
        go.click(grow, outputs=race, show_progress="hidden")
    _, url, _ = demo.launch(prevent_thread_lock=True, quiet=True, head=head(), server_name="127.0.0.1")
    yield url
    demo.close()


@pytest.fixture(scope="module")
def browser():
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    with sync_api.sync_playwright() as play:
        try:
            one = play.chromium.launch(args=FLAGS, **({"executable_path": found} if found else {}))
        except sync_api.Error as error:
            pytest.skip(f"no Chromium: {str(error).splitlines()[0]}")
        yield one
        one.close()


class Page:
    """A page on one recorded run, with what it asked for and complained about."""

    def __init__(self, browser, address, query="", width=1280, height=900, ready="specviz.stats.inspect.shown.endsWith('full')", **context):
        self.context = browser.new_context(viewport={"width": width, "height": height}, locale="en-US", **context)
        self.page = self.context.new_page()
        self.hosts, self.errors = set(), []
        self.page.on("request", lambda request: self.hosts.add(urlparse(request.url).hostname))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("dialog", lambda dialog: self.errors.append("dialog"))
        self.page.goto(address + "?" + query)
        self.wait(ready)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.context.close()

    def wait(self, condition):
        self.page.wait_for_function(f"window.specviz && specviz.stats.run && ({condition})", timeout=20_000)

    def js(self, code):
        return self.page.evaluate(code)

    def text(self, selector):
        return self.page.locator(selector).first.text_content()

    @property
    def at(self):
        stats_now = self.js("specviz.stats.inspect")
        return stats_now["lane"], stats_now["index"], stats_now["token"]

    def go(self, index, token=None, lane="draft_model"):
        """Chooses as a click on the race view does, and waits for the record of that choice."""
        choice = json.dumps({"lane": lane, "index": index, "token": -1 if token is None else token})
        self.js(f"window.dispatchEvent(new CustomEvent('specviz:pick', {{detail: {choice}}}))")
        end = f"specviz.stats.inspect.shown.startsWith('{lane}/{index}/') && specviz.stats.inspect.shown.endsWith('full')"
        self.wait(end + (f" && specviz.stats.inspect.token === {token}" if token is not None else ""))


@pytest.fixture
def opened(browser, address):
    pages = []

    def start(*args, **kwargs):
        pages.append(Page(browser, address, *args, **kwargs))
        return pages[-1]

    yield start
    for one in pages:
        one.context.close()


SHOWN = "(s) => s.replace(/[↵⇥]/g, '')"


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


def test_the_coin_shows_the_numbers_of_the_record(opened):
    one = opened()
    for it in SAMPLED.iterations:
        for test in it.tests:
            one.go(it.index, test.node)
            coin = one.page.locator("#inspect .sv-coin")
            assert float(coin.get_attribute("data-u")) == test.u and float(coin.get_attribute("data-threshold")) == test.threshold
            sentence = one.text("#inspect .sv-sentence")
            numbers = [float(x) for x in re.findall(r"\d\.\d+|\d+", sentence)]
            assert numbers == pytest.approx([test.u, test.threshold], abs=6e-4)
            assert ("accepted" if test.accepted else "rejected") in sentence and ("<" in sentence) == test.accepted
        row = it.rows[0]
        if row.overlap is not None:
            one.go(it.index, len(it.path) if it.kind == "recovered" else len(it.nodes))
            for k, token in enumerate(row.ids):
                cells = one.page.locator(f"#inspect .sv-law[data-id='{token}'] .sv-pq").inner_text().split()
                assert [float(x) for x in cells] == pytest.approx([row.p[k], row.q[k]], abs=6e-4)
            if it.kind == "recovered":
                assert one.page.locator("#inspect [data-overlap]").get_attribute("data-overlap") == str(row.overlap)
                assert (
                    one.page.locator(f"#inspect .sv-law-drawn[data-id='{it.token}'] .sv-spare").inner_text().strip()
                    == f"{row.residual[0]:.3f}"
                )


def test_bars_and_rest_make_one_hundred_per_cent(opened):
    one = opened()
    one.go(0)
    for act in ("after", "model"):
        one.page.click(f"#inspect [data-act={act}]")
        column = one.js("[...document.querySelectorAll('#inspect ul .sv-pq b')].map((n) => Number(n.textContent))")
        assert sum(column) == pytest.approx(1, abs=0.003)
        assert one.page.get_attribute(f"#inspect [data-act={act}]", "aria-pressed") == "true"


def test_redrawing_u_is_a_what_if_and_leaves_the_record_alone(opened):
    one = opened()
    before = tr.dumps(SAMPLED)
    it = SAMPLED.iterations[0]
    one.go(0, len(it.path))  # the rejected draft
    coin = one.page.locator("#inspect .sv-coin")
    recorded = [
        coin.get_attribute("data-u"),
        one.text("#inspect .sv-sentence"),
        one.js("JSON.stringify(specviz.channels.main.byKey.draft_model.its)"),
    ]
    outcomes = set()
    for _ in range(60):
        one.page.click("#inspect [data-act=redraw]")
        said = one.text("#inspect .sv-whatif-text")
        assert "WHAT IF" in said and "The record is unchanged." in said
        u, threshold = (float(x) for x in re.search(r"u′ = ([\d.]+) [<≥] ([\d.]+)", said).groups())
        assert ("→ accepted" in said) == (u < threshold)
        outcomes.add("→ accepted" in said)
        if outcomes == {True, False}:
            break
    assert outcomes == {True, False}
    after = [
        coin.get_attribute("data-u"),
        one.text("#inspect .sv-sentence"),
        one.js("JSON.stringify(specviz.channels.main.byKey.draft_model.its)"),
    ]
    assert after == recorded and tr.dumps(SAMPLED) == before
    one.go(0, 0)
    assert one.page.locator("#inspect .sv-whatif-text").count() == 0


def test_the_whole_view_works_from_the_keyboard(opened):
    one = opened()
    one.go(0)
    one.page.locator("#inspect .sv-current").first.focus()
    seen = [one.at[1]]
    for key, expected in (("ArrowRight", 1), ("ArrowRight", 2), ("ArrowLeft", 1), ("End", len(SAMPLED.iterations) - 1), ("Home", 0)):
        one.page.keyboard.press(key)
        one.wait(f"specviz.stats.inspect.index === {expected}")
        seen.append(one.at[1])
        assert one.js("document.activeElement.closest('.sv-strip') !== null")
    one.page.keyboard.press("ArrowUp")
    one.wait("specviz.stats.inspect.token === 1")
    one.page.keyboard.press("ArrowDown")
    one.wait("specviz.stats.inspect.token === 2")
    assert one.js('document.querySelectorAll(\'#inspect .sv-strip [tabindex="0"], #inspect .sv-chips [tabindex="0"]\').length') == 2
    one.page.keyboard.press(" ")
    one.wait("specviz.stats.inspect.playing")
    one.page.keyboard.press(" ")
    one.wait("!specviz.stats.inspect.playing")
    chip = one.page.locator("#inspect .sv-chip").first
    chip.focus()
    one.page.keyboard.press("Enter")
    one.wait("specviz.stats.inspect.token === 0")
    width = one.js("getComputedStyle(document.activeElement).outlineWidth")
    assert float(width.removesuffix("px")) >= 2


def test_a_replay_follows_the_recorded_times_and_announces_only_its_end(opened):
    one = opened("trace=wild")
    one.go(0)
    one.page.select_option("#inspect [data-act=speed]", "0.25")
    one.page.click("#inspect [data-act=toggle]")
    one.wait("specviz.stats.inspect.playing")
    assert "recorded times at 0.25×" in one.text("#inspect .sv-clock")
    assert one.text("#inspect [aria-live]") == ""
    one.wait("!specviz.stats.inspect.playing")
    assert one.at[1] == len(SAMPLED.iterations) - 1
    assert "End of the record" in one.text("#inspect [aria-live]")


def test_chips_are_buttons_that_say_everything(opened):
    one = opened()
    it = SAMPLED.iterations[0]
    one.go(0)
    chips = one.page.locator("#inspect .sv-chip")
    assert chips.count() == len(it.nodes) + 1
    labels = [chips.nth(k).get_attribute("aria-label") for k in range(chips.count())]
    assert labels[0].startswith("token 1, accepted, p 0.310, q 0.620")
    assert labels[2].startswith("token 3, rejected, p 0.100, q 0.620")
    assert labels[3].startswith("token 4, recovered")
    assert all(chips.nth(k).evaluate("(n) => n.tagName") == "BUTTON" for k in range(4))


def test_hover_previews_and_click_pins(opened):
    one = opened()
    one.go(0, 0)
    one.page.locator("#inspect .sv-iter[data-i='2'] [data-k='0']").hover()
    one.wait("specviz.stats.inspect.shown === 'draft_model/2/0/full'")
    assert one.at[1] == 0 and "preview" in one.text("#inspect .sv-card-head")
    one.page.mouse.move(2, 2)
    one.wait("specviz.stats.inspect.shown === 'draft_model/0/0/full'")
    one.page.locator("#inspect .sv-iter[data-i='2'] [data-k='0']").click()
    one.wait("specviz.stats.inspect.index === 2 && specviz.stats.inspect.token === 0")
    one.page.wait_for_url("**it=3*")


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


def test_other_rules_and_missing_data_say_so(opened):
    block = opened("trace=block")
    block.go(0, 0)
    assert "h = " in block.text("#inspect .sv-threshold") and "not min(1, p/q)" in block.text("#inspect .sv-card")
    assert "block verification" in block.text("#race .sv-lane >> nth=1")
    bare = opened("trace=bare")
    assert "without capture" in bare.text("#inspect .sv-columns > .sv-card") and bare.page.locator("#inspect .sv-coin").count() == 1
    fixed = opened("trace=fixed")
    fixed.go(0, 0, lane="prompt_lookup")
    assert "q = 1 on this token" in fixed.text("#inspect .sv-card")
    back = opened("trace=fallback")
    back.go(0, len(SAMPLED.iterations[0].nodes))
    assert "falls back to p" in back.text("#inspect .sv-card")
    zero = opened("trace=greedy")
    zero.go(0, 0)
    assert "Temperature 0" in zero.text("#inspect .sv-card") and "same text ✓" in zero.text("#race .sv-headline")
    stop = opened("trace=cut")
    stop.go(0, 2)
    assert "discarded" in stop.text("#inspect .sv-card-kind") and stop.js("specviz.stats.tokens") == 2
    row = opened()
    row.go(0, 0)  # no row was recorded after the root
    assert "no data" in row.text("#inspect .sv-columns > .sv-card")
    lossy = opened("trace=lossy")
    assert "NOT lossless" in lossy.text("#race .sv-badges")
    for one in (block, bare, fixed, back, zero, stop, row, lossy):
        assert one.errors == []


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

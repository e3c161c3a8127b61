"""The page in a real browser, over toy models. Waits on counters of the page's own script, never on fixed times."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import httpx
import pytest

from specviz.decode import Limits, decode
from specviz.drafters import METHODS
from specviz.sampling import Sampling
from specviz.trace import Header, Trace
from specviz.ui import files
from specviz.ui.traceview import table
from tests.pagekit import CHROMIUM, FLAGS, HOSTILE, served, toy, until

sync_api = pytest.importorskip("playwright.sync_api")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium found")
WIDE = {"width": 1280, "height": 900}

FOCUSED = """() => {
    const found = [];
    for (let node = document.activeElement; node && node !== document.body; node = node.parentElement) {
        if (node.id) found.push(node.id);
        if (node.getAttribute("role") === "tab") found.push("tab:" + node.innerText);
    }
    return found;
}"""


@pytest.fixture(scope="module")
def browser():
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


def solo(prompt: str = "red fish", max_new: int = 24, name: str = "toy") -> Trace:
    header, *iterations = decode(toy(name), METHODS["plain"](), prompt, Sampling(), Limits(max_new), raw=True)
    assert isinstance(header, Header)
    return Trace(header, iterations)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("traces")
    (folder / "recorded.jsonl").write_text(files.text_of({"plain": solo()}), "utf-8")
    with served(folder) as site:
        yield site


class Visitor:
    """One browser session: what a person does, and what the page then says."""

    def __init__(self, browser, site, query: str = "", viewport=None, locale: str = "en-GB"):
        self.site = site
        self.context = browser.new_context(viewport=viewport or WIDE, locale=locale)
        self.tab = self.context.new_page()
        self.errors: list[str] = []
        self.hosts: set[str] = set()
        self.tab.on("pageerror", lambda error: self.errors.append(str(error)))
        self.tab.on("request", lambda request: self.hosts.add(request.url.split("/")[2] if "//" in request.url else request.url[:5]))
        self.tab.goto(site.url + "?" + query)
        self.tab.wait_for_selector("#run")
        self.tab.wait_for_function("window.specviz && document.body.dataset.run")
        self.tab.wait_for_function("Object.keys(window.specviz.page.last).length > 0")

    def stats(self) -> dict:
        return json.loads(self.tab.evaluate("JSON.stringify(window.specviz.stats)"))

    def state(self) -> str:
        return self.tab.evaluate("document.body.dataset.run")

    def status(self) -> str:
        return self.tab.inner_text("#status .pg-status")

    def reach(self, *states: str, seconds: float = 20) -> float:
        return until(lambda: self.state() in states, seconds)

    def run(self) -> None:
        self.tab.click("#run")

    def saved(self) -> dict[str, Trace]:
        """What the button for saving gives."""
        with self.tab.expect_download() as download:
            self.tab.click("#files button")
        return files.lanes_of(Path(download.value.path()).read_bytes())

    def decoding(self, tokens: int) -> None:
        """Waits until a live run has brought that many tokens to the screen."""
        until(lambda: self.state() == "busy" and self.stats()["run"] not in ("", "recorded") and self.stats()["tokens"] > tokens)

    def close(self) -> None:
        self.context.close()


@pytest.fixture
def visit(browser, site):
    visitors = []

    def open_page(query: str = "", **how) -> Visitor:
        visitors.append(Visitor(browser, site, query, **how))
        return visitors[-1]

    yield open_page
    for visitor in visitors:
        visitor.close()
    until(lambda: not site.running, 5)


def test_it_opens_with_the_recorded_run_and_asks_nobody_else(visit):
    one = visit()
    until(lambda: one.stats()["race"]["rendered"] == 24)
    assert one.stats()["run"] == "recorded" and "recorded" in one.status()
    one.tab.get_by_role("tab", name="Inspect").click()
    one.tab.get_by_role("tab", name="Charts").click()
    one.tab.wait_for_selector("#chart-speed_over_time .main-svg")
    one.run()
    one.reach("done")
    assert one.hosts == {one.site.url.split("/")[2]} and not one.errors


def test_a_run_ends_with_the_same_text_in_every_lane(visit):
    one = visit("n=40&as=raw&prompt=red+fish")
    one.run()
    one.reach("done")
    until(lambda: one.stats()["race"]["rendered"] == 120)
    stats = one.stats()
    assert (stats["lanes"], stats["ended"], stats["tokens"], stats["bad"]) == (3, 3, 120, 0)
    assert re.search(r"seed \d+", one.status())
    one.tab.wait_for_timeout(500)
    assert one.tab.locator(".toast-wrap .error").count() == 0 and one.state() == "done"


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_every_label_speaks_the_language(visit, lang):
    one = visit("t=1" if lang == "en" else "lang=zh&t=1")
    for fold in ("#fold_draft", "#fold_more"):
        one.tab.click(f"{fold} button")
    strings = table(lang)
    one.tab.wait_for_timeout(300)
    shown = one.tab.inner_text("body")
    spec = json.loads(one.tab.evaluate("JSON.stringify(window.specviz.page.spec)"))
    for name in spec["fields"]:
        label = strings.get(f"page.f.{name}", strings.get(f"page.f.{name.split('.')[-1]}"))
        assert label in shown, name
    for name in ("run", "stop_run", "tab_race", "tab_inspect", "tab_charts", "upload", "fold_draft", "fold_more", "example"):
        assert strings[f"page.f.{name}"] in shown, name
    for key in (
        "page.tagline",
        "page.link",
        "page.save",
        "page.st.recorded",
        "page.method.draft_model",
        "page.template.raw",
        "page.mode.measure",
    ):
        assert strings[key] in shown, key
    assert not re.search(r"page\.[a-z]", shown)


def test_the_language_is_switched_and_remembered(visit):
    one = visit("prompt=abc")
    one.tab.click("#pg-lang")
    one.tab.wait_for_function("document.querySelector('#run').innerText === '运行'")
    assert "lang=zh" in one.tab.url and one.tab.input_value("#prompt textarea") == "abc"
    one.tab.goto(one.site.url)
    one.tab.wait_for_function("document.querySelector('#run')?.innerText === '运行'")
    assert one.tab.evaluate("document.documentElement.lang") == "zh-CN"
    assert visit(locale="zh-CN").tab.inner_text("#stop") == "停止"


def test_the_address_restores_and_follows_the_controls(visit):
    one = visit("prompt=hello+there&seed=7&t=0.8&gamma=3&methods=prompt_lookup&n=50&as=raw&top_k=9&record=measure&rp=1.1")
    asked = {}
    one.tab.on("request", lambda r: asked.update(json.loads(r.post_data)) if "/queue/join" in r.url else None)
    one.run()
    one.reach("done")
    values = dict(zip(json.loads(one.tab.evaluate("JSON.stringify(window.specviz.page.spec.fields)")), asked["data"], strict=True))
    assert (
        values["prompt"] == "hello there"
        and values["seed"] == "7"
        and values["temperature"] == 0.8
        and values["methods"] == ["prompt_lookup"]
    )
    assert values["draft_model.gamma"] == values["prompt_lookup.gamma"] == 3 and values["max_new"] == 50 and values["template"] == "raw"
    assert values["top_k"] == 9 and values["mode"] == "measure" and values["repetition_penalty"] == 1.1
    assert "seed 7" in one.status()
    one.tab.fill("#prompt textarea", "changed")
    one.tab.wait_for_function("location.search.includes('prompt=changed')")
    assert "gamma=3" in one.tab.url and "draft_model.gamma" not in one.tab.url
    one.tab.fill("#prompt textarea", "x" * 400)
    one.tab.wait_for_function("!location.search.includes('prompt=')")


def test_a_link_with_nonsense_opens_the_page(visit):
    one = visit("t=NaN&seed=%3Cscript%3E&methods=medusa,draft_model&target=../../etc&rule=none&n=1e999&gamma=x&__proto__=1&lang=xx")
    one.run()
    one.reach("refused", "done")
    assert "Seed" in one.status() and "<script>" in one.status() and not one.errors


def test_disabled_controls_say_why(visit):
    one = visit("t=0")
    assert table("en")["page.why.greedy"] in one.tab.inner_text("#seed") and one.tab.is_disabled("#seed input, #seed textarea")
    one.tab.fill("#temperature input[type=number]", "1")
    one.tab.press("#temperature input[type=number]", "Enter")
    one.tab.wait_for_function("!document.querySelector('#seed input, #seed textarea').disabled")
    one.tab.click("#fold_draft button")
    one.tab.wait_for_selector("#draft_model-gamma", state="visible")
    one.tab.get_by_label("draft model").uncheck()
    one.tab.wait_for_selector("#draft_model-gamma", state="hidden")


def test_examples_set_the_controls(visit):
    one = visit()
    one.tab.click("#example input")
    one.tab.get_by_role("option", name=table("en")["page.ex.hot"]).click()
    one.tab.wait_for_function("document.querySelector('#prompt textarea').value === 'Once upon a'")
    one.run()
    one.reach("done")
    assert "seed 7" in one.status()


def test_stop_frees_the_engine_and_keeps_the_partial_trace(visit, site):
    one = visit("target=slow&n=1000")
    one.run()
    one.decoding(20)
    one.tab.click("#stop")
    assert until(lambda: not site.running, 3) < 1
    one.reach("stopped")
    run, tokens = one.stats()["run"], one.stats()["tokens"]
    assert tokens > 20 and "kept" in one.status()
    lanes = one.saved()
    assert {trace.stop for trace in lanes.values()} == {"stopped"} and sum(len(t.ids) for t in lanes.values()) == tokens
    one.run()  # at once, and again
    until(lambda: one.stats()["run"] != run and one.stats()["tokens"] > 10)
    one.tab.click("#stop")
    one.reach("stopped")


def test_a_closed_tab_frees_the_engine(visit, site):
    one = visit("target=slow&n=1000")
    one.run()
    one.decoding(20)
    one.close()
    assert until(lambda: not site.running, 5) < 1
    other = visit("n=10")
    other.run()
    assert other.reach("done") < 5


def test_a_second_visitor_waits_and_sees_it(visit, site):
    one, two = visit("target=slow&n=1000"), visit("n=10")
    one.run()
    one.decoding(10)
    two.run()
    assert two.state() == "queued"
    until(lambda: "place 1 of 1" in two.status())
    two.tab.click("#pg-lang")
    until(lambda: "第 1 位，共 1 位" in two.status())
    one.tab.click("#stop")
    assert two.reach("done") < 5


def test_stop_while_queued_leaves_the_queue(visit, site):
    one, two = visit("target=slow&n=1000"), visit("n=10")
    one.run()
    one.decoding(10)
    two.run()
    until(lambda: site.queued == 1)
    two.tab.click("#stop")
    until(lambda: site.queued == 0, 2)
    two.reach("idle")
    before = one.stats()["tokens"]
    until(lambda: one.stats()["tokens"] > before + 5)
    one.tab.click("#stop")
    one.reach("stopped")
    assert two.stats()["run"] == "recorded"


def test_a_closed_tab_leaves_the_queue(visit, site):
    one, two = visit("target=slow&n=1000"), visit("n=10")
    one.run()
    one.decoding(10)
    two.run()
    until(lambda: site.queued == 1)
    two.close()
    until(lambda: site.queued == 0, 5)
    one.tab.click("#stop")
    one.reach("stopped")


def test_a_full_queue_says_so_and_leaves_the_page_usable(visit, site):
    one = visit("n=10")
    queue, site.demo._queue.max_size = site.demo._queue.max_size, 0
    try:
        one.run()
        one.reach("refused")
        assert one.status() == table("en")["page.st.lost"]
    finally:
        site.demo._queue.max_size = queue
    one.run()
    one.reach("done")


def test_two_visitors_do_not_mix(visit):
    visitors = {prompt: visit(f"as=raw&n=60&prompt={prompt}") for prompt in ("AAAA", "BBBB")}
    for one in visitors.values():
        one.run()
    for prompt, one in visitors.items():
        one.reach("done")
        lanes = one.saved()
        assert all(trace.header.prompt == prompt and trace.ids == solo(prompt, 60).ids for trace in lanes.values())
    assert solo("AAAA", 60).ids != solo("BBBB", 60).ids


def test_a_trace_is_opened_and_garbage_is_one_sentence(visit, tmp_path):
    one = visit()
    until(lambda: one.stats()["race"]["rendered"] == 24)
    good, bad = tmp_path / "good.jsonl", tmp_path / "bad.jsonl"
    bad.write_bytes(b"\xff\x00 not a trace <b>")
    one.tab.set_input_files("input[type=file]", bad)
    one.reach("refused")
    assert "not a trace" in one.status() and str(tmp_path) not in one.tab.inner_text("body")
    assert one.stats()["race"]["rendered"] == 24 and one.stats()["run"] == "recorded"
    good.write_text(files.text_of({"plain": solo("other", 30)}), "utf-8")
    second = tmp_path / "second.jsonl"
    second.write_text(files.text_of({"plain": solo("else", 20)}), "utf-8")
    one.tab.set_input_files("input[type=file]", [good, second])
    one.reach("done")
    until(lambda: one.stats()["race"]["rendered"] == 50)
    assert one.stats()["run"] != "recorded"


def test_a_record_that_is_gone_cannot_be_saved_and_that_is_said(visit):
    one = visit()
    one.tab.evaluate("window.specviz.stats.run = 'nobody'")
    one.tab.click("#files button")
    one.tab.wait_for_selector(f"text={table('en')['page.save.gone']}")


def test_refusals_keep_the_screen_and_show_no_path(visit):
    for query, words in (
        ("target=absent", "check the network"),
        ("target=broken", "failed inside"),
        ("target=small&as=raw&prompt=" + "x" * 80, "80 tokens"),
    ):
        one = visit(query)
        until(lambda one=one: one.stats()["race"]["rendered"] == 24)
        one.run()
        one.reach("refused")
        assert words in one.status().lower() and "/secret" not in one.tab.inner_text("body")
        assert one.stats()["race"]["rendered"] == 24
    good = visit("n=8")
    good.run()
    good.reach("done")


def test_hostile_tokens_and_prompts_stay_text(visit):
    prompt = "repeat: <img src=x onerror=\"document.title='x'\"> ${document.title='y'} `z` {{q}}"
    one = visit("target=hostile&n=60&t=1&seed=5&as=raw")
    title = one.tab.title()
    one.tab.fill("#prompt textarea", prompt)
    one.run()
    one.reach("done")
    until(lambda: one.stats()["race"]["rendered"] > 60)
    text = one.tab.evaluate("document.querySelector('#race').textContent")
    for piece in HOSTILE:
        assert piece.strip() in text, piece
    one.tab.get_by_role("tab", name="Inspect").click()
    until(lambda: one.stats()["inspect"]["rendered"] > 0)
    one.tab.get_by_role("tab", name="Charts").click()
    one.tab.wait_for_selector("#chart-speed_over_time .main-svg")
    assert one.tab.title() == title and not one.tab.evaluate("'owned' in window") and not one.errors
    assert one.tab.locator("#race img, #inspect img, #race script, #inspect script").count() == 0


def test_a_picked_token_is_inspected(visit):
    one = visit("n=30")
    one.run()
    one.reach("done")
    until(lambda: one.stats()["race"]["rendered"] == 90)
    one.tab.locator("#race [data-n]").nth(5).click()
    one.tab.wait_for_function("window.specviz.stats.inspect.index === 5")
    assert one.tab.get_by_role("tab", name="Inspect").first.get_attribute("aria-selected") == "true"
    until(lambda: one.stats()["details"] > 0)


def test_charts_follow_the_run_and_the_language(visit):
    one = visit("n=20")
    one.tab.get_by_role("tab", name="Charts").click()
    one.tab.wait_for_selector("#chart-speed_over_time .main-svg")
    assert one.tab.locator("#chart-by_position .main-svg").count() == 0  # the recorded run has no drafting lane
    one.run()
    one.reach("done")
    one.tab.wait_for_selector("#chart-by_position .main-svg")
    title = one.tab.text_content("#chart-by_position .gtitle")
    one.tab.click("#pg-lang")
    until(lambda: one.tab.text_content("#chart-by_position .gtitle") != title)
    one.tab.select_option("#pg-lane", "prompt_lookup")
    one.tab.wait_for_selector("#chart-by_position .main-svg")
    assert not one.errors


def test_run_and_stop_stay_in_sight(visit):
    one = visit("n=100", viewport={"width": 1280, "height": 500})
    one.run()
    one.reach("done")
    one.tab.mouse.wheel(0, 700)
    one.tab.wait_for_function("window.scrollY > 300")
    until(lambda: 0 <= one.tab.locator("#stop").bounding_box()["y"] < 60, 3)


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_no_sideways_scrolling_on_a_phone(visit, lang):
    one = visit(f"lang={lang}&n=60", viewport={"width": 390, "height": 800})
    for fold in ("#fold_draft", "#fold_more"):
        one.tab.click(f"{fold} button")
    one.run()
    one.reach("done")
    tabs = table(lang)
    for name in ("race", "inspect", "charts"):
        one.tab.locator("#tabs button[role=tab]", has_text=tabs[f"page.f.tab_{name}"]).first.click()
        one.tab.wait_for_timeout(400)
        assert one.tab.evaluate("document.documentElement.scrollWidth") <= 390, name


def test_everything_is_reached_by_keyboard(visit):
    one = visit("t=1&n=8")
    seen = set()
    one.tab.focus("body")
    for _ in range(60):
        one.tab.keyboard.press("Tab")
        seen |= set(one.tab.evaluate(FOCUSED))
    wanted = {
        "pg-lang",
        "pg-theme",
        "pg-link",
        "prompt",
        "example",
        "template",
        "target",
        "methods",
        "temperature",
        "max_new",
        "mode",
        "seed",
    }
    assert wanted | {"fold_draft", "fold_more", "run", "stop", "files", "upload", "tab:Race"} <= seen
    one.tab.focus("#run")
    one.tab.keyboard.press("Enter")
    one.reach("done")
    before = one.stats()["run"]
    one.tab.focus("#prompt textarea")
    one.tab.keyboard.press("Control+Enter")
    until(lambda: one.stats()["run"] != before and one.state() == "done")


def test_the_theme_is_switched_and_remembered(visit):
    one = visit()
    dark = one.tab.evaluate("document.body.classList.contains('dark')")
    one.tab.click("#pg-theme")
    assert one.tab.evaluate("document.body.classList.contains('dark')") is not dark
    one.tab.reload()
    one.tab.wait_for_selector("#pg-theme")
    one.tab.wait_for_function(f"document.body.classList.contains('dark') === {str(not dark).lower()}")


def test_a_long_run_stays_light_on_the_wire(visit):
    one = visit("target=slow&n=300&methods=draft_model")
    received = [0]
    session = one.context.new_cdp_session(one.tab)
    session.send("Network.enable")
    session.on("Network.dataReceived", lambda event: received.__setitem__(0, received[0] + event["dataLength"]))
    one.run()
    one.reach("done", seconds=60)
    until(lambda: one.stats()["race"]["rendered"] == 600)
    assert 10_000 < received[0] < 150_000, received[0]


def test_crafted_requests_get_a_sentence_and_hurt_nobody(visit, site):
    other = visit("target=slow&n=1000")
    other.run()
    other.decoding(10)
    other.tab.click("#stop")
    other.reach("stopped")
    number = next(d["id"] for d in httpx.get(site.url + "config").json()["dependencies"] if d["api_name"] == "run")
    spec = json.loads(other.tab.evaluate("JSON.stringify(window.specviz.page.spec)"))
    good = [spec["defaults"][name] for name in spec["fields"]]
    bad = [
        {"prompt": "x" * 100_000},
        {"temperature": "hot"},
        {"max_new": 10**400},
        {"methods": [[]]},
        {"target": "../../etc"},
        {"stop": {"a": [1] * 1000}},
    ]
    for k, change in enumerate(bad):
        sent = [change.get(name, value) for name, value in zip(spec["fields"], good, strict=True)]
        body = json.dumps({"data": sent, "fn_index": number, "session_hash": f"crafted{k}"})
        httpx.post(site.url + "gradio_api/queue/join", content=body, headers={"content-type": "application/json"})
        with httpx.stream("GET", f"{site.url}gradio_api/queue/data?session_hash=crafted{k}", timeout=20) as answer:
            lines = []
            for line in answer.iter_lines():
                lines.append(line)
                if "process_completed" in line:
                    break
        said = "".join(lines)
        assert "page.err." in said and "Traceback" not in said and len(said) < 5000, change
    body = json.dumps({"data": [float("nan"), math.inf, *good[2:]], "fn_index": number, "session_hash": "craftedx"})  # no JSON at all
    httpx.post(site.url + "gradio_api/queue/join", content=body, headers={"content-type": "application/json"})
    other.tab.evaluate("history.replaceState(null, '', '?n=10')")
    other.tab.reload()
    other.tab.wait_for_function("window.specviz && document.body.dataset.run && Object.keys(window.specviz.page.last).length > 0")
    other.run()
    other.reach("done")


def test_nothing_is_open_but_the_page(site, browser):
    context = browser.new_context()
    get = context.request.get
    assert get(site.url + "monitoring").status == 403
    named = get(site.url + "gradio_api/info").json()["named_endpoints"]
    assert not named, list(named)
    assert context.request.post(f"{site.url}gradio_api/run/run", data={"data": []}).status >= 400  # no way around the queue
    for name in ("halt", "open"):  # not queued, so they can be called: they know a caller's own session only
        answer = context.request.post(
            f"{site.url}gradio_api/run/{name}", data={"data": [None] * (name == "open"), "session_hash": "nobody"}
        )
        assert "/" not in answer.text().replace("page.", ""), answer.text()
    for path in ("app.py", "models.yaml", "assets/web/page.js", "../../etc/passwd"):
        assert get(f"{site.url}gradio_api/file={path}").status in (403, 404)
    context.close()

"""The page in a real browser, over toy models. Waits on counters of the page's own script, never on fixed times."""

from __future__ import annotations

import json
import re

import pytest

from specviz.ui import page
from specviz.ui.traceview import table
from tests.pagekit import until

FOCUSED = """() => {
    const found = [];
    for (let node = document.activeElement; node && node !== document.body; node = node.parentElement) {
        if (node.id) found.push(node.id);
        if (node.getAttribute("role") === "tab") found.push("tab:" + node.innerText);
    }
    return found;
}"""


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
        if "." not in name or name.split(".")[0] in spec["defaults"]["methods"]:  # settings of other methods are not drawn
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
    one = visit("prompt=hello+there&seed=7&t=0.8&gamma=3&methods=prompt_lookup&n=50&as=raw&top_k=9&record=measure&rp=1.1&min_p=7")
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
    assert values["min_p"] == 0, "what a control cannot show is not taken from the address"
    assert "seed 7" in one.status()
    one.tab.fill("#prompt textarea", "changed")
    one.tab.wait_for_function("location.search.includes('prompt=changed')")
    assert "gamma=3" in one.tab.url and "draft_model.gamma" not in one.tab.url
    one.tab.fill("#prompt textarea", "x" * 400)
    one.tab.wait_for_function("!location.search.includes('prompt=')")


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


def test_stop_is_heard_at_once_also_where_it_cannot_be_obeyed_at_once(visit, site, monkeypatch):
    monkeypatch.setattr(page, "PATIENCE", 0.2)  # so that the page has to ask again
    words = table("en")
    one = visit("target=measuring&n=10")
    site.measuring.clear()
    try:
        one.run()
        until(lambda: "Measuring" in one.status())
        one.tab.click("#stop")
        until(lambda: one.status() == words["page.st.stopping"])
        one.tab.wait_for_timeout(1500)
        assert one.status() == words["page.st.stopping"] and one.state() == "busy"
    finally:
        site.measuring.set()
    one.reach("stopped")
    assert one.status() == words["page.st.stopped.early"]
    one.run()
    one.reach("done")
    assert not one.errors


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
    strings = table(one.tab.evaluate("specviz.lang"))
    for axis in ("#chart-time_split .ytick", "#chart-speed_over_time .legendtext"):  # lanes are called as everywhere else
        until(lambda axis=axis: strings["page.method.draft_model"] in one.tab.locator(axis).all_text_contents())
        assert strings["page.method.plain"] in one.tab.locator(axis).all_text_contents()
    one.tab.select_option("#pg-lane", "prompt_lookup")
    one.tab.wait_for_selector("#chart-by_position .main-svg")
    assert not one.errors


def test_run_and_stop_stay_in_sight(visit):
    one = visit("n=100", viewport={"width": 1280, "height": 500})
    one.run()
    one.reach("done")
    one.tab.mouse.wheel(0, 700)
    one.tab.wait_for_function("window.scrollY > 300")
    until(lambda: 0 <= one.tab.locator("#stop").bounding_box()["y"] < 60)


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
    until(lambda: one.tab.locator("[role=listbox]").count() == 0)  # a list that was passed fades out, and none stays open
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


def test_stop_in_the_queue_is_answered_each_time(visit):
    ahead, one = visit("target=slow&n=400"), visit("n=10")
    ahead.run()
    ahead.decoding(2)
    for _ in range(2):  # the second answer says the same as the first
        one.run()
        one.reach("queued")
        one.tab.click("#stop")
        until(lambda: one.status() == table("en")["page.st.idle"])
    ahead.tab.click("#stop")
    ahead.reach("stopped")

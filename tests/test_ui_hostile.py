"""Bad links, bad files, bad requests, bad tokens: one sentence each, nothing lost, nothing run."""

from __future__ import annotations

import json
import math

import httpx

from specviz.ui import files
from specviz.ui.traceview import table
from tests.pagekit import HOSTILE, until
from tests.visitors import solo


def test_a_link_with_nonsense_opens_the_page(visit):
    one = visit("t=NaN&seed=%3Cscript%3E&methods=medusa,draft_model&target=../../etc&rule=none&n=1e999&gamma=x&__proto__=1&lang=xx")
    one.run()
    one.reach("refused", "done")
    assert "Seed" in one.status() and "<script>" in one.status() and not one.errors


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
    assert one.stats()["run"] != "recorded" and "good.jsonl, second.jsonl" in one.status()
    named = tmp_path / ("seed" + "x" * 90 + ".jsonl")  # shown as it is, whatever it is called, and not for ever
    named.write_bytes(good.read_bytes())
    one.tab.set_input_files("input[type=file]", named)
    until(lambda: "seedxxx" in one.status())
    assert "x…" in one.status() and "Seed" not in one.status()


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
        one.close()
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

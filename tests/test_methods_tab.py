"""The Methods tab: what is asked is checked, rows grow, others go on meanwhile, Stop keeps what there is, and a person can read it."""

from __future__ import annotations

import csv
import io
import json
import threading
import time
from pathlib import Path

import pytest

from specviz.catalog import CatalogError
from specviz.drafters import METHODS
from specviz.ui import methods_tab, offer
from specviz.ui.form import AskError, read
from specviz.ui.methods_tab import OWN, PROMPTS, Table, drain, read_table, work
from specviz.ui.run import Engine, Run
from specviz.ui.run import work as run_work
from specviz.ui.traceview import table
from specviz.views import methods as view
from tests.pagekit import drafter, toy, until

ASKED = {"methods": ["prompt_lookup", "draft_model"], "prompts": ["loop", OWN], "max_new": 12}


def setup_of(model, refuse=()):
    def load_drafter(target, method, values, progress):
        if method in refuse:
            raise CatalogError(f"No weights of {method} are here.")
        return drafter(target, method, values)

    return offer.arrange(["toy"], {}, {}, Engine(lambda *_: model, load_drafter))


def form(setup, **changes):
    return [{**setup.defaults, "template": "raw", "prompt": "red fish", **changes}[name] for name in setup.offer.fields]


def started(setup, asked=ASKED, **changes):
    ask, found = read_table(setup.offer, form(setup, **changes), asked), Table()
    threading.Thread(target=work, args=(found, ask, setup.engine), daemon=True).start()
    return found


# --- what is asked ---


def test_an_ask_holds_each_methods_own_settings_and_one_seed():
    setup = setup_of(toy())
    values = {f"{name}.gamma": 3 for name in ("draft_model", "prompt_lookup")}
    ask = read_table(setup.offer, form(setup, temperature=1, **values), ASKED)
    assert list(ask.asks) == ["plain", *(name for name in setup.offer.methods if name in ASKED["methods"])]
    assert ask.asks["prompt_lookup"].knobs["prompt_lookup"]["gamma"] == 3
    assert len({one.sampling for one in ask.asks.values()}) == 1
    assert ask.prompts == (PROMPTS["loop"], ("red fish", True)) and ask.limits.max_new == 12


def test_more_than_a_race_may_hold_can_be_measured():
    setup = setup_of(toy())
    every = list(setup.offer.methods)
    ask = read_table(setup.offer, form(setup), {**ASKED, "methods": every})
    assert list(ask.asks) == ["plain", *every]


BAD = [
    (None, "page.err.form"),
    ([], "page.err.form"),
    ({}, "page.err.form"),
    ({**ASKED, "methods": "draft_model"}, "page.err.form"),
    ({**ASKED, "methods": [["draft_model"]]}, "page.err.form"),
    ({**ASKED, "methods": ["plain"]}, "page.err.method"),
    ({**ASKED, "methods": ["<script>"]}, "page.err.method"),
    ({**ASKED, "prompts": ["../../etc/passwd"]}, "page.err.choice"),
    ({**ASKED, "prompts": ["hot"]}, "page.err.choice"),
    ({**ASKED, "prompts": []}, "methods.err.none"),
    ({**ASKED, "methods": []}, "methods.err.none"),
    ({**ASKED, "max_new": 0}, "page.err.whole"),
    ({**ASKED, "max_new": 10**9}, "page.err.whole"),
    ({**ASKED, "max_new": True}, "page.err.whole"),
    ({**ASKED, "max_new": "32"}, "page.err.whole"),
    ({**ASKED, "max_new": 12.5}, "page.err.whole"),
]


@pytest.mark.parametrize(("asked", "key"), BAD)
def test_what_a_client_sends_is_checked(asked, key):
    setup = setup_of(toy())
    with pytest.raises(AskError) as refused:
        read_table(setup.offer, form(setup), asked)
    assert refused.value.key == key and key in table("en") and key in table("zh")


def test_the_form_is_checked_too():
    setup = setup_of(toy())
    for sent, key in (
        (form(setup)[:-1], "page.err.form"),
        (form(setup, target="/etc"), "page.err.choice"),
        (form(setup, temperature=99), "page.err.number"),
        (form(setup, **{"prompt_lookup.gamma": 1000}), "page.err.whole"),
        (form(setup, prompt="  "), "methods.err.own"),
    ):
        with pytest.raises(AskError) as refused:
            read_table(setup.offer, sent, ASKED)
        assert refused.value.key == key


# --- the work ---


def test_rows_grow_and_the_last_value_holds_them_all():
    found = started(setup_of(toy()))
    values = list(drain(found))
    last = values[-1]
    assert last["state"] == "done" and set(last["rows"]) == {"plain", *ASKED["methods"]} and last["refused"] == {}
    assert all(row["prompts"] == 2 and row["equal_to_plain"] == "2/2" for row in last["rows"].values())
    assert last["about"]["v"]["1"] == 1 and last["about"]["target"] == "toy"
    counts = [len(value.get("rows", {})) for value in values]
    assert counts == sorted(counts)
    json.dumps(values, allow_nan=False)


def test_every_method_is_measured():
    setup = setup_of(toy())
    found = started(setup, {**ASKED, "methods": list(setup.offer.methods), "prompts": ["loop"]})
    until(found.done.is_set, 120)
    assert found.value["state"] == "done" and found.value["refused"] == {}
    assert list(found.value["rows"]) == ["plain", *setup.offer.methods]


def test_a_method_without_weights_says_so_and_the_others_go_on():
    found = started(setup_of(toy(), refuse=["draft_model"]))
    until(found.done.is_set, 30)
    assert found.value["state"] == "done" and set(found.value["rows"]) == {"plain", "prompt_lookup"}
    assert found.value["refused"] == {"draft_model": {"key": "page.st.refused", "text": "No weights of draft_model are here."}}


def test_a_method_at_fault_costs_the_others_nothing(capsys):
    class Faulty(METHODS["prompt_lookup"]):
        def propose(self, state):
            raise IndexError("/secret/path")

    def load_drafter(target, method, values, progress):
        return Faulty() if method == "prompt_lookup" else drafter(target, method, values)

    found = started(offer.arrange(["toy"], {}, {}, Engine(lambda *_: toy(), load_drafter)))
    until(found.done.is_set, 60)
    assert found.value["state"] == "done" and set(found.value["rows"]) == {"plain", "draft_model"}
    assert found.value["refused"] == {"prompt_lookup": {"key": "methods.failed"}} and "methods.failed" in table("zh")
    assert "/secret" in capsys.readouterr().err


def test_a_prompt_that_is_too_long_ends_it_in_one_sentence():
    found = started(setup_of(toy(context=64)), prompt="x" * 80)
    until(found.done.is_set, 30)
    assert found.value["state"] == "refused" and found.value["say"] == {"key": "page.run.long", "count": 80, "target": "toy", "most": 64}


def test_stop_keeps_what_was_measured_and_ends_at_once():
    model = toy(pause=0.01)
    found = started(setup_of(model), {**ASKED, "prompts": ["loop", "table", OWN], "max_new": 60})
    until(lambda: len(found.value.get("rows", {})) >= 2, 60)
    before = len(model.passes)
    found.stop.set()
    until(found.done.is_set)
    assert len(model.passes) < before + 20  # what was left would take a thousand
    assert found.value["state"] == "stopped" and len(found.value["rows"]) >= 2
    passes = len(model.passes)
    time.sleep(0.2)
    assert len(model.passes) == passes


def test_closing_the_drain_stops_the_work():
    found = started(setup_of(toy(pause=0.01)))
    shown = drain(found)
    next(shown)
    shown.close()
    until(found.done.is_set)
    assert found.value["state"] == "stopped"


def test_a_fault_of_the_program_shows_no_details(capsys):
    def broken(*_):
        raise OSError("/secret/path")

    setup = setup_of(toy())
    found = Table()
    work(found, read_table(setup.offer, form(setup), ASKED), Engine(broken, broken))
    assert found.value["state"] == "refused" and found.value["say"] == {"key": "page.st.failed"}
    assert "/secret" in capsys.readouterr().err


def test_another_visitors_run_goes_in_between():
    model = toy(pause=0.01)
    setup = setup_of(model)
    found = started(setup, {**ASKED, "prompts": ["loop", "table", "complete", OWN], "max_new": 60})
    until(lambda: len(found.value.get("rows", {})) >= 1, 60)
    ask = read(setup.offer, form(setup, methods=["prompt_lookup"], max_new=20))
    run = Run({name: name for name in ask.methods})
    threading.Thread(target=run_work, args=(run, ask, setup.engine), daemon=True).start()
    until(run.done.is_set, 20)
    assert not found.done.is_set() and run.status["state"] == "done"
    found.stop.set()
    until(found.done.is_set)


# --- what it concludes ---


def row(speedup, lossless=True):
    return {"speedup": speedup, "lossless": lossless}


def test_the_fastest_lossless_method_is_recommended():
    rows = {"plain": row(1), "medusa": row(3, lossless=False), "eagle3": row(2.1), "token_recycling": row(1.6), "suffix": row(1.7)}
    found = view.advice(rows)
    assert found["best"] == "eagle3" and found["speedup"] == 2.1 and not found["plain"]
    assert found["cases"] == {"large": [["eagle3", 2.1]], "nothing": [["suffix", 1.7], ["token_recycling", 1.6]]}


def test_where_nothing_is_faster_that_is_said():
    found = view.advice({"plain": row(1), "suffix": row(0.9)})
    assert found == {"best": None, "speedup": 0.9, "plain": True, "cases": {"nothing": [["suffix", 0.9]]}}
    assert view.advice({})["best"] is None and view.advice({})["plain"] is False


def test_each_case_names_methods_that_exist():
    assert {name for names in view.CASES.values() for name in names} == set(METHODS) - {"plain"}
    assert not any(METHODS[name].needs in ("model", "head") for name in view.CASES["nothing"])
    for lang in ("en", "zh"):
        assert all(f"methods.case.{case}" in table(lang) and f"methods.case.{case}.why" in table(lang) for case in view.CASES)


def test_weights_that_are_here_are_known_before_measuring():
    from specviz.ui.offer import from_catalog

    setup = from_catalog()
    known = methods_tab.known(setup.offer)
    assert known["targets"]["smollm2-135m"]["draft_model"]["trained"]["parameters"] > 0
    assert set(known["methods"]) == set(METHODS) and "hot" not in known["usual"]["examples"]
    assert set(known["usual"]["prompts"]) <= set(PROMPTS)
    json.dumps(known, allow_nan=False)


# --- in a browser ---


def opened(visit, query="as=raw&prompt=red+fish", **how):
    one = visit(query, **how)
    one.tab.locator("#tabs button[role=tab]", has_text=table("zh" if "lang=zh" in query else "en")["page.f.tab_methods"]).first.click()
    one.tab.wait_for_selector(".sv-m-table")
    return one


def choose(one, *prompts, tokens="16"):
    for box in one.tab.locator(".sv-m-controls fieldset input").all():
        box.set_checked(box.get_attribute("value") in prompts)
    one.tab.select_option(".sv-m-controls select", tokens)


def state(one):
    return one.stats()["methods"]["state"]


def measured(one, *prompts, seconds=90):
    choose(one, *prompts)
    one.tab.click(".sv-m-go")
    until(lambda: state(one) in ("done", "refused", "stopped"), seconds)


def test_a_click_fills_the_table(visit):
    one = opened(visit)
    measured(one, "own", "loop")
    assert state(one) == "done", one.tab.inner_text(".sv-m-say")
    names = [name for name in METHODS if name != "plain"]
    assert one.tab.locator(".sv-m-table tbody tr").count() == len(names) + 1 == one.stats()["methods"]["measured"]
    for name in names:
        line = one.tab.locator(f".sv-m-table tr[data-method={name}]")
        assert "×" in line.locator(".sv-m-measured").inner_text() and "2/2" in line.locator(".sv-m-same").inner_text()
    assert one.tab.inner_text(".sv-m-best") != table("en")["methods.best.none"] and not one.errors
    heads = one.tab.locator(".sv-m-table thead th").all_inner_texts()
    assert all(table("en")[f"methods.col.{key}"] in heads for key in ("method", "tau", "alpha", "rows", "c", "v", "predicted", "measured"))
    assert one.tab.get_by_role("table").first.get_attribute("aria-busy") == "false"
    assert one.tab.get_by_role("rowheader").count() == len(names) + 1


def test_what_no_run_has_told_is_not_claimed(visit):
    one, words = opened(visit, "rule=typical&as=raw&prompt=red+fish"), table("en")
    said = one.tab.locator("tr[data-method=prompt_lookup] .sv-m-lossless")
    until(lambda: said.inner_text() == "–")
    assert one.tab.inner_text("tr[data-method=plain] .sv-m-lossless") == words["methods.yes"]
    one.tab.click("#fold_more button")
    one.tab.get_by_label(words["page.rule.block"], exact=True).check()
    until(lambda: said.inner_text() == words["methods.yes"])


def test_what_failed_under_one_rule_can_be_chosen_for_another(visit):
    one, words = opened(visit, "rule=block&as=raw&prompt=red+fish"), table("en")
    measured(one, "own")
    line = one.tab.locator("tr[data-method=suffix]")
    assert "needs a chain" in line.inner_text() and line.locator("input").is_enabled() and line.locator("input").is_checked()
    one.tab.click("#fold_more button")
    one.tab.get_by_label(words["page.rule.token"], exact=True).check()
    one.tab.click(".sv-m-go")
    until(lambda: "needs a chain" not in line.inner_text() and state(one) == "done", 90)
    assert "×" in line.locator(".sv-m-measured").inner_text()


def test_nothing_is_concluded_before_the_end(visit):
    one, words = opened(visit, "target=slow&as=raw&prompt=red+fish"), table("en")
    choose(one, "own", "loop", tokens="16")
    one.tab.click(".sv-m-go")
    until(lambda: one.stats()["methods"]["measured"] >= 2, 120)
    said = one.tab.inner_text(".sv-m-best").lower()
    assert state(one) == "busy" and "so far" in said
    one.tab.click(".sv-m-stop")
    until(lambda: state(one) == "stopped")
    assert "so far" not in one.tab.inner_text(".sv-m-best").lower() and one.tab.inner_text(".sv-m-best") != words["methods.best.none"]


def test_the_export_holds_the_rows(visit):
    one = opened(visit)
    measured(one, "own")
    for kind in ("json", "csv"):
        with one.tab.expect_download() as download:
            one.tab.get_by_role("button", name=table("en")[f"methods.save.{kind}"]).click()
        content = Path(download.value.path()).read_bytes().decode()
        if kind == "json":
            rows = json.loads(content)["rows"]
            assert set(rows) == set(METHODS)
        else:
            lines = list(csv.DictReader(io.StringIO(content)))
            assert [line["method"] for line in lines] == list(rows)
            assert all(float(line["speedup"]) == rows[line["method"]]["speedup"] for line in lines)
            assert json.loads(lines[1]["alpha_by_depth"]) == rows[lines[1]["method"]]["alpha_by_depth"]


def test_the_words_change_and_the_rows_stay(visit):
    one = opened(visit)
    measured(one, "own")
    speed = one.tab.inner_text("tr[data-method=prompt_lookup] .sv-m-measured b")
    one.tab.click("#pg-lang")
    until(lambda: table("zh")["methods.intro"] in one.tab.inner_text("#methods-view"))
    assert one.tab.inner_text("tr[data-method=prompt_lookup] .sv-m-measured b") == speed
    shown = one.tab.inner_text("#methods-view")
    assert table("zh")["methods.choose"] in shown and "methods." not in shown


def test_stop_keeps_the_rows_and_frees_the_engine(visit, site):
    one = opened(visit, "target=slow&as=raw&prompt=red+fish")
    choose(one, "own", "loop", "table", tokens="128")
    one.tab.click(".sv-m-go")
    until(lambda: one.stats()["methods"]["measured"] >= 1, 120)
    one.tab.click(".sv-m-stop")
    until(lambda: state(one) == "stopped")
    until(lambda: not site.running)
    assert one.stats()["methods"]["measured"] >= 1 and one.tab.inner_text(".sv-m-say") == table("en")["methods.st.stopped"]


def test_stop_is_heard_at_once_also_where_it_cannot_be_obeyed_at_once(visit, site, monkeypatch):
    monkeypatch.setattr(methods_tab, "PATIENCE", 0.2)  # so that the page has to ask again
    one, said = opened(visit, "target=measuring&as=raw&prompt=abc"), table("en")["methods.st.stopping"]
    choose(one, "own")
    site.measuring.clear()
    try:
        one.tab.click(".sv-m-go")
        until(lambda: "Measuring" in one.tab.inner_text(".sv-m-say"))
        one.tab.click(".sv-m-stop")
        until(lambda: one.tab.inner_text(".sv-m-say") == said)
        one.tab.wait_for_timeout(1500)
        assert one.tab.inner_text(".sv-m-say") == said and state(one) == "busy"
    finally:
        site.measuring.set()
    until(lambda: state(one) == "stopped")
    assert one.tab.inner_text(".sv-m-say") == table("en")["methods.st.stopped"] and not one.errors


def test_a_second_measurement_waits_and_another_visitors_run_does_not(visit):
    one, two, three = opened(visit, "target=slow&as=raw&prompt=abc"), opened(visit), visit("n=10")
    choose(one, *PROMPTS, tokens="128")
    one.tab.click(".sv-m-go")
    until(lambda: state(one) == "busy")
    choose(two, "own")
    two.tab.click(".sv-m-go")
    until(lambda: state(two) == "queued")
    three.run()
    three.reach("done", seconds=60)
    assert state(one) == "busy" and state(two) == "queued"
    one.tab.click(".sv-m-stop")
    until(lambda: state(one) == "stopped")
    until(lambda: state(two) == "done", 90)


def test_a_closed_tab_ends_its_measurement(visit, site):
    one = opened(visit, "target=slow&as=raw&prompt=abc")
    choose(one, "own", tokens="128")
    one.tab.click(".sv-m-go")
    until(lambda: state(one) == "busy" and site.running)
    one.close()
    until(lambda: not site.running)


def test_refusals_are_one_sentence_and_hostile_names_stay_text(visit):
    one = opened(visit, "target=hostile&as=raw&prompt=abc")
    choose(one)
    one.tab.click(".sv-m-go")
    until(lambda: state(one) == "refused")
    assert one.tab.inner_text(".sv-m-say") == table("en")["methods.err.none"]
    measured(one, "own")
    assert "hostile<b>" in one.tab.inner_text(".sv-m-about") and not one.errors
    for target, words in (("absent", "Check the network"), ("broken", "failed inside")):
        other = opened(visit, f"target={target}&as=raw&prompt=abc")
        measured(other, "own")
        assert state(other) == "refused" and words in other.tab.inner_text(".sv-m-say")
        assert "/secret" not in other.tab.inner_text("body")


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_it_is_read_on_a_phone_without_scrolling_sideways(visit, lang):
    one = opened(visit, f"lang={lang}&as=raw&prompt=abc", viewport={"width": 390, "height": 800})
    measured(one, "own")
    assert one.tab.evaluate("document.documentElement.scrollWidth") <= 390
    edges = "[...document.querySelectorAll('.sv-m-table tbody td, .sv-m-table tbody th')].map((c) => c.getBoundingClientRect().right)"
    assert max(one.tab.evaluate(edges)) <= 390
    label = one.tab.evaluate("getComputedStyle(document.querySelector('tr[data-method=prompt_lookup] .sv-m-tau'), '::before').content")
    assert table(lang)["methods.col.tau"] in label


def test_the_target_above_is_the_one_that_is_measured(visit):
    one = opened(visit, "target=small&as=raw&prompt=abc")
    measured(one, "own")
    assert one.tab.inner_text(".sv-m-about").startswith("small,")
    assert "×" in one.tab.inner_text("tr[data-method=prompt_lookup] .sv-m-measured")
    one.tab.click("#target input")
    one.tab.get_by_role("option", name="Toy").first.click()
    until(lambda: one.tab.inner_text(".sv-m-best") == table("en")["methods.stale"].replace("{name}", "small"))
    assert "×" not in one.tab.inner_text("tr[data-method=prompt_lookup] .sv-m-measured")

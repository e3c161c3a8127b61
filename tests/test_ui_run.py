"""The worker, its drain and the store, without a browser."""

from __future__ import annotations

import itertools
import json
import threading
import time
from dataclasses import replace

import pytest
import torch

from specviz.catalog import CatalogError
from specviz.decode import Limits, RunError, decode
from specviz.drafters import METHODS, DraftModel, Plain, TokenRecycling
from specviz.sampling import Sampling
from specviz.ui import offer
from specviz.ui.form import read
from specviz.ui.run import Engine, Run, drain, told, work
from specviz.ui.store import Store
from specviz.ui.traceview import table
from tests.pagekit import drafter, toy, until


def setup_of(**models):
    def load_drafter(target, method, values, progress):
        return drafter(target, method, values)

    return offer.arrange(list(models), {}, {}, Engine(lambda name, device, dtype, progress: models[name](progress), load_drafter))


def started(setup, **changes):
    ask = read(setup.offer, [{**setup.defaults, "template": "raw", "prompt": "red fish", **changes}[name] for name in setup.offer.fields])
    run = Run({name: name for name in ask.methods})
    threading.Thread(target=work, args=(run, ask, setup.engine), daemon=True).start()
    return run


def test_the_string_only_grows_and_holds_the_whole_run():
    run = started(setup_of(toy=lambda progress: toy()))
    texts = [text for text, _ in drain(run)]
    assert all(later.startswith(earlier) for earlier, later in itertools.pairwise(texts))
    assert texts[-1] == "".join(run.lines) and run.status["key"] == "page.st.done"
    assert all(json.loads(line) for line in texts[-1].splitlines())
    assert {lane: len(trace.ids) for lane, trace in run.traces.items()} == {"plain": 128, "draft_model": 128, "prompt_lookup": 128}
    assert run.traces["plain"].ids == run.traces["draft_model"].ids == run.traces["prompt_lookup"].ids


def test_closing_the_drain_ends_the_work_within_one_iteration():
    model = toy(pause=0.02)
    run = started(setup_of(toy=lambda progress: model), max_new=1000)
    shown = drain(run)
    until(lambda: next(shown)[0].count("\n") > 8)
    before = len(model.passes)
    shown.close()
    until(run.done.is_set)
    passes = len(model.passes)
    assert passes < before + 5
    time.sleep(0.2)
    assert len(model.passes) == passes
    assert run.status["state"] == "stopped"
    assert all(trace.stop == "stopped" for trace in run.traces.values() if trace.iterations)
    assert any(trace.iterations for trace in run.traces.values())


def test_one_run_at_a_time_even_without_the_queue():
    model = toy(pause=0.01)
    setup = setup_of(toy=lambda progress: model)
    first, second = started(setup, max_new=60), started(setup, max_new=60)
    until(lambda: first.headers or second.headers)
    ahead, behind = (first, second) if first.headers else (second, first)
    while not ahead.done.is_set():
        assert not behind.headers
        time.sleep(0.02)
    until(behind.done.is_set, 20)
    assert first.traces["plain"].ids == second.traces["plain"].ids


def test_stop_while_waiting_for_the_engine():
    setup = setup_of(toy=lambda progress: toy())
    with setup.engine.lock:
        run = started(setup)
        time.sleep(0.1)
        run.stop.set()
        until(run.done.is_set)
    assert run.status["state"] == "stopped" and not run.headers


def test_stop_while_a_model_loads():
    def slow(progress):
        for step in range(1000):  # most of a minute, more than is waited for below
            progress(step / 1000, "Converting")
            time.sleep(0.05)

    run = started(setup_of(toy=slow))
    until(lambda: run.status.get("bar"))
    assert run.status["text"] == "Converting" and run.status["key"] == "page.st.loading"
    run.stop.set()
    until(run.done.is_set)
    assert run.status == {"key": "page.st.stopped.early", "state": "stopped"}


def test_refusals_are_sentences_and_failures_show_nothing(capsys):
    def absent(progress):
        raise CatalogError("No such model; check the network.")

    def broken(progress):
        raise OSError("/secret/place")

    run = started(setup_of(toy=absent))
    assert list(drain(run))[-1] == ("", {"key": "page.st.refused", "state": "refused", "text": "No such model; check the network."})
    run = started(setup_of(toy=broken))
    status = list(drain(run))[-1][1]
    assert status == {"key": "page.st.failed", "state": "refused"} and "secret" not in "".join(run.lines)
    assert "/secret/place" in capsys.readouterr().err  # for the operator
    run = started(setup_of(toy=lambda progress: toy(context=16)), prompt="x" * 17)
    assert list(drain(run))[-1][1] == {"key": "page.run.long", "state": "refused", "count": 17, "target": "toy", "most": 16}


def test_a_failure_in_the_middle_keeps_what_was_decoded():
    model = toy()
    table = model.table.clone()
    table[:, 3] = float("nan")  # every law has a hole in it, met at the first iteration
    broken = replace(model, table=table)
    run = started(setup_of(toy=lambda progress: broken), methods=[])
    status = list(drain(run))[-1][1]
    assert status["key"] == "page.run.numbers" and status["who"] == "toy" and status["state"] == "refused"
    run = started(setup_of(toy=lambda progress: model), methods=[])
    until(run.done.is_set)
    run.iterations["plain"][-1] = replace(run.iterations["plain"][-1], stop="")
    run.refuse(RunError("A sentence."))
    assert (run.trace("plain").stop, run.trace("plain").iterations[-1].message) == ("error", "A sentence.")
    run.iterations["plain"][-1] = replace(run.iterations["plain"][-1], stop="", message="")
    run.fail()
    assert (run.trace("plain").stop, run.trace("plain").iterations[-1].message) == ("error", "")


def test_the_pages_words_for_a_refusal_are_the_engines():
    """English stands twice, in the engine and in the page's strings; other languages in the page's alone."""
    broken = replace(toy(), table=torch.full_like(toy().table, float("nan")))
    found = {}
    for target, method, prompt, rule in (
        (toy(), TokenRecycling(), "x", "block"),
        (toy(), Plain(), "", "token"),
        (toy(context=8), Plain(), "x" * 9, "token"),
        (broken, Plain(), "x", "token"),
        (toy(), DraftModel(broken), "x", "token"),
    ):
        with pytest.raises(RunError) as refused:
            list(decode(target, method, prompt, Sampling(), Limits(4), rule=rule, raw=True))
        said = told(refused.value)
        assert table("en")[said["key"]].format(**said) == str(refused.value) and said["key"] in table("zh")
        found[said["key"]] = said
    assert found.keys() == {key for key in table("zh") if key.startswith("page.run.")}


def test_the_engine_is_free_after_any_end():
    setup = setup_of(toy=lambda progress: toy(), small=lambda progress: toy(context=16))
    for changes in ({"target": "small", "prompt": "x" * 30}, {}):
        run = started(setup, **changes)
        until(run.done.is_set)
        assert not setup.engine.lock.locked()


@pytest.fixture
def store():
    return Store(keep=60, most=3)


def finished() -> Run:
    run = Run({"plain": "plain"})
    run.headers["plain"] = object()
    run.done.set()
    return run


def test_store_finds_only_by_id(store):
    run = finished()
    store.begin("a", run)
    assert store.find(run.id) is run and store.find("b") is None and store.live("a") is run and store.live("b") is None
    assert store.lookup("nothing", "plain") is None


def test_store_keeps_what_is_on_screen_until_it_is_replaced(store):
    shown = finished()
    store.begin("a", shown)
    for _ in range(3):  # refused runs show nothing and push nothing out
        refused = Run({})
        refused.done.set()
        store.begin("a", refused)
    assert store.find(shown.id) is shown
    for _ in range(2):
        store.begin("a", finished())
    assert store.find(shown.id) is None


def test_store_lets_go(store):
    fixed = finished()
    store.fix(fixed)
    runs = [finished() for _ in range(6)]
    for number, run in enumerate(runs):
        store.begin(f"s{number}", run)
    assert store.find(runs[0].id) is None and store.find(runs[-1].id) and store.find(fixed.id)
    going = Run({"plain": "plain"})
    store.begin("x", going)
    store.leave("x")
    assert going.stop.is_set() and store.find(going.id) is None and store.live("x") is None
    runs[-1].touched -= 61
    store.begin("y", finished())
    assert store.find(runs[-1].id) is None and store.find(fixed.id)


@pytest.mark.parametrize("session", [None, ""])
def test_clients_that_name_no_session_keep_no_more_than_one_visitor(store, session):
    store.fix(finished())
    for _ in range(10):
        store.begin(session, finished())
    assert len(store) == 2
    store.leave(session)
    assert len(store) == 1


def test_a_second_run_of_one_visitor_stops_the_first(store):
    first, second = Run({"plain": "plain"}), Run({"plain": "plain"})
    store.begin("a", first)
    store.begin("a", second)
    assert first.stop.is_set() and not second.stop.is_set() and store.live("a") is second


def test_the_app_offers_what_the_catalog_lists():
    import app
    from specviz import catalog

    spec = json.loads(app.demo.page_head.split("page.spec = ")[1].split(";</script>")[0])
    assert spec["allowed"]["target"] == [one.name for one in catalog.targets()]
    assert spec["defaults"]["target"] == catalog.targets()[0].name
    assert set(spec["methods"]) == set(METHODS) - {"plain"}
    own = app.build(path="/somewhere/mine.gguf", device="cpu", dtype="float32")
    spec = json.loads(own.page_head.split("page.spec = ")[1].split(";</script>")[0])
    assert spec["allowed"]["target"][0] == "mine.gguf" and spec["allowed"]["device"] == ["cpu"]
    assert "/somewhere" not in own.page_head and "/somewhere" not in json.dumps(own.get_config_file(), default=str)

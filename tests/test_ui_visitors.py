"""Several people at once: one engine, a queue that is seen, Stop and closed tabs, nothing shared."""

from __future__ import annotations

from specviz.ui.traceview import table
from tests.pagekit import until
from tests.visitors import solo


def test_stop_frees_the_engine_and_keeps_the_partial_trace(visit, site):
    one = visit("target=slow&n=1000")
    one.run()
    one.decoding(20)
    one.tab.click("#stop")
    until(lambda: not site.running)
    one.reach("stopped")
    run, lanes = one.stats()["run"], one.saved()
    assert "kept" in one.status() and {trace.stop for trace in lanes.values()} == {"stopped"}
    until(lambda: one.stats()["tokens"] == sum(len(trace.ids) for trace in lanes.values()) > 20)
    one.run()  # at once, and again
    until(lambda: one.stats()["run"] != run and one.stats()["tokens"] > 10)
    one.tab.click("#stop")
    one.reach("stopped")


def test_a_closed_tab_frees_the_engine(visit, site):
    one = visit("target=slow&n=1000")
    one.run()
    one.decoding(20)
    one.close()
    until(lambda: not site.running)
    other = visit("n=10")
    other.run()
    other.reach("done")


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
    until(lambda: site.queued == 0)
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
    until(lambda: site.queued == 0)
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

"""Inspect in a real browser: the numbers of each decision, the what-if, the keyboard, replay, and what is said of missing data."""

import re

import pytest

from specviz import trace as tr
from tests.frontkit import RUNS, SAMPLED


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
    one = opened("trace=long")
    one.go(150)
    one.page.select_option("#inspect [data-act=speed]", "0.25")
    one.page.click("#inspect [data-act=toggle]")
    one.wait("specviz.stats.inspect.playing")
    assert "recorded times at 0.25×" in one.text("#inspect .sv-clock")
    assert one.text("#inspect [aria-live]") == ""
    one.wait("!specviz.stats.inspect.playing")
    assert one.at[1] == len(RUNS["long"]["draft_model"].iterations) - 1
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


def test_other_rules_and_missing_data_say_so(opened):
    block = opened("trace=block")
    block.go(0, 0)
    assert "h = " in block.text("#inspect .sv-threshold") and "made from the whole block" in block.text("#inspect .sv-card")
    it = next(it for it in SAMPLED.iterations if it.kind == "recovered")
    block.go(it.index, len(it.nodes))
    assert "max(P·p − q, 0)" in block.text("#inspect .sv-card")
    assert "block verification" in block.text("#race .sv-lane >> nth=1")
    bare = opened("trace=bare")
    assert "without capture" in bare.text("#inspect .sv-columns > .sv-card") and bare.page.locator("#inspect .sv-coin").count() == 1
    fixed = opened("trace=fixed")
    fixed.go(0, 0, lane="prompt_lookup")
    assert "q is 1 on it" in fixed.text("#inspect .sv-card")
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


def test_the_chosen_iteration_is_in_sight_in_a_long_run(opened):
    one = opened("trace=long")
    inside = """(([box, frame]) => box.top >= frame.top - 1 && box.bottom <= frame.bottom + 1)(
      ['.sv-now', '.sv-strip'].map((name) => document.querySelector('#inspect ' + name).getBoundingClientRect()))"""
    for index in (199, 0, 120, 60):
        one.go(index)
        one.page.wait_for_function(inside)


def test_a_record_that_cannot_be_fetched_says_so_and_is_asked_for_again(opened):
    one = opened("trace=long")
    one.js("specviz.channels.main.run = 'nobody'")
    one.js("window.dispatchEvent(new CustomEvent('specviz:pick', {detail: {lane: 'draft_model', index: 7, token: 0}}))")
    one.wait("document.querySelector('#inspect .sv-card').textContent.includes('no longer on the server')")
    one.js("specviz.channels.main.run = 'long'")
    one.go(7, 0, lane="plain")  # the same place in another lane is another record
    one.go(7, 0)
    assert one.errors == []


def test_a_method_named_like_a_property_of_every_object_is_only_a_name(opened):
    one = opened()
    assert one.js("[specviz.has('constructor'), specviz.t('constructor'), specviz.t('nodata')]") == [False, "constructor", "no data"]


def test_a_block_is_judged_as_a_whole_and_the_card_says_so(opened):
    one = opened("trace=block")
    seen = set()
    for it in RUNS["block"]["draft_model"].iterations:
        for test in it.tests:
            own = min(1.0, test.p / test.q)
            same = one.js(f"specviz.prob({own}) === specviz.prob({test.threshold})")
            seen.add(same)
            one.go(it.index, test.node)
            card = one.text("#inspect .sv-card")
            assert ("Here it is the same as" in card) == same and ("It is not min" in card) != same
            one.page.click("#inspect [data-act=redraw]")
            said = one.text("#inspect .sv-whatif-text")
            assert "the block" in said and "the round would" not in said
    assert seen == {True, False}

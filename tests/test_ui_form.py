"""What a client may send: everything outside of the offer is refused in one sentence, and nothing is believed."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import gradio as gr
import pytest

from specviz import catalog, specs
from specviz.drafters import METHODS, Knob
from specviz.ui import controls, offer
from specviz.ui.form import AskError, read
from specviz.ui.run import Engine
from specviz.ui.traceview import table

SETUP = offer.arrange(["toy", "other"], {"toy": "Toy", "other": "Other"}, {}, Engine(None, None), devices=("cpu",))


def sent(**changes):
    return [{**SETUP.defaults, **changes}[name] for name in SETUP.offer.fields]


def refused(**changes) -> AskError:
    with pytest.raises(AskError) as caught:
        read(SETUP.offer, sent(**changes))
    return caught.value


def test_defaults_are_accepted():
    ask = read(SETUP.offer, sent())
    assert ask.methods[0] == "plain" and ask.rule == "token" and ask.capture > 0 and not ask.raw


def test_every_value_reaches_the_run():
    ask = read(
        SETUP.offer,
        sent(
            **{
                "temperature": 0.7,
                "top_k": 5,
                "top_p": 0.9,
                "min_p": 0.1,
                "repetition_penalty": 1.2,
                "seed": "7",
                "max_new": 33,
                "rule": "block",
            },
            **{
                "stop": "a\\nb\n\nc",
                "template": "raw",
                "mode": "measure",
                "methods": ["prompt_lookup"],
                "prompt_lookup.gamma": 3,
                "target": "other",
            },
        ),
    )
    assert (ask.sampling.temperature, ask.sampling.top_k, ask.sampling.top_p, ask.sampling.min_p) == (0.7, 5, 0.9, 0.1)
    assert (ask.sampling.repetition_penalty, ask.sampling.seed, ask.limits.max_new, ask.limits.stop) == (1.2, 7, 33, ("a\nb", "c"))
    assert (ask.raw, ask.capture, ask.rule, ask.target, ask.methods) == (True, 0, "block", "other", ("plain", "prompt_lookup"))
    assert ask.knobs == {"prompt_lookup": {"gamma": 3, "ngram": 3}}


def test_a_blank_seed_is_new_each_time():
    seeds = {read(SETUP.offer, sent(seed=blank)).sampling.seed for blank in ("", None, "  ") for _ in range(4)}
    assert len(seeds) == 12


BAD = [math.nan, math.inf, -1, 1e300, 10**5000, "7x", None, [], {}, True, "NaN", {"__type__": "update"}, [[1]]]


@pytest.mark.parametrize(
    "name", ["temperature", "top_k", "top_p", "min_p", "repetition_penalty", "max_new", "draft_model.gamma", "draft_model.confidence"]
)
@pytest.mark.parametrize("value", BAD, ids=[str(i) for i in range(len(BAD))])
def test_numbers(name, value):
    methods = ["draft_model"]
    error = refused(**{"methods": methods, name: value})
    assert error.key.startswith("page.err.") and error.facts["name"] == name


@pytest.mark.parametrize("name", ["target", "rule", "template", "mode", "device", "dtype", "draft_model.adaptive"])
@pytest.mark.parametrize("value", ["../../etc/passwd", 3, None, ["toy"], {"a": 1}, "x" * 10**6, True])
def test_choices(name, value):
    assert refused(**{"methods": ["draft_model"], name: value}).key == "page.err.choice"


def test_texts_and_methods():
    assert refused(prompt="a" * 20_001).key == "page.err.long"
    assert refused(prompt=7).key == "page.err.value"
    assert refused(stop="\n".join("abcdefghi")).key == "page.err.stops"
    assert refused(temperature=1e-4).key == "page.err.cold" and read(SETUP.offer, sent(temperature=0.001)).sampling.temperature == 0.001
    assert refused(methods=["beam"]).key == "page.err.method"
    assert refused(methods="draft_model").key == refused(methods=[["draft_model"]]).key == "page.err.form"
    assert refused(seed="1" * 30).key == "page.err.whole"
    assert read(SETUP.offer, sent(methods=["prompt_lookup", "prompt_lookup", "plain"][:2])).methods == ("plain", "prompt_lookup")
    with pytest.raises(AskError):
        read(SETUP.offer, sent()[:-1])
    read(SETUP.offer, sent(prompt="half a pair \ud83d")).prompt.encode()


def test_facts_of_a_refusal_are_short_and_json():
    for value in (*BAD, "x" * 10**6, ["x" * 10**6]):
        assert len(json.dumps(refused(temperature=value).facts)) < 200


def test_a_method_is_offered_where_its_weights_are():
    notes = offer.from_catalog().notes
    for spec in catalog.targets():
        missing = [name for name in METHODS if not catalog.available(spec, name)]
        assert notes[spec.name]["missing"] == missing and not set(missing) & {"plain", "prompt_lookup"}
        for method in METHODS.keys() & spec.drafters.keys():
            named = spec.drafters[method]
            there = "target" in named or (specs.head_folder(spec.name, named["head"]) / "config.json").is_file()
            assert there == (method not in missing)
    own = offer.from_catalog(path="/models/mine", draft=["/models/small"])
    assert own.notes["mine"]["missing"] == [name for name, cls in METHODS.items() if cls.needs == "head"]
    assert own.defaults["methods"] == ["draft_model", "prompt_lookup"]
    assert offer.from_catalog(path="/models/mine").defaults["methods"] == ["prompt_lookup"]
    with pytest.raises(ValueError, match="METHOD=NAME"):
        offer.from_catalog(path="/models/mine", draft=["/a", "/b"])


def test_what_the_operator_names_drafts_for_the_operators_target_alone(monkeypatch):
    asked = []
    monkeypatch.setattr(
        catalog, "load_drafter", lambda target, method, values, draft, progress, allow_paths: asked.append((draft, allow_paths))
    )
    setup = offer.from_catalog(path="/models/mine", draft=["/models/small"])
    for name in ("mine", "smollm2-135m"):
        for method in ("draft_model", "prompt_lookup"):
            setup.engine.load_drafter(SimpleNamespace(name=name), method, {}, None)
    assert asked == [("/models/small", True), ("auto", False), ("auto", False), ("auto", False)]


def test_few_methods_are_ticked_at_first():
    assert SETUP.defaults["methods"] == ["draft_model", "prompt_lookup"]
    shown = offer.from_catalog()
    missing = shown.notes[shown.defaults["target"]]["missing"]
    assert shown.defaults["methods"] == [name for name in offer.TICKED if name not in missing and name in METHODS]


def test_no_knob_has_the_name_of_another_value_in_the_address():
    """The address writes a knob that all methods share without its method."""
    page = (Path(offer.__file__).parents[2] / "assets" / "web" / "page.js").read_text("utf-8")
    short = re.search(r"const SHORT = \{(.*?)\}", page)[1]
    taken = {name for name in SETUP.offer.fields if "." not in name} | set(re.findall(r'"(\w+)"', short)) | {"lang"}
    assert len(taken) > 20 and not taken & {knob.name for knobs in SETUP.offer.methods.values() for knob in knobs}


def test_knobs_that_are_switches_or_have_no_limits():
    listed = {
        "toggle": (
            Knob("on", "bool", True, None, None, None, (), "h"),
            Knob("far", "int", 3, None, None, None, (), "h"),
            Knob("kind", "choice", "a", None, None, None, ("a", "b"), "h"),
            Knob("tree", "choice", "a", None, None, None, tuple("abcdef"), "h"),
        ),
        "prompt_lookup": SETUP.offer.methods["prompt_lookup"],
    }
    some = replace(SETUP.offer, methods=listed)
    values = {**SETUP.defaults, "methods": ["toggle"], "toggle.on": False, "toggle.far": -7, "toggle.kind": "b", "toggle.tree": "f"}
    assert read(some, [values[name] for name in some.fields]).knobs == {"toggle": {"on": False, "far": -7, "kind": "b", "tree": "f"}}
    for bad in ({"toggle.on": 1}, {"toggle.on": "true"}, {"toggle.far": 10**12}, {"toggle.far": 1.5}, {"toggle.tree": "g"}):
        with pytest.raises(AskError):
            read(some, [{**values, **bad}[name] for name in some.fields])
    with gr.Blocks():
        form = controls.build(some, {"toy": "Toy", "other": "Other"}, values)
    kinds = {name.split(".")[1]: type(one).__name__ for name, one in form.components.items() if name.startswith("toggle.")}
    assert kinds == {"on": "Checkbox", "far": "Number", "kind": "Radio", "tree": "Dropdown"}


def test_both_languages_have_every_string():
    english, chinese = table("en"), table("zh")
    assert english.keys() == chinese.keys()
    fields = [name for name in SETUP.offer.fields if "." not in name]
    for name in fields:
        assert f"page.f.{name}" in english
    for method, knobs in SETUP.offer.methods.items():
        assert f"page.method.{method}" in english
        for knob in knobs:
            assert f"page.f.{knob.name}" in english
            assert f"page.i.{method}.{knob.name}" in english or f"page.i.{knob.name}" in english
    for name in SETUP.offer.rules:
        assert f"page.rule.{name}" in english
    # A gap that one language fills and the other does not would lose a number.
    for key, text in english.items():
        if key.startswith("page."):
            assert set(gaps(text)) == set(gaps(chinese[key])), key


def gaps(text: str) -> list[str]:
    return [part.split("}")[0] for part in text.split("{")[1:]]

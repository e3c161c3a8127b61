"""The form: one component a value, in the order of Offer.fields, and what the browser needs to label and switch them.

Labels, languages, links and reasons for a disabled control are done in the browser (assets/web/page.js) from the
description made here. That keeps them instant, off the queue, and out of the clock of whoever is decoding.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import gradio as gr

from specviz.ui.examples import EXAMPLES
from specviz.ui.form import Offer

GROUP = "pg-group"
FEW = 4  # choices that are shown at once
_CHOICES = {"template": ["chat", "raw"], "mode": ["inspect", "measure"]}


@dataclass
class Form:
    """components: name -> component, the form's values first, in Offer.fields' order; `dressed` describes every labelled one."""

    components: dict[str, gr.components.Component] = field(default_factory=dict)
    extras: dict[str, Any] = field(default_factory=dict)  # labelled, but not a value of the form
    dressed: dict[str, dict[str, Any]] = field(default_factory=dict)

    def add(self, name: str, component: Any, *, choices: list[tuple[str, str]] | None = None, info: bool = False, text: str = "") -> Any:
        """choices: (key of the label, value). text: English words for a string that the tables lack (a new drafter's help)."""
        self.components[name] = component
        self.describe(name, choices=choices, info=info, text=text)
        return component

    def extra(self, name: str, component: Any, **how: Any) -> Any:
        self.extras[name] = component
        self.describe(name, **how)
        return component

    def describe(self, name: str, *, choices=None, info: bool = False, text: str = "", prop: str = "label") -> None:
        self.dressed[name] = {"prop": prop, "choices": choices, "info": info, "text": text}

    def spec(self, offer: Offer, defaults: dict[str, Any], notes: dict[str, Any]) -> dict[str, Any]:
        """All that assets/web/page.js knows of the form. notes: target -> {"chat", "missing": methods without a drafter}."""
        return {
            "fields": list(offer.fields),
            "methods": list(offer.methods),
            "dressed": [[name, self.dressed[name]] for name in (*self.components, *self.extras)],
            "defaults": defaults,
            "examples": EXAMPLES,
            "targets": notes,
            "ranges": {
                name: [component.minimum, component.maximum] for name, component in self.components.items() if hasattr(component, "minimum")
            },
            "allowed": {
                "target": list(offer.targets),
                "rule": list(offer.rules),
                "device": list(offer.devices),
                "dtype": list(offer.dtypes),
                **_CHOICES,
            },
        }


def build(offer: Offer, labels: dict[str, str], defaults: dict[str, Any]) -> Form:
    """Draws the form where it is called. labels: target name -> label. Run and Stop are drawn by the page."""
    form = Form()
    get = defaults.__getitem__
    with gr.Row(equal_height=False, elem_classes="pg-top"):
        with gr.Column(scale=3, min_width=320):
            prompt = gr.Textbox(get("prompt"), label="Prompt", lines=3, max_lines=10, elem_id="prompt")
            with gr.Row():
                form.extra(
                    "example",
                    gr.Dropdown([(n, n) for n in EXAMPLES], value=None, label="Examples", elem_id="example", min_width=180),
                    choices=[(f"page.ex.{n}", n) for n in EXAMPLES],
                )
                template = gr.Radio(
                    [("chat", "chat"), ("raw", "raw")], value=get("template"), label="Prompt as", elem_id="template", min_width=180
                )
        with gr.Column(scale=2, min_width=320):
            target = gr.Dropdown(
                [(labels[name], name) for name in offer.targets], value=get("target"), label="Target model", elem_id="target"
            )
            methods = gr.CheckboxGroup(
                [(name, name) for name in offer.methods], value=get("methods"), label="Race against plain decoding", elem_id="methods"
            )
    with gr.Row(elem_classes="pg-quick"):
        temperature = gr.Slider(0, 2, value=get("temperature"), step=0.05, label="Temperature", elem_id="temperature", min_width=200)
        max_new = gr.Slider(1, offer.max_new, value=get("max_new"), step=1, label="New tokens at most", elem_id="max_new", min_width=200)
        mode = gr.Radio([("inspect", "inspect"), ("measure", "measure")], value=get("mode"), label="Record", elem_id="mode", min_width=230)
        seed = gr.Textbox(get("seed"), label="Seed", max_lines=1, elem_id="seed", min_width=120)
    with gr.Row(elem_classes="pg-folds"):
        with form.extra("fold_draft", gr.Accordion("Drafters", open=False, elem_id="fold_draft")), gr.Row():
            knobs = {}
            for method, listed in offer.methods.items():
                with form.extra(f"group.{method}", gr.Column(min_width=240, elem_id=f"group-{method}", elem_classes=GROUP)):
                    form.extra(f"title.{method}", gr.Markdown(f"**{method}**"), prop="value")
                    for knob in listed:
                        knobs[f"{method}.{knob.name}"] = (knob, _knob(method, knob, get(f"{method}.{knob.name}")))
        with form.extra("fold_more", gr.Accordion("Sampling, stopping, device", open=False, elem_id="fold_more")):
            with gr.Row():
                top_k = gr.Slider(0, 200, value=get("top_k"), step=1, label="Top-k", elem_id="top_k", min_width=220)
                top_p = gr.Slider(0.05, 1, value=get("top_p"), step=0.01, label="Top-p", elem_id="top_p", min_width=220)
                min_p = gr.Slider(0, 0.5, value=get("min_p"), step=0.01, label="Min-p", elem_id="min_p", min_width=220)
                penalty = gr.Slider(
                    0.8,
                    2,
                    value=get("repetition_penalty"),
                    step=0.01,
                    label="Repetition penalty",
                    elem_id="repetition_penalty",
                    min_width=220,
                )
            with gr.Row():
                rule = gr.Radio(
                    [(name, name) for name in offer.rules], value=get("rule"), label="Acceptance rule", elem_id="rule", min_width=160
                )
                stop = gr.Textbox(get("stop"), label="Stop strings", lines=2, max_lines=4, elem_id="stop_strings", min_width=160)
                device = gr.Dropdown(
                    list(offer.devices),
                    value=get("device"),
                    label="Device",
                    elem_id="device",
                    min_width=120,
                    interactive=len(offer.devices) > 1,
                )
                dtype = gr.Dropdown(
                    list(offer.dtypes),
                    value=get("dtype"),
                    label="Number format",
                    elem_id="dtype",
                    min_width=120,
                    interactive=len(offer.dtypes) > 1,
                )
    form.add("prompt", prompt)
    form.add("target", target, info=True)
    form.add("methods", methods, info=True, choices=[(f"page.method.{name}", name) for name in offer.methods])
    form.add("rule", rule, info=True, choices=[(f"page.rule.{name}", name) for name in offer.rules])
    for name, component in (
        ("temperature", temperature),
        ("top_k", top_k),
        ("top_p", top_p),
        ("min_p", min_p),
        ("repetition_penalty", penalty),
    ):
        form.add(name, component, info=True)
    form.add("seed", seed, info=True)
    form.add("max_new", max_new, info=True)
    form.add("stop", stop, info=True)
    form.add("template", template, info=True, choices=[("page.template.chat", "chat"), ("page.template.raw", "raw")])
    form.add("mode", mode, info=True, choices=[("page.mode.inspect", "inspect"), ("page.mode.measure", "measure")])
    form.add("device", device, info=True)
    form.add("dtype", dtype, info=True)
    for name, (knob, component) in knobs.items():
        form.add(name, component, info=True, text=knob.help)
    if tuple(form.components) != offer.fields:
        raise AssertionError("the form and Offer.fields name the values in a different order")
    return form


def _knob(method: str, knob: Any, value: Any) -> Any:
    """One component for one field of a drafter."""
    common = {"label": knob.name, "info": knob.help, "elem_id": f"{method}-{knob.name}"}
    if knob.kind == "bool":
        return gr.Checkbox(value, **common)
    if knob.kind == "choice":
        many = len(knob.choices) > FEW
        return (gr.Dropdown if many else gr.Radio)(list(knob.choices), value=value, **common)
    if knob.min is None or knob.max is None:
        return gr.Number(value, precision=0 if knob.kind == "int" else None, **common)
    step = knob.step or (1 if knob.kind == "int" else 0.01)
    return gr.Slider(knob.min, knob.max, value=value, step=step, **common)

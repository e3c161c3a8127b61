"""Small components of the page. Their templates are constant and their scripts write text nodes, so no text is ever read as markup."""

from __future__ import annotations

from typing import Any

import gradio as gr

_PLAIN = {"apply_default_css": False, "padding": False}

# Header: title, language, theme, link. The buttons work in the browser alone; "lang" tells the page to relabel its controls.
_HEADER = """
<header class="pg-head">
  <div><h1>specviz</h1><p data-t="page.tagline"></p></div>
  <nav>
    <button type="button" class="pg-tool" id="pg-lang"></button>
    <button type="button" class="pg-tool" id="pg-theme" data-label="page.theme">◐</button>
    <button type="button" class="pg-tool" id="pg-link" data-t="page.link"></button>
  </nav>
</header>
"""

_HEADER_JS = """
const page = window.specviz.page;
page.header(element);
element.addEventListener("click", (event) => page.tool(event.target.closest("button"), element));
window.addEventListener("specviz:lang", () => { page.header(element); trigger("lang"); });
"""

# Status: one line that says what happens, and a bar while something loads. value: {"key", "state", ...facts}. "again" asks whether
# what was to stop has ended.
_STATUS_JS = """
const page = window.specviz.page;
const draw = () => page.status(element, props.value);
watch("value", draw);
window.addEventListener("specviz:lang", () => page.draw());
page.again = () => trigger("again");
draw();
page.follow(element);
"""

# Files: saving the record on screen. The text comes from the server on demand and is saved by the browser, so no file is made there.
_FILES_JS = """
const draw = () => window.specviz.page.header(element);
window.addEventListener("specviz:lang", draw);
draw();
element.addEventListener("click", async (event) => {
  if (event.target.closest("button")) await window.specviz.page.save(server.export, element);
});
"""


class Header(gr.HTML):
    """Title, and the toggles of language, theme and link. Event: lang."""

    def __init__(self, **keywords: Any):
        super().__init__("", html_template=_HEADER, js_on_load=_HEADER_JS, **_PLAIN, **keywords)

    def get_block_name(self) -> str:
        return "html"


class Status(gr.HTML):
    """value: {"key": a string of the tables, "state": idle | busy | done | stopped | refused, "bar": 0..1, further facts}. Event: again."""

    def __init__(self, value: dict[str, Any] | None = None, **keywords: Any):  # the framework makes it anew without a value
        super().__init__(
            value,
            html_template='<div class="pg-status" role="status" aria-live="polite"></div>',
            js_on_load=_STATUS_JS,
            **_PLAIN,
            **keywords,
        )

    def get_block_name(self) -> str:
        return "html"

    def postprocess(self, value: Any) -> Any:
        return value


class Files(gr.HTML):
    """The button that saves the record on screen. export_text(run id) -> text of the file, "" when it is gone."""

    def __init__(self, export_text: Any, **keywords: Any):
        template = '<button type="button" class="pg-tool" data-t="page.save"></button>'

        def export(run_id: Any) -> str:  # the framework marks a server function, which a bound method does not allow
            return export_text(run_id)

        super().__init__("", html_template=template, js_on_load=_FILES_JS, server_functions=[export], **_PLAIN, **keywords)

    def get_block_name(self) -> str:
        return "html"

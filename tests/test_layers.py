"""Who may import whom, read from the sources (architecture: theory <- nothing, trace <- numpy, ..., ui <- all)."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "specviz"

RECORD = {"parse", "note", "trace"}
NUMBERS = RECORD | {"stats", "chance", "theory", "compare"}
LAWS = {"tree", "sampling", "laws", "verify"}
MODELS = LAWS | {"backend", "shallow", "session", "vocabulary"}
DRAFTING = MODELS | {"heads", "drafters"}
LOOP = DRAFTING | NUMBERS | {"record", "decode", "race", "toy"}
LOADING = DRAFTING | {"gguf_import", "fetch", "load", "specs", "kept", "pace", "catalog"}
ENGINE = LOOP | LOADING | {"weights", "measure", "library", "bench"}
WEIGHTS = {"torch", "transformers", "safetensors"}

# module or folder: (what it may import of ours, what it may import of others); the standard library always
RULES = {
    "theory": (set(), set()),
    "parse": (set(), set()),
    "note": (set(), set()),
    "trace": (RECORD, {"numpy"}),
    "stats": (RECORD, {"numpy"}),
    "chance": (RECORD | {"stats"}, set()),
    "compare": (NUMBERS, {"numpy"}),
    "vocabulary": (set(), set()),
    "tree": (LAWS, {"torch"}),
    "verify": (LAWS, {"torch"}),
    "sampling": (LAWS, {"torch", "transformers"}),
    "laws": (LAWS, {"torch"}),
    "backend": ({"backend"}, {"torch", "transformers"}),
    "shallow": (set(), {"torch"}),
    "session": (MODELS, {"torch", "transformers"}),
    "toy": (MODELS, {"torch", "transformers"}),
    "heads": (MODELS | {"heads"}, WEIGHTS),
    "drafters": (DRAFTING, {"torch"}),
    "record": (MODELS | RECORD, {"torch", "numpy"}),
    "decode": (LOOP, {"torch"}),
    "race": (LOOP, {"torch"}),
    "weights": (set(), {"torch"}),
    "measure": (LOOP | {"pace", "weights"}, {"torch"}),
    "library": (LOOP, {"torch", "transformers"}),
    "bench": (LOOP | {"measure", "library"}, set()),
    "gguf_import": (set(), WEIGHTS | {"gguf", "numpy"}),
    "fetch": ({"gguf_import"}, {"huggingface_hub", "platformdirs", "safetensors"}),
    "load": (MODELS | {"fetch"}, {"torch", "transformers"}),
    "specs": (DRAFTING, {"yaml"}),
    "kept": (set(), set()),
    "pace": (LOOP, {"torch"}),
    "catalog": (LOADING, {"torch", "safetensors"}),
    "train": (ENGINE | {"train"}, WEIGHTS | {"numpy", "tqdm"}),
    "views": (NUMBERS | {"views"}, {"plotly", "numpy"}),
    "ui": (ENGINE | {"views", "ui", "choose"}, {"gradio", "torch", "numpy", "plotly"}),
    "arguments": ({"drafters", "train", "verify"}, set()),
    "choose": ({"drafters", "specs"}, set()),
    "__main__": (ENGINE | {"views", "train", "arguments", "choose"}, {"torch", "numpy"}),
}


def modules() -> list[str]:
    return sorted(".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__") for path in PACKAGE.rglob("*.py"))


def source(module: str) -> str:
    path = PACKAGE.joinpath(*module.split("."))
    return (path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text("utf-8")


def imports(text: str, module: str) -> set[str]:
    """Full names of everything imported anywhere in a file; relative imports are spelled out."""
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = ["specviz", *module.split(".")][: -node.level] or ["specviz"]
                base = ".".join([*above, *([node.module] if node.module else [])])
            found.update(f"{base}.{alias.name}" for alias in node.names)
    return found


def split(names: set[str]) -> tuple[set[str], set[str]]:
    """(first parts of our own modules, third parties)"""
    ours = {name.split(".")[1] for name in names if name.startswith("specviz.")}
    others = {name.split(".")[0] for name in names} - {"specviz", "__future__"} - sys.stdlib_module_names
    return ours, others


def complaints(module: str, text: str) -> list[str]:
    top = module.split(".")[0]
    if top not in RULES:
        return [f"{module} has no place in the layers; give it a line in RULES"]
    ours, others = split(imports(text, module))
    return [f"{module} imports {name}" for name in sorted((ours - RULES[top][0] - {top}) | (others - RULES[top][1]))]


@pytest.mark.parametrize("module", [one for one in modules() if one != "__init__"])
def test_imports_follow_the_layers(module):
    assert complaints(module, source(module)) == []


def test_the_package_itself_imports_nothing():
    assert imports(source("__init__"), "__init__") == set()


@pytest.mark.parametrize(
    ("module", "text"),
    [
        ("views.strip", "import torch"),
        ("views.strip", "def draw():\n    from gradio import Blocks"),
        ("views.strip", "from specviz.session import Target"),
        ("views.strip", "from specviz import decode"),
        ("views.strip", "from ..decode import decode"),
        ("theory", "from specviz.trace import Trace"),
        ("theory", "import numpy"),
        ("stats", "import torch"),
        ("verify", "import transformers"),
        ("decode", "import gradio"),
        ("somewhere_new", "import math"),
    ],
)
def test_a_wrong_import_is_seen(module, text):
    assert complaints(module, text)


def test_views_reach_neither_torch_nor_gradio_through_anything():
    reached, waiting = set(), [one for one in modules() if one.split(".")[0] == "views"]
    others = set()
    while waiting:
        module = waiting.pop()
        if module not in reached:
            reached.add(module)
            names = imports(source(module), module)
            others |= split(names)[1]
            waiting += [one for one in modules() if any(name == f"specviz.{one}" or name.startswith(f"specviz.{one}.") for name in names)]
    assert {"trace", "stats"} <= reached
    assert others <= {"plotly", "numpy"}


def test_views_import_in_a_process_without_torch():
    views = [f"specviz.{one}" for one in modules() if one.split(".")[0] == "views"]
    script = f"""
import importlib, sys
for name in ("torch", "transformers", "gradio"):
    sys.modules[name] = None  # makes importing it fail
for name in {views!r}:
    importlib.import_module(name)
print(len({views!r}))
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=PACKAGE.parent, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 3

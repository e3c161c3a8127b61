"""The command line: with --json exactly one line of JSON and the promised keys; what cannot be done is said on stderr, with code 2."""

from __future__ import annotations

import argparse
import json
import math
import re
import subprocess
import sys
from pathlib import Path

import pytest

from specviz.__main__ import main
from specviz.arguments import decoding
from specviz.choose import drafts
from specviz.drafters import METHODS, knobs
from specviz.gguf_import import convert
from specviz.trace import loads
from tests.tinygguf import write

RUN = {"ids", "text", "method", "new_tokens", "iterations", "drafted", "examined", "accepted", "tau", "alpha", "tokens_per_s", "stop"}
SECONDS = {"prefill", "draft", "target", "verify", "commit", "record", "total"}
ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def tiny(tmp_path_factory) -> str:
    """A folder with a small Llama model and its tokenizer."""
    folder = tmp_path_factory.mktemp("cli") / "tiny"
    folder.mkdir()
    write(folder.parent / "tiny.gguf", "llama")
    convert(folder.parent / "tiny.gguf", folder, lambda fraction, text: None)
    return str(folder)


@pytest.fixture
def call(capsys):
    def run(*argv, code=0) -> tuple[str, str]:
        try:
            got = main([str(word) for word in argv])
        except SystemExit as end:
            got = end.code
        out, err = capsys.readouterr()
        assert got == code, err
        return out, err

    return run


def one_line(out: str) -> dict:
    """Exactly one line, which is strict JSON."""
    assert out.endswith("\n") and out.count("\n") == 1
    return json.loads(out, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


@pytest.mark.parametrize("method", ["plain", "prompt_lookup", "draft_model"])
def test_run(call, tiny, tmp_path, method):
    file = tmp_path / "one.jsonl"
    words = ["run", "--target", tiny, "--method", method, "--prompt", "hello hello", "--max-new", 20, "--raw", "--json", "--trace", file]
    got = one_line(call(*words, *(["--draft", tiny, "--gamma", 3] if method == "draft_model" else []))[0])
    assert got.keys() >= {*RUN, "seconds"} and got["seconds"].keys() >= SECONDS and got["method"] == method
    trace = loads(file.read_bytes())
    assert got["ids"] == trace.ids and got["text"] == trace.text() and got["stop"] == trace.stop
    assert got["new_tokens"] == len(got["ids"]) <= 20 and got["accepted"] <= got["examined"] <= got["drafted"]
    if method == "draft_model":
        assert all(len(it.nodes) <= 3 for it in trace.iterations) and got["alpha"] == 1
        assert trace.header.drafter == "tiny" and trace.header.knobs["gamma"] == 3
    if method == "plain":
        assert got["tau"] == 1 and got["alpha"] is None


def test_every_setting_arrives(call, tiny, tmp_path):
    file = tmp_path / "one.jsonl"
    call(
        "run", "--target", tiny, "--method", "prompt_lookup", "--prompt", "hello", "--max-new", 7, "--raw", "--json", "--trace", file,
        "--temperature", 1.1, "--top-k", 9, "--top-p", 0.9, "--min-p", 0.01, "--repetition-penalty", 1.2, "--seed", 7,
        "--stop", "zzzz", "--stop", "qqqq", "--gamma", 6, "--ngram", 3, "--rule", "block", "--capture", 3, "--device", "cpu",
        "--dtype", "float32",
    )  # fmt: skip
    header = loads(file.read_bytes()).header
    assert header.sampling == {"temperature": 1.1, "top_k": 9, "top_p": 0.9, "min_p": 0.01, "repetition_penalty": 1.2, "seed": 7}
    assert header.knobs == {"gamma": 6, "ngram": 3} and header.rule == "block" and header.capture == 3
    assert header.stop_strings == ["zzzz", "qqqq"] and header.max_new == 7 and (header.device, header.dtype) == ("cpu", "float32")


def test_a_blank_seed_is_new_each_time_and_shown(call, tiny):
    words = ["run", "--target", tiny, "--prompt", "hello", "--max-new", 3, "--raw", "--json", "--temperature", 1]
    seeds = {one_line(call(*words)[0])["seed"] for _ in range(2)}
    assert len(seeds) == 2
    a, b = (one_line(call(*words, "--seed", next(iter(seeds)))[0]) for _ in range(2))
    assert a["ids"] == b["ids"]


def test_race(call, tiny, tmp_path):
    words = ["race", "--target", tiny, "--draft", tiny, "--prompt", "hello hello", "--max-new", 12, "--raw", "--json"]
    got = one_line(call(*words, "--methods", "prompt_lookup, draft_model", "--trace", tmp_path / "r.jsonl")[0])
    assert list(got["lanes"]) == ["plain", "prompt_lookup", "draft_model"]
    for name, one in got["lanes"].items():
        assert one.keys() >= {*RUN, "speedup"} and one["method"] == name and one["ids"] == got["lanes"]["plain"]["ids"]
    assert got["lanes"]["plain"]["speedup"] == 1
    assert {file.name for file in tmp_path.iterdir()} == {"r-plain.jsonl", "r-prompt_lookup.jsonl", "r-draft_model.jsonl"}


def test_bench(call, tiny, tmp_path):
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"prompt": "hello hello hello"}\n\n{"prompt": "世界", "category": "x"}\n', "utf-8")
    words = [
        "bench",
        "--target",
        tiny,
        "--draft",
        tiny,
        "--prompts",
        prompts,
        "--max-new",
        10,
        "--repeats",
        2,
        "--raw",
        "--json",
        "--library",
    ]
    got = one_line(call(*words)[0])
    assert set(got["v"]) == {"1", "2", "5", "9", "17", "33", "65"} and got["v"]["1"] == 1
    assert list(got["methods"]) == ["plain", "draft_model", "prompt_lookup"]
    for one in got["methods"].values():
        assert one.keys() >= {"tokens_per_s", "tokens_per_s_quartiles", "speedup", "tau", "alpha", "c", "equal_to_plain", "record_cost"}
        assert one["equal_to_plain"] == "2/2" and 0 <= one["record_cost"] < 1
    assert set(got["library"]) == {"generate", "prompt_lookup", "assisted"}
    assert all(math.isfinite(one["tokens_per_s"]) for one in got["library"].values())


def test_every_method_that_fits_is_benched_and_the_others_are_named(call, tiny, tmp_path):
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"prompt": "hello hello hello"}\n')
    words = ["bench", "--target", tiny, "--prompts", prompts, "--methods", "all", "--max-new", 6, "--raw", "--json"]
    out, err = call(*words)
    want = [name for name, cls in METHODS.items() if cls.needs in ("", "target")]
    assert list(one_line(out)["methods"]) == want
    assert "left out" in err and all(name in err for name in METHODS if name not in want)
    out, err = call(*words, "--draft", tiny, "--draft_model.gamma", 2)
    assert list(one_line(out)["methods"]) == [name for name, cls in METHODS.items() if cls.needs in ("", "target", "model")]


@pytest.mark.parametrize("method", [name for name, cls in METHODS.items() if cls.needs in ("", "target")])
def test_every_method_without_weights_runs_and_gives_plains_text(call, tiny, method):
    words = ["run", "--target", tiny, "--prompt", "hello hello hello", "--max-new", 16, "--raw", "--json"]
    got, plain = (one_line(call(*words, "--method", one)[0]) for one in (method, "plain"))
    assert got["ids"] == plain["ids"] and got["method"] == method


def test_a_knob_of_one_name_is_each_methods_own(call, tiny, tmp_path):
    words = ["race", "--target", tiny, "--draft", tiny, "--prompt", "hello", "--max-new", 4, "--raw", "--json"]
    words += ["--methods", "draft_model,prompt_lookup"]
    lanes = one_line(call(*words, "--gamma", 7, "--prompt_lookup.gamma", 2)[0])["lanes"]
    assert (lanes["draft_model"]["knobs"]["gamma"], lanes["prompt_lookup"]["knobs"]["gamma"]) == (7, 2)
    assert "prompt_lookup: gamma must be a whole number from 1 to 32, not '99'." in call(*words, "--prompt_lookup.gamma", 99, code=2)[1]


def test_what_each_knob_may_be_is_told(call):
    words = " ".join(call("run", "--help")[0].split())
    for method in METHODS.values():
        for knob in knobs(method):
            assert knob.range in words and f"--{knob.name.replace('_', '-')} VALUE" in words, (method.name, knob.name)


def test_no_option_of_the_command_line_is_the_name_of_a_knob():
    """A knob of such a name could be set for one method alone only."""
    p = argparse.ArgumentParser()
    decoding(p)
    dests = {action.dest for action in p._actions}
    assert {f"knob.{knob.name}" for method in METHODS.values() for knob in knobs(method)} <= dests


@pytest.mark.parametrize(
    ("given", "methods", "want"),
    [
        ([], ["plain"], {}),
        (["auto"], ["plain", "draft_model"], {}),
        (["x"], ["plain", "draft_model", "prompt_lookup"], {"draft_model": "x"}),
        (["x"], ["draft_model", "draft_tree", "eagle3"], {"draft_model": "x", "draft_tree": "x"}),
        (["x", "draft_model=y"], ["draft_model", "draft_tree"], {"draft_model": "y", "draft_tree": "x"}),
        (["x"], ["eagle1", "eagle3"], "could be for eagle1, eagle3"),
        (["draft_model=x"], ["draft_model"], {"draft_model": "x"}),
        (["/a=b/c"], ["draft_model"], {"draft_model": "/a=b/c"}),
        (["x"], ["plain", "prompt_lookup"], "could be for none of the chosen methods"),
        (["x", "y"], ["draft_model"], "write --draft METHOD=NAME"),
        (["prompt_lookup=x"], ["prompt_lookup"], "has no effect here"),
        (["draft_model=x"], ["prompt_lookup"], "has no effect here"),
    ],
)
def test_what_drafts_for_which_method(given, methods, want):
    if isinstance(want, dict):
        assert drafts(given, methods) == want
    else:
        with pytest.raises(ValueError, match=want):
            drafts(given, methods)


def test_fetch_of_what_is_here_already(call):
    assert one_line(call("fetch", "--json")[0])["target"] == "smollm2-135m"
    assert "ready" in call("fetch", "smollm2-135m")[0]


def test_show(call, tiny, tmp_path):
    file = tmp_path / "t.jsonl"
    words = ["run", "--target", tiny, "--draft", tiny, "--method", "draft_model", "--prompt", "hello <b>", "--max-new", 9, "--raw"]
    shown, _ = call(*words, "--trace", file)
    out, _ = call("show", file)
    assert "\x1b" not in out and "\x1b" not in shown and "draft_model" in out and len(out.splitlines()) > 2


def test_show_of_a_race_that_the_page_saved(call, tiny, tmp_path):
    words = ["race", "--target", tiny, "--prompt", "hello", "--max-new", 5, "--raw", "--json", "--methods", "prompt_lookup"]
    lanes = one_line(call(*words, "--trace", tmp_path / "r.jsonl")[0])["lanes"]
    file = tmp_path / "race.jsonl"
    file.write_text("".join((tmp_path / f"r-{name}.jsonl").read_text("utf-8") for name in lanes), "utf-8")
    assert [one["ids"] for one in one_line(call("show", file, "--json")[0])["lanes"]] == [one["ids"] for one in lanes.values()]
    out, _ = call("show", file)
    assert "plain" in out and "prompt_lookup" in out


def test_a_reader_that_has_seen_enough_is_no_error(tiny, tmp_path):
    file = tmp_path / "t.jsonl"
    main(["run", "--target", tiny, "--prompt", "hello", "--max-new", "5", "--raw", "--json", "--trace", str(file)])
    command = [sys.executable, "-m", "specviz", "show", str(file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT) as show:
        show.stdout.close()
        assert show.stderr.read() == b"" and show.wait() == 0


def test_output_of_a_run_for_people(call, tiny):
    out, _ = call("run", "--target", tiny, "--prompt", "hello", "--max-new", 5, "--raw")
    assert out.strip() and "{" not in out and "\x1b" not in out


# --- what cannot be done


BAD = {
    "no such target": ["run", "--target", "nonsense", "--prompt", "a"],
    "no such method": ["run", "--target", "TINY", "--method", "beam", "--prompt", "a"],
    "no such rule": ["run", "--target", "TINY", "--rule", "luck", "--prompt", "a"],
    "several methods for a run": ["run", "--target", "TINY", "--method", "plain,prompt_lookup", "--prompt", "a"],
    "a knob of another method": ["run", "--target", "TINY", "--method", "plain", "--gamma", "3", "--prompt", "a"],
    "a draft for nothing": ["run", "--target", "TINY", "--method", "prompt_lookup", "--draft", "TINY", "--prompt", "a"],
    "no draft": ["run", "--target", "TINY", "--method", "draft_model", "--prompt", "a"],
    "draft is not there": ["run", "--target", "TINY", "--method", "draft_model", "--draft", "/no/such", "--prompt", "a"],
    "gamma": ["run", "--target", "TINY", "--method", "prompt_lookup", "--gamma", "0", "--prompt", "a"],
    "gamma is no number": ["run", "--target", "TINY", "--method", "prompt_lookup", "--gamma", "x", "--prompt", "a"],
    "temperature": ["run", "--target", "TINY", "--temperature", "-1", "--prompt", "a"],
    "temperature nan": ["run", "--target", "TINY", "--temperature", "nan", "--prompt", "a"],
    "top-p": ["run", "--target", "TINY", "--top-p", "0", "--prompt", "a"],
    "seed": ["run", "--target", "TINY", "--seed", "-3", "--prompt", "a"],
    "max-new": ["run", "--target", "TINY", "--max-new", "0", "--prompt", "a"],
    "empty stop": ["run", "--target", "TINY", "--stop", "", "--prompt", "a"],
    "device": ["run", "--target", "TINY", "--device", "tpu", "--prompt", "a"],
    "dtype": ["run", "--target", "TINY", "--dtype", "int3", "--prompt", "a"],
    "too long": ["run", "--target", "TINY", "--raw", "--prompt", "x" * 500],
    "stray bytes": ["run", "--target", "TINY", "--raw", "--prompt", "a\udcff"],
    "capture": ["run", "--target", "TINY", "--capture", "51", "--prompt", "a"],
    "no prompt": ["run", "--target", "TINY"],
    "no command": [],
    "unknown command": ["fly"],
    "unknown option": ["run", "--prompt", "a", "--wings", "2"],
    "race of too many": ["race", "--target", "TINY", "--methods", "plain,beam", "--prompt", "a"],
    "bench without a file": ["bench", "--target", "TINY", "--prompts", "/no/such/file.jsonl"],
    "trace that is none": ["show", "FILE"],
    "trace that is not there": ["show", "/no/such/file.jsonl"],
    "trace is a folder": ["show", "/"],
    "fetch of a path": ["fetch", "../../etc"],
    "train nothing": ["train"],
}


@pytest.mark.parametrize("name", BAD)
def test_refusals_are_one_sentence_and_code_2(call, tiny, tmp_path, name):
    file = tmp_path / "file.jsonl"
    file.write_text("{}\n")
    words = [{"TINY": tiny, "FILE": file}.get(word, word) for word in BAD[name]]
    out, err = call(*words, code=2)
    assert out == "" and "Traceback" not in err
    said = [one for one in err.splitlines() if re.match(r"(python -m )?specviz\b.*: ", one)]
    assert len(said) == 1 and len(said[0]) < 400 and err.splitlines()[-1] == said[0]
    assert str(Path(tiny).parent) not in err or name == "trace that is none"


@pytest.mark.parametrize("content", ["", "{}", '{"prompt": 5}', "no json", '["a"]', '{"text": "a"}'])
def test_a_bad_file_of_prompts(call, tiny, tmp_path, content):
    file = tmp_path / "p.jsonl"
    file.write_text(content)
    _, err = call("bench", "--target", tiny, "--prompts", file, code=2)
    assert "p.jsonl must hold" in err and err.count("\n") == 1


def test_as_a_command_of_its_own(tiny):
    """A fresh process, piped: one line on stdout and nothing else."""
    words = ["run", "--target", tiny, "--prompt", "hello", "--max-new", "4", "--raw", "--json"]
    done = subprocess.run([sys.executable, "-m", "specviz", *words], capture_output=True, text=True, timeout=300, cwd=ROOT)
    assert done.returncode == 0 and one_line(done.stdout)["new_tokens"] <= 4

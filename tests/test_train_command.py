"""`train` on the command line: every head of a small target, from its own answers to weights that the catalog loads."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
from transformers import AutoTokenizer

from specviz import catalog
from specviz.__main__ import main
from specviz.drafters import METHODS
from specviz.gguf_import import convert
from specviz.train.command import HEADS
from specviz.train.conversations import Conversation, read, write
from specviz.train.prompts import long_prompts
from specviz.train.texts import opening
from tests.tinygguf import TOKENS
from tests.tinygguf import write as write_gguf

QUICK = ["--epochs", "1", "--tokens", "512", "--threads", "1"]
MORE = {
    "draft": ["--layers", "0", "--vocab", "40"],
    "medusa": ["--heads", "2", "--vocab", "40"],
    "eagle": ["--vocab", "40"],
    "eagle3": ["--vocab", "40", "--steps", "2"],
    "mtp": ["--vocab", "0", "--steps", "2"],
    "specdec": ["--draft", "DRAFT"],
    "scratch": ["--vocab", str(len(TOKENS)), "--hidden", "32", "--layers", "1", "--heads", "2", "--intermediate", "48", "--mtp", "0.3"],
}
USED_BY = {
    "medusa": ("medusa",),
    "eagle": ("eagle1", "eagle2"),
    "eagle3": ("eagle3",),
    "mtp": ("mtp",),
    "draft": ("draft_model", "draft_tree"),
}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a small model, conversations, and what collect made of both."""
    folder = tmp_path_factory.mktemp("train")
    (folder / "tiny").mkdir()
    write_gguf(folder / "tiny.gguf", "llama")
    convert(folder / "tiny.gguf", folder / "tiny", lambda fraction, text: None)
    rng = np.random.default_rng(0)
    said = [Conversation(rng.integers(10, len(TOKENS) - 4, rng.integers(8, 20)), int(rng.integers(2, 5))) for _ in range(120)]
    write(folder / "said.npz", said)
    words = ["train", "collect", "--target", folder / "tiny", "--data", folder / "said.npz", "--out", folder / "features"]
    words += ["--temperatures", 0, "--max-new", 6, "--limit", 2000, "--dtype", "float32", "--batch", 16, "--prompts", 40, "--threads", 1]
    words += ["--taps", "eagle3"]
    assert main([str(word) for word in words]) == 0
    return folder


def test_collect_answers_so_many_prompts_and_keeps_the_layers_that_heads_read(place):
    facts = json.loads((place / "features" / "collect.json").read_text())
    assert facts["own"] == 40 and str(place) not in facts["command"] and "train collect --target tiny" in facts["command"]
    told = read(place / "features" / "conversations.npz")
    assert len(told) > 40 and len({c.prompt for c in told[:40]}) == 40
    layers = {file.name: file.stat().st_size for file in (place / "features").glob("*.f16")}
    assert len(layers) == 3 and set(layers.values()) == {sum(len(c.ids) for c in told) * 64 * 2}


@pytest.fixture(scope="module")
def trained(place):
    """name of a head -> the folder that its command wrote; drafts come first, for the head that judges them."""

    def make(name):
        out = place / "heads" / name
        if not (out / "model.safetensors").is_file():
            words = ["train", name, "--target", place / "tiny", "--features", place / "features", "--out", out, *QUICK, *MORE[name]]
            words += ["--head", place / "heads" / "scratch-head"] if name == "scratch" else []
            assert main([str(make("draft") if word == "DRAFT" else word) for word in words]) == 0
        return out

    return make


@pytest.mark.parametrize("name", HEADS)
def test_every_head_is_one_command(trained, place, name):
    out = trained(name)
    facts = json.loads((out / ("training.json" if name == "scratch" else "config.json")).read_text())
    assert facts["kind"] == name and facts["recipe"]["epochs"] == 1 and facts["answer_tokens"] > 100
    assert [command.split()[4] for command in facts["commands"]] == ["collect", name] and str(place) not in json.dumps(facts)
    target = catalog.load_target(str(place / "tiny"), "cpu", allow_paths=True)
    for method in USED_BY.get(name, ()):
        drafter = catalog.load_drafter(target, method, {}, str(out), allow_paths=True)
        assert isinstance(drafter, METHODS[method])


def test_a_small_model_from_nothing_is_a_target_with_its_head(trained):
    out = trained("scratch")
    target = catalog.load_target(str(out), "cpu", allow_paths=True)
    assert target.vocab == len(TOKENS) and target.config.num_hidden_layers == 1
    catalog.load_drafter(target, "mtp", {}, str(out.parent / "scratch-head"), allow_paths=True)


def test_training_goes_on_from_earlier_weights(trained, place, tmp_path):
    words = ["train", "mtp", "--target", place / "tiny", "--features", place / "features", "--out", tmp_path / "on", *QUICK, *MORE["mtp"]]
    assert main([str(word) for word in [*words, "--start", trained("mtp")]]) == 0
    facts, earlier = (json.loads((folder / "config.json").read_text()) for folder in (tmp_path / "on", trained("mtp")))
    assert [command.split()[4] for command in facts["commands"]] == ["collect", "mtp", "mtp"]
    assert facts["answer_tokens"] == earlier["answer_tokens"] + facts["curve"][-1]["answer_tokens"] > earlier["answer_tokens"]


def test_data_may_be_prompts_and_text_and_another_tokenizers(place, tmp_path):
    (tmp_path / "p.jsonl").write_text('{"prompt": "hello"}\n\n{"prompt": "hello hello", "answer": "lo lo"}\n')
    (tmp_path / "t.txt").write_text("hello hell lo\n" * 60)
    words = ["train", "collect", "--target", place / "tiny", "--told-by", place / "tiny", "--out", tmp_path / "f"]
    words += ["--data", tmp_path / "p.jsonl", tmp_path / "t.txt", place / "said.npz", "--temperatures", "--limit", 100_000, "--threads", 1]
    assert main([str(word) for word in words]) == 0
    told = read(tmp_path / "f" / "conversations.npz")
    target = catalog.load_target(str(place / "tiny"), "cpu", allow_paths=True)
    texts = [target.tokenizer.decode(c.ids) for c in told]
    assert any(text.endswith("lo lo" + target.tokenizer.eos_token) for text in texts) and any(
        text.startswith("hello hell lo\n") for text in texts
    )
    prompts = read(tmp_path / "f" / "told-0.npz")
    assert [list(c.prompt) for c in prompts] == [target.encode(text, raw=False) for text in ("hello", "hello hello")]


@pytest.mark.parametrize("content", ["", "{", '{"text": 1}', '{"prompt": 1}', '{"prompt": "a", "answer": 2}', '["prompt"]'])
def test_bad_data_is_one_sentence(place, tmp_path, capsys, content):
    (tmp_path / "p.jsonl").write_text(content)
    words = ["train", "collect", "--target", place / "tiny", "--out", tmp_path / "f", "--data", tmp_path / "p.jsonl"]
    assert main([str(word) for word in words]) == 2
    assert "specviz: p.jsonl " in capsys.readouterr().err


def test_every_field_of_a_recipe_is_an_option(capsys):
    for name, head in HEADS.items():
        with pytest.raises(SystemExit):
            main(["train", name, "--help"])
        words = capsys.readouterr().out
        assert all(f"--{field.name.replace('_', '-')} VALUE" in words for field in dataclasses.fields(head.recipe)), name


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["specdec"], "--draft is needed"),
        (["scratch", "--mtp", "0.5"], "--head is needed"),
        (["medusa", "--features", "EMPTY"], "is not what `train collect` writes"),
        (["eagle", "--start", "EMPTY"], "holds none of"),
        (["mtp", "--target", "/no/such"], "There is no model"),
        (["collect", "--data", "x.npz", "--taps", "9"], "--taps takes eagle3 or numbers from 0 to 2, not '9'"),
        (["collect", "--data", "x.md"], "x.md is neither"),
    ],
)
def test_refusals(place, tmp_path, capsys, words, said):
    given = ["train", words[0], "--target", place / "tiny", "--out", tmp_path / "out", *words[1:]]
    given += [] if words[0] == "collect" or "--features" in words else ["--features", place / "features"]
    assert main([str(tmp_path if word == "EMPTY" else word) for word in given]) == 2
    err = capsys.readouterr().err.strip().splitlines()[-1]
    assert said in err and err.startswith("specviz: ") and str(place) not in err


def test_long_prompts_are_made_of_what_was_answered(place, tmp_path):
    out = tmp_path / "long.jsonl"
    words = ["train", "prompts", "--target", place / "tiny", "--data", place / "said.npz", "--out", out]
    words += ["--count", 9, "--shortest", 30, "--longest", 50]
    assert main([str(word) for word in words]) == 0
    first = out.read_text()
    made = [json.loads(line)["prompt"] for line in first.splitlines()]
    assert len(made) == len(set(made)) == 9 and all(isinstance(prompt, str) for prompt in made)
    assert main([str(word) for word in words]) == 0 and out.read_text() == first, "the same seed makes the same prompts"
    for wrong in (["60", "--longest", "50"], ["30", "--longest", "50", "--count", "0"]):
        assert main([*map(str, words[:-3]), *wrong]) == 2


def test_a_long_prompt_holds_its_passages_and_one_of_their_questions(place):
    """In a chat template, whose words are not taken for the question's."""
    tokenizer = AutoTokenizer.from_pretrained(place / "tiny", local_files_only=True)
    tokenizer.chat_template = "{% for m in messages %}a b {{ m.content }} c{% endfor %}{% if add_generation_prompt %} d{% endif %}"
    told = []
    for number in range(12):
        start = opening(f"{number} ?", tokenizer)
        told.append(Conversation(np.array([*start, *tokenizer(f"e{number}" * 9)["input_ids"]]), len(start)))
    answers = {f"{number} ?": tokenizer.decode(c.ids[c.answer :]) for number, c in enumerate(told)}
    made = list(long_prompts(told, tokenizer, 20, 20, 40, seed=1))
    for number, prompt in enumerate(made):
        ids = tokenizer(prompt)["input_ids"]
        assert 20 <= len(ids) <= 40 + 60
        asked = [question for question in answers if question in prompt]
        assert len(asked) == number % 2, prompt
    with pytest.raises(ValueError, match="no conversation with a question and an answer"):
        next(long_prompts([Conversation(np.arange(4), 4)], tokenizer, 1, 2, 4, seed=0))

"""Real models. The default one as a user's first start fetches it; larger ones from the folder that SPECVIZ_MODELS names, if there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from specviz import catalog
from specviz.decode import Limits
from specviz.drafters import METHODS, Plain, PromptLookup
from specviz.sampling import Sampling
from tests.tinymodels import Watched, emitted, library_greedy, run
from tests.treedrafters import TopTree, TreeDrafter

GREEDY = Sampling()


# --- the default model


@pytest.fixture(scope="module")
def default():
    return catalog.load_target("smollm2-135m", "cpu")


@pytest.mark.parametrize(
    "text", ["🤗 世界 é 👩‍🚀", " a\n\t  b\r\n", "<|im_start|>user\n$5 <b>&lt;</b>", "ﷺ\u200d\ufffd\x00", "naïve café – “x”"]
)
def test_joined_bytes_of_the_ids_are_the_text(default, text):
    ids = default.encode(text, raw=True)
    assert b"".join(default.token_bytes(token) for token in ids).decode() == text


def test_one_character_may_span_tokens(default):
    parts = [default.token_bytes(token) for token in default.encode("🤗", raw=True)]
    assert len(parts) > 1 and b"".join(parts) == "🤗".encode() and all(parts)
    with pytest.raises(UnicodeDecodeError):
        parts[0].decode()


def test_every_id_has_bytes(default):
    assert all(default.token_bytes(token) for token in range(len(default.tokenizer)))


def test_an_empty_prompt_is_the_start_token(default):
    assert default.encode("", raw=True) == [default.tokenizer.bos_token_id] and len(default.encode("", raw=False)) > 5


LONG = "Repeat this list. " + " ".join(f"Item {i} costs {i * 7 % 50} dollars." for i in range(80))
PROMPTS = {
    "copying": ("Write one sentence of twelve words, then copy it twice.", False, False),
    "one letter": ("a", True, False),
    "past a prefill pass": (LONG, False, True),
}


@pytest.mark.parametrize("name", PROMPTS)
def test_every_method_gives_the_librarys_greedy_text(default, name):
    prompt, raw, long = PROMPTS[name]
    ids = default.encode(prompt, raw)
    assert (len(ids) > 600) == long
    want = library_greedy(default, ids, 32, default.stop_ids)
    for method in METHODS:
        header, rounds = run(default, catalog.load_drafter(default, method, {}), ids, GREEDY, Limits(32))
        assert emitted(rounds) == want, method
        assert header.method == method and header.dtype == "float32"


@pytest.mark.parametrize("method", [name for name, cls in METHODS.items() if cls.needs in ("model", "head")])
def test_shipped_weights_fit_the_default_model(default, method):
    """Every method that takes weights has some here, and drafts something that is accepted."""
    drafter = catalog.load_drafter(default, method, {})
    _, rounds = run(default, drafter, default.encode("List the planets of the solar system.", raw=False), GREEDY, Limits(40))
    assert sum(len(it.path) for it in rounds) > 8


@pytest.mark.parametrize("name", [one.name for one in catalog.targets() if "folder" in one.sources[0]])
def test_small_targets_that_come_with_the_project_run_with_their_heads(name):
    spec = catalog.spec(name)
    target = catalog.load_target(name, "cpu")
    ids = target.encode("Write a short story about a dog.", raw=False)
    want = library_greedy(target, ids, 48, target.stop_ids)
    for method in ("plain", *spec.drafters):
        assert catalog.available(spec, method)
        _, rounds = run(target, catalog.load_drafter(target, method, {}), ids, GREEDY, Limits(48))
        assert emitted(rounds) == want, method
        assert method == "plain" or sum(len(it.path) for it in rounds) > 4


def test_a_prompt_text_becomes_the_same_run_as_its_ids(default):
    from specviz.decode import decode

    header, *rounds = decode(default, PromptLookup(), "Say hi.", GREEDY, Limits(4))
    assert header.prompt_ids == default.encode("Say hi.", raw=False)
    assert emitted(rounds) == emitted(run(default, Plain(), header.prompt_ids, GREEDY, Limits(4))[1])
    assert bytes.fromhex("".join(header.texts[str(token)] for token in header.prompt_ids)).decode().endswith("assistant\n")


# --- larger models


FILES = Path(os.environ.get("SPECVIZ_MODELS", "/nonexistent"))


def load(name: str):
    path = FILES / f"{name}.gguf"
    if not path.is_file():
        pytest.skip(f"{name}.gguf is not in the folder that SPECVIZ_MODELS names")
    return catalog.load_target(str(path), "cpu", allow_paths=True)


@pytest.fixture(scope="module")
def gemma():
    yield load("gemma3-270m")
    catalog._LOADED.values.clear()


@pytest.fixture(scope="module")
def qwen_pair():
    yield load("qwen2.5-coder-1.5b"), load("qwen2.5-coder-0.5b")
    catalog._LOADED.values.clear()


@pytest.mark.models
def test_bytes_of_a_sentencepiece_tokenizer(gemma):
    for text in ("🤗 世界 é 👩‍🚀", "a  b   c\n\n\nd\te", "<b>$5</b> \u200d"):
        ids = [token for token in gemma.encode(text, raw=True) if token != gemma.tokenizer.bos_token_id]
        assert b"".join(gemma.token_bytes(token) for token in ids).decode() == text


@pytest.mark.models
@torch.inference_mode()
def test_gemma_past_its_window(gemma):
    """The text crosses the 512 tokens of the sliding layers; chain and tree equal plain and the library, and so does the cache."""
    assert gemma.window == 512
    sentence = "The red fox ran over the hill, and the grey dog sat by the door. "
    ids = gemma.encode(sentence * 40, raw=True)[:500]
    want = library_greedy(gemma, ids, 40, gemma.stop_ids)
    assert emitted(run(gemma, Plain(), ids, GREEDY, Limits(40))[1]) == want
    for drafter in (PromptLookup(), TopTree(gemma, (3, 2))):
        watched = Watched(gemma)
        _, rounds = run(watched, drafter, ids, GREEDY, Limits(40))
        assert emitted(rounds) == want
        assert sum(len(it.path) for it in rounds) > 5
        session = watched.sessions[0]
        session.rewind(len(ids) + 38)
        fresh = gemma.session(600)
        fresh.prefill([*ids, *want[:39]])
        for ours, theirs in zip(session.layers, fresh.layers, strict=True):
            torch.testing.assert_close(ours.keys[:, :, : fresh.length], theirs.keys[:, :, : fresh.length], atol=2e-3, rtol=1e-3)
    # sampled, siblings without replacement, past the window from the first row on
    ids = gemma.encode(sentence * 40, raw=True)[:560]
    watched = Watched(gemma)
    _, rounds = run(watched, TreeDrafter(gemma, (2, 2), "without"), ids, Sampling(temperature=1.0, seed=1), Limits(16))
    assert len(emitted(rounds)) == 16 and all(it.path for it in rounds[:2])


@pytest.mark.models
def test_a_qwen_pair(qwen_pair):
    target, draft = qwen_pair
    drafter = catalog.load_drafter(target, "draft_model", {"gamma": 5}, str(FILES / "qwen2.5-coder-0.5b.gguf"), allow_paths=True)
    assert drafter.model is draft
    for prompt in ("Write a Python function that returns the n-th Fibonacci number.", "Hello"):
        ids = target.encode(prompt, raw=False)
        want = library_greedy(target, ids, 40, target.stop_ids)
        for one in (Plain(), drafter, PromptLookup()):
            _, rounds = run(target, one, ids, GREEDY, Limits(40))
            assert emitted(rounds) == want, one.name
        _, rounds = run(target, drafter, ids, GREEDY, Limits(40))
        tests = [test for it in rounds for test in it.tests]
        assert sum(test.accepted for test in tests) / len(tests) > 0.5, "a draft of the same family is right more often than not"

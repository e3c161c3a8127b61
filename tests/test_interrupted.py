"""Runs that end before their end: numbers that are none, luck that cannot be, Stop, a closed lane; and what cannot be run at all."""

from __future__ import annotations

import itertools
import threading

import pytest
import torch

from specviz.decode import Limits, RunError, decode
from specviz.drafters import DraftModel, Plain
from specviz.sampling import Sampling
from specviz.toy import ToyTarget, random_table
from specviz.trace import line, loads
from specviz.verify import SeededCoins
from tests.tinymodels import Watched, emitted, library_greedy, plain_ids, prompt_ids, run, tiny

GREEDY = Sampling()


class Sick(Watched):
    """A target whose row 0 is not a number in one pass."""

    def __init__(self, target, when: int, value: float = float("nan")):
        super().__init__(target)
        self.when, self.value = when, value

    def session(self, *args, **more):
        session, passes = super().session(*args, **more), itertools.count()
        score = session.score

        def sick(root, draft):
            scores = score(root, draft)
            if next(passes) == self.when:
                scores.logits[0] = self.value
            return scores

        session.score = sick
        return session


class SickDraft(Watched):
    """A draft model whose rows have no token left, from some pass on."""

    def session(self, *args, **more):
        session, passes = super().session(*args, **more), itertools.count()
        forward = session.forward

        def sick(*a, **k):
            scores = forward(*a, **k)
            if next(passes) > 12:
                scores.logits[:] = float("-inf")
            return scores

        session.forward = sick
        return session


@pytest.mark.parametrize("sampling", [GREEDY, Sampling(temperature=1.0, top_k=5), Sampling(temperature=1.0, repetition_penalty=1.3)])
def test_b21_numbers_that_are_none_end_the_run_in_words(sampling):
    for value in (float("nan"), float("inf"), float("-inf")):
        kept = []
        with pytest.raises(RunError, match=r"llama gave no usable probabilities in iteration 3: row 0 ") as ended:
            for record in decode(
                Sick(tiny("llama"), 3, value), DraftModel(tiny("llama"), confidence=0.0), "", sampling, Limits(40), prompt_ids=[1, 2]
            ):
                kept.append(record)
        assert str(ended.value).endswith(".") and len(kept) == 4
        assert loads("\n".join(line(record) for record in kept)).ids  # what was recorded is a trace
    kept = []
    with pytest.raises(RunError, match=r"qwen2 gave no usable probabilities in iteration \d+"):
        for record in decode(
            tiny("llama"), DraftModel(SickDraft(tiny("qwen2")), confidence=0.0), "", sampling, Limits(40), prompt_ids=[1, 2]
        ):
            kept.append(record)
    assert len(kept) > 1
    assert len(plain_ids(tiny("llama"), [1, 2], sampling, Limits(5))) == 5


class NoLuck(SeededCoins):
    """Rejects everything, even what is accepted with certainty."""

    def toss(self, threshold):
        return 1.0, False


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("rule", ["token", "block"])
def test_b20_a_residual_without_mass_becomes_p(rule, dtype):
    """The draft is the target itself, its rows are cut to the type's precision alike: p - q is 0 everywhere."""
    table = random_table(8, 1, seed=3).to(getattr(torch, dtype)).double()
    target = ToyTarget(table)
    sampling = Sampling(temperature=1.0, seed=4)
    _, rounds = run(target, DraftModel(target, gamma=2, confidence=0.0), [1], sampling, Limits(12), rule=rule, coins=NoLuck(4))
    assert len(rounds) == 12
    for it in rounds[:-1]:
        assert it.kind == "recovered" and it.note["fell_back"] and not it.path
        row = it.rows[0]
        assert row.residual == pytest.approx(row.p, abs=1e-7) and sum(row.p) == pytest.approx(1, abs=1e-6)
    assert loads("\n".join(map(line, (_, *rounds)))).ids == emitted(rounds)


def test_b20_on_a_model():
    _, rounds = run(
        tiny("llama"), DraftModel(tiny("llama"), gamma=3, confidence=0.0), [1], Sampling(temperature=1.0), Limits(10), coins=NoLuck(1)
    )
    assert len(emitted(rounds)) == 10 and all(it.kind == "recovered" for it in rounds if it.nodes)


def test_a_run_can_be_halted_and_closed():
    target, drafter = tiny("llama"), DraftModel(tiny("llama", noise=0.1), confidence=0.0)
    asked = iter(range(100))  # twice around the prompt, then once a round
    _, its = run(target, drafter, [1, 2], GREEDY, Limits(90), halted=lambda: next(asked) >= 4)
    assert [it.stop for it in its] == ["", "", "stopped"]
    watched = Watched(target)
    records = decode(watched, Plain(), "", GREEDY, Limits(90), prompt_ids=[1, 2])
    for _ in range(4):
        next(records)
    records.close()
    assert watched.sessions[0].length == 1 + 3 and next(records, None) is None


def test_reading_a_long_prompt_can_be_halted(monkeypatch):
    monkeypatch.setattr("specviz.session.PREFILL_ROWS", 8)
    watched, asked = Watched(tiny("llama")), iter(range(100))
    header, its = run(watched, Plain(), prompt_ids(60), GREEDY, Limits(9), halted=lambda: next(asked) >= 3)
    assert its == [] and len(header.prompt_ids) == 60 and watched.sessions[0].length == 3 * 8


def test_nothing_is_computed_before_the_header_or_after_closing_it():
    watched = Watched(tiny("llama"))
    records = decode(watched, Plain(), "", GREEDY, Limits(5), prompt_ids=[1, 2])
    next(records)
    assert not watched.sessions
    records.close()
    assert not watched.sessions


def test_a_run_may_move_from_thread_to_thread():
    """Inference mode belongs to a thread; a generator may be advanced by another one each time."""
    records, found = (
        decode(tiny("llama"), DraftModel(tiny("llama", noise=0.1), confidence=0.0), "", GREEDY, Limits(12), prompt_ids=[3, 4]),
        [],
    )

    def step():
        if (record := next(records, None)) is not None:
            found.append(record)

    for _ in range(16):
        thread = threading.Thread(target=step)
        thread.start()
        thread.join()
    assert emitted(found[1:]) == library_greedy(tiny("llama"), [3, 4], 12) and not torch.is_inference_mode_enabled()


# --- what cannot be run


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"prompt_ids": []}, "The prompt is empty and llama has no start token"),
        ({"prompt": ""}, "The prompt is empty"),
        ({"prompt_ids": [64]}, "outside the vocabulary of llama (0 to 63)"),
        ({"prompt_ids": [-1]}, "outside the vocabulary"),
        ({"prompt_ids": [1] * 129}, "129 tokens, but llama holds 128"),
        ({"prompt": "x" * 400_001}, "at most 400000 characters"),
        ({"prompt": "a\ud800b"}, "must be text"),
        ({"prompt": None}, "must be text"),
        ({"prompt": 5}, "must be text"),
        ({"rule": "greedy", "prompt": "a"}, "one of token, block, typical"),
        ({"rule": "<img src=x onerror=alert(1)>" * 99, "prompt": "a"}, "one of token, block"),
    ],
)
def test_bad_input_is_one_sentence_before_any_work(how, words):
    watched = Watched(tiny("llama"))
    how = {"prompt": "", **how}
    with pytest.raises(RunError) as refused:
        next(decode(watched, Plain(), how.pop("prompt"), GREEDY, Limits(5), **how))
    text = str(refused.value)
    assert words in text and text.endswith(".") and "\n" not in text and len(text) < 200 and not watched.sessions


@pytest.mark.parametrize(
    "how",
    [
        {"max_new": 0},
        {"max_new": -1},
        {"max_new": True},
        {"max_new": 1.5},
        {"max_new": 100_001},
        {"stop": ("",)},
        {"stop": ("x" * 201,)},
        {"stop": ("a",) * 17},
        {"stop": (5,)},
        {"stop": ("\udcff",)},
    ],
)
def test_limits_that_cannot_be(how):
    with pytest.raises(RunError) as refused:
        Limits(**how)
    assert str(refused.value).endswith(".") and len(str(refused.value)) < 120

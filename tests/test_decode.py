"""The loop: at temperature 0 every drafter gives plain's ids and the library's, wherever a run ends; same seed, same trace."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import os
import subprocess
import sys

import pytest
import torch

from specviz.decode import Limits, RunError, decode
from specviz.drafters import DraftModel, Plain, PromptLookup
from specviz.sampling import Sampling
from specviz.toy import ToyTarget, random_table
from specviz.trace import Trace, line
from specviz.verify import RULES
from tests.tinymodels import VOCAB, Letters, Watched, emitted, library_greedy, plain_ids, prompt_ids, run, tiny
from tests.treedrafters import PartlyRight, TopTree, TreeDrafter

GREEDY = Sampling()
RIGHT = (0.0, 0.25, 0.5, 0.75, 1.0)
GAMMAS = range(1, 9)


class Ending(Watched):
    """The same target with end-of-text ids of our choice."""

    def __init__(self, target, *stop_ids: int):
        super().__init__(target)
        self.stop_ids = stop_ids


def drafters(target, answer, start, gamma):
    """One of each kind, some of them usually right."""
    cousin = tiny(target.name, noise=0.05)
    yield "lookup", PromptLookup(gamma=gamma, ngram=3)
    yield "draft", DraftModel(cousin, gamma=gamma, confidence=0.0)
    yield "twin", DraftModel(tiny(target.name), gamma=gamma, confidence=0.0)
    yield "adaptive", DraftModel(cousin, gamma=gamma, adaptive="heuristic", confidence=0.3)
    yield "tree", TopTree(cousin, ((3, 2, 2), (2, 1, 1, 1), (4,), (1, 3))[gamma % 4])
    for right in RIGHT:
        yield f"right {right}", PartlyRight(answer, start, VOCAB, right, gamma)


def check(target, ids, limits, want, stop, gammas=GAMMAS, answer=None, **how):
    """Every drafter, every length: the ids `want`, ended by `stop`, and nothing past the end counted."""
    header, rounds = run(target, Plain(), ids, GREEDY, limits, **how)
    assert emitted(rounds) == want and rounds[-1].stop == stop and header.lossless
    for gamma in gammas:
        for name, drafter in drafters(target, answer or want, len(ids), gamma):
            _, rounds = run(target, drafter, ids, GREEDY, limits, **how)
            assert emitted(rounds) == want, (name, gamma)
            assert rounds[-1].stop == stop and not any(it.stop or it.discarded for it in rounds[:-1]), (name, gamma)
            if name == "twin":
                assert all(len(it.path) == len(it.nodes) for it in rounds), gamma


@pytest.mark.parametrize("kind", ["llama", "qwen2 with windows", "qwen3", "gemma3", "gpt2"])
def test_every_drafter_gives_plains_ids_and_the_librarys(kind):
    target, ids = tiny(kind), prompt_ids(12)
    want = library_greedy(target, ids, 24)
    assert len(set(want)) > 4
    check(target, ids, Limits(24), want, "limit", GAMMAS if kind in ("llama", "gemma3") else (2, 5, 8))


@pytest.mark.parametrize("new", [1, 2, 3, 5])
def test_limits_inside_a_block(new):
    """B02: never more than the limit, the first ones of plain."""
    target, ids = tiny("llama"), prompt_ids(4) * 3
    check(target, ids, Limits(new), library_greedy(target, ids, 24)[:new], "limit", answer=library_greedy(target, ids, 24))


def first_new(answer: list[int], at: int) -> int:
    return next(i for i in range(at, len(answer)) if answer[i] not in answer[:i])


@pytest.mark.parametrize("at", [0, 3, 6])
def test_b01_end_of_text_inside_a_block(at):
    ids = prompt_ids(12)
    answer = library_greedy(tiny("llama"), ids, 24)
    at = first_new(answer, at)
    target = Ending(tiny("llama"), answer[at])
    want = library_greedy(tiny("llama"), ids, 24, stop_ids=target.stop_ids)
    assert want == answer[: at + 1]
    check(target, ids, Limits(24), want, "end_of_text", answer=answer)


def test_what_a_stop_cuts_off_is_recorded_and_counts_nowhere():
    from specviz.stats import summary

    ids = prompt_ids(12)
    answer = library_greedy(tiny("llama"), ids, 24)
    at = first_new(answer, 3)
    header, rounds = run(Ending(tiny("llama"), answer[at]), PartlyRight(answer, 12, VOCAB, 1.0, 8), ids, GREEDY, Limits(24))
    assert len(rounds) == 1 and rounds[0].emitted == answer[: at + 1] and rounds[0].discarded == answer[at + 1 : 9]
    counted = summary(Trace(header, rounds))
    assert (counted.new_tokens, counted.accepted, counted.drafted) == (at + 1, at + 1, at + 1)


@pytest.mark.parametrize(("first", "count"), [(2, 1), (4, 2), (1, 4)])
def test_stop_strings_across_tokens_and_blocks(first, count):
    target, ids = tiny("llama"), prompt_ids(12)
    answer = library_greedy(target, ids, 24)
    text = [target.token_bytes(token) for token in answer]
    stop = b"".join(text[first : first + count])
    end = next(i for i in range(1, 25) if stop in b"".join(text[:i]))
    check(target, ids, Limits(24, (stop.decode(), "never said")), answer[:end], "stop_string", answer=answer)


def test_a_stop_string_may_end_inside_a_token():
    class Long(Letters):
        def get_vocab(self):
            return {f"<{i}>": i for i in range(VOCAB)}

    target = dataclasses.replace(tiny("llama"), tokenizer=Long())
    ids = prompt_ids(12)
    answer = library_greedy(target, ids, 10)
    stop = f"{answer[1]}><{str(answer[2])[0]}"
    _, rounds = run(target, PartlyRight(answer, 12, VOCAB, 1.0, 8), ids, GREEDY, Limits(10, (stop,)))
    assert emitted(rounds) == answer[:3] and rounds[-1].stop == "stop_string"


@pytest.mark.parametrize("length", [60, 63, 64])
def test_b09_the_context_ends_inside_a_block(length):
    target, ids = tiny("gpt2"), prompt_ids(length)
    want = plain_ids(target, ids, GREEDY, Limits(50))
    assert len(want) == 65 - length  # the last one needs no position of its own
    assert library_greedy(target, ids, len(want)) == want
    check(target, ids, Limits(50), want, "context", gammas=(1, 3, 8))
    _, rounds = run(target, PartlyRight(want, length, VOCAB, 1.0, 8), ids, GREEDY, Limits(50))
    assert all(len(it.nodes) <= 64 - length for it in rounds)


def test_b09_a_prompt_that_does_not_fit_is_refused_and_the_next_run_works():
    target = tiny("gpt2")
    records = decode(target, Plain(), "", GREEDY, Limits(50), prompt_ids=prompt_ids(65))
    with pytest.raises(RunError, match=r"65 tokens, but gpt2 holds 64; shorten it\.$"):
        next(records)
    assert len(plain_ids(target, prompt_ids(60), GREEDY, Limits(50))) == 5


@pytest.mark.parametrize("length", [50, 64, 65, 90])
def test_a_draft_model_with_less_room_than_its_target(length):
    target, ids = tiny("llama"), prompt_ids(length)
    header, rounds = run(target, DraftModel(tiny("gpt2"), gamma=5, confidence=0.0), ids, GREEDY, Limits(30))
    assert emitted(rounds) == library_greedy(target, ids, 30) and header.drafter == "gpt2"
    late = [it for it in rounds if it.start >= 0 and not it.nodes]
    assert late and all(it.reason == "clipped" for it in late)
    assert bool(rounds[0].nodes) == (length < 64)


@pytest.mark.parametrize("vocab", [40, 90])
def test_a_draft_model_with_another_number_of_ids(vocab):
    """Fewer: what it cannot say has no mass, what it cannot read is guessed. More: never drafted."""
    target, ids = tiny("llama"), [63, 62, 41, *prompt_ids(9)]
    for sampling in (GREEDY, Sampling(temperature=1.0, seed=2)):
        _, rounds = run(target, DraftModel(tiny("qwen2", vocab_size=vocab), gamma=4, confidence=0.0), ids, sampling, Limits(30))
        assert all(node.token < min(vocab, VOCAB) for it in rounds for node in it.nodes)
    assert emitted(run(target, DraftModel(tiny("qwen2", vocab_size=vocab), confidence=0.0), ids, GREEDY, Limits(30))[1]) == library_greedy(
        target, ids, 30
    )


@pytest.mark.parametrize("ids", [[7], [7, 7], prompt_ids(100)])
def test_b05_prompts_of_any_length(ids):
    target = tiny("llama")
    for drafter in (DraftModel(tiny("llama", noise=0.1), confidence=0.0), PromptLookup(), TopTree(tiny("llama", noise=0.1), (2, 2))):
        assert emitted(run(target, drafter, ids, GREEDY, Limits(28))[1]) == library_greedy(target, ids, 28)


def test_block_verification_at_temperature_0():
    target, ids = tiny("llama"), prompt_ids(12)
    want = library_greedy(target, ids, 24)
    for gamma, right in itertools.product((1, 4, 8), RIGHT):
        _, rounds = run(target, PartlyRight(want, 12, VOCAB, right, gamma), ids, GREEDY, Limits(24), rule="block")
        assert emitted(rounds) == want
    watched = Watched(target)
    with pytest.raises(RunError, match="needs a chain, and tree proposes trees; choose the token rule"):
        next(decode(watched, TopTree(tiny("llama"), (2, 2)), "", GREEDY, Limits(24), rule="block", prompt_ids=ids))
    assert not watched.sessions, "refused before any work"


@pytest.mark.parametrize("rule", RULES)
def test_plain_decoding_is_lossless_by_any_rule(rule):
    """It proposes nothing that a rule could judge."""
    sampling, ids = Sampling(temperature=1.0, seed=2), prompt_ids(12)
    headers, rounds = zip(*(run(tiny("llama"), Plain(), ids, sampling, Limits(12), rule=each) for each in (rule, "token")), strict=True)
    assert headers[0].lossless and emitted(rounds[0]) == emitted(rounds[1])
    assert not run(tiny("llama"), TopTree(tiny("llama"), (2, 2)), ids, sampling, Limits(2), rule="typical")[0].lossless


# --- twins, seeds


@pytest.mark.parametrize("kind", ["llama", "gemma3", "gpt2"])
def test_twins_accept_everything_to_the_last_token(kind):
    target, ids = tiny(kind), prompt_ids(10)
    for gamma in (1, 4, 7):
        _, rounds = run(target, DraftModel(tiny(kind), gamma=gamma, confidence=0.0), ids, GREEDY, Limits(40))
        assert all(test.accepted and test.threshold == 1 for it in rounds for test in it.tests)
        assert [len(it.nodes) for it in rounds[:-1]] == [gamma] * (len(rounds) - 1) and len(emitted(rounds)) == 40


def timeless(records) -> list[str]:
    """A run as lines, all but its times."""
    found = []
    for record in records:
        if hasattr(record, "seconds"):
            record = dataclasses.replace(record, seconds={}, start=0.0)
        found.append(line(record))
    return found


def seeded_runs() -> list[list[str]]:
    """Sampled runs of each drafter and rule on a table and on a model, as lines without times."""
    toy, draft = ToyTarget(random_table(6, 2, seed=1), order=2), ToyTarget(random_table(6, 1, seed=2))
    tiny_target, cousin = tiny("llama"), tiny("llama", noise=0.1)
    sampling, found = Sampling(temperature=1.3, top_p=0.95, seed=7), []
    for target, model, vocab in ((toy, draft, 6), (tiny_target, cousin, VOCAB)):
        ids = [i % vocab for i in range(8)]
        for rule, maker in (
            ("token", lambda m: Plain()),
            ("token", lambda m: PromptLookup(gamma=3)),
            ("token", lambda m: DraftModel(m, gamma=4, confidence=0.0)),
            ("block", lambda m: DraftModel(m, gamma=4, adaptive="heuristic", confidence=0.0)),
            ("token", lambda m: TreeDrafter(m, (2, 2), "without")),
        ):
            records = decode(target, maker(model), "", sampling, Limits(20), rule=rule, prompt_ids=ids)
            found.append(timeless(records))
    return found


def digest(runs: list[list[str]]) -> str:
    return hashlib.sha256("\n".join(one for run in runs for one in run).encode()).hexdigest()


def test_same_seed_same_trace_here_and_in_a_fresh_process():
    before = torch.random.get_rng_state()
    first = seeded_runs()
    torch.rand(5)
    other = decode(
        tiny("llama"),
        DraftModel(tiny("llama", noise=0.1), confidence=0.0),
        "",
        Sampling(temperature=1.0, seed=1),
        Limits(50),
        prompt_ids=[1],
    )
    again = []
    target, model, ids = tiny("llama"), tiny("llama", noise=0.1), [i % VOCAB for i in range(8)]
    sampling = Sampling(temperature=1.3, top_p=0.95, seed=7)
    for record in decode(target, DraftModel(model, gamma=4, confidence=0.0), "", sampling, Limits(20), prompt_ids=ids):
        again += timeless([record])
        next(other)  # another run goes on between the rounds
    assert again == first[7]
    torch.random.set_rng_state(before)
    assert seeded_runs() == first
    assert torch.equal(before, torch.random.get_rng_state()), "the global random state is left alone"
    code = f"from tests.test_decode import *; torch.set_num_threads({torch.get_num_threads()}); print(digest(seeded_runs()))"
    fresh = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300,
        cwd=os.path.dirname(os.path.dirname(__file__)),
    )  # fmt: skip
    assert fresh.stdout.strip() == digest(first)


def test_b27_seeds():
    def text(seed):
        return emitted(
            run(
                tiny("llama"),
                DraftModel(tiny("llama", noise=0.1), confidence=0.0),
                [1, 2],
                Sampling(temperature=1.3, seed=seed),
                Limits(30),
            )[1]
        )

    assert text(7) == text(7) != text(8)
    header, _ = run(tiny("llama"), Plain(), [1], Sampling(temperature=1.3, seed=2**53), Limits(1))
    assert header.sampling["seed"] == 2**53

"""Every entry of METHODS, as its untrained small one, passes the same tests: a new method is tested without a line
added here. The laws of what is drawn with real coins are in test_drawn_laws.py."""

from __future__ import annotations

import dataclasses
import functools
import random

import pytest
import torch

from specviz.decode import Limits, decode
from specviz.drafters import METHODS, State, knob_values, knobs
from specviz.sampling import Sampling
from specviz.session import Target
from specviz.stats import summary
from specviz.toy import ToyTarget, random_table
from specviz.trace import Trace
from specviz.tree import chain, tree
from specviz.verify import LOSSLESS, SeededCoins
from tests.law import decode_law, distance, true_law
from tests.methodkit import built, no_probe_counts, obeys, once, prompt, sizes, small, trimmed, variations, watched
from tests.test_decode import Ending, timeless
from tests.tinymodels import Watched, emitted, library_greedy, run, tiny

every = pytest.mark.parametrize("name", list(METHODS))
GREEDY = Sampling()

# --- the class itself


@every
def test_what_a_method_says_of_itself(name):
    method = METHODS[name]
    assert method.name == name and isinstance(method.paper, str) and method.lossless is True
    assert method.needs in ("", "model", "head", "target") and dataclasses.is_dataclass(method)
    assert method.paper or name == "plain"
    for target in (TOY, tiny("llama")):
        drafter = method.tiny(target)
        assert type(drafter) is method and isinstance(drafter.source, str)
        assert method.needs or not drafter.source, "only what reads other weights names them"
        layers = target.config.num_hidden_layers
        assert drafter.shape in ("none", "chain", "tree")
        assert all(isinstance(tap, int) and 0 <= tap <= layers for tap in drafter.taps(target.config))
        assert all(knob.check(value) == value for knob, value in zip(knobs(method), knob_values(drafter).values(), strict=True))
    assert hasattr(method, "load") or method.needs != "head"
    for knob in knobs(method):
        assert knob.help.endswith(".") and len(knob.help) > 8 and knob.check(knob.default) == knob.default
        if knob.kind in ("int", "float"):
            assert knob.min is not None and knob.max is not None and knob.min < knob.max


@every
def test_an_untrained_one_is_the_same_each_time_and_leaves_the_global_random_state(name):
    before, python = torch.random.get_rng_state(), random.getstate()
    runs = []
    for _ in range(2):
        target, sampling = tiny("llama", vocab_size=12), Sampling(temperature=1.2, top_p=0.9, seed=5)
        drafter = METHODS[name].tiny(target)
        # twice with the same drafter: a run starts afresh
        runs += [timeless(decode(target, drafter, "", sampling, Limits(20), prompt_ids=prompt(9))) for _ in range(2)]
        torch.rand(3), random.random()
        torch.random.set_rng_state(before), random.setstate(python)
    assert runs[0] == runs[1] == runs[2] == runs[3]
    again = timeless(decode(target, drafter, "", sampling, Limits(20), prompt_ids=prompt(9)))
    assert torch.equal(before, torch.random.get_rng_state()) and python == random.getstate() and again == runs[0]


# --- the exact law of everything emitted

TOY = ToyTarget(random_table(4, 2, seed=1), order=2)
SMALL_TOY = ToyTarget(random_table(3, 2, seed=8), order=2)
PROMPT = (0, 1, 2, 0, 1)
SETTINGS = {
    "T=1": Sampling(temperature=1.0),
    "top-k": Sampling(temperature=0.7, top_k=3),
    "penalty": Sampling(temperature=0.9, repetition_penalty=1.4),
    "T=0": GREEDY,
}


def exact(name: str, target, chosen: dict, sampling: Sampling, new: int, rule: str = "token", stop=()) -> int:
    """Asserts the law; returns how many drafted tokens were accepted on the way."""
    accepted = []
    drafter = watched(once(built(name, target, **chosen)), after=lambda state, draft, verdict, scores: accepted.extend(verdict.path))
    ids = [token % target.vocab for token in PROMPT]
    law = decode_law(target, drafter, sampling, new, rule, stop, ids)
    assert distance(law, true_law(target, sampling, new, stop, ids)) <= 1e-12
    return len(accepted)


@every
@pytest.mark.parametrize("settings", SETTINGS)
def test_joint_law_is_plain_decodings(name, settings):
    chosen = small(name, TOY)
    accepted = exact(name, TOY, chosen, SETTINGS[settings], 3)
    assert accepted or name == "plain" or settings == "T=0", "nothing was accepted, so nothing was shown"
    if built(name, TOY, **chosen).shape != "tree":
        exact(name, TOY, chosen, SETTINGS[settings], 3, "block")


@every
def test_joint_law_whatever_the_knobs(name):
    for label, chosen in variations(name, SMALL_TOY).items():
        for rule in sorted(LOSSLESS) if built(name, SMALL_TOY, **chosen).shape != "tree" else ["token"]:
            try:
                exact(name, SMALL_TOY, chosen, SETTINGS["T=1"], 3, rule)
            except AssertionError as error:
                raise AssertionError(f"{label}, {rule} rule: {error}") from error


@every
def test_joint_law_of_deep_drafts_and_where_runs_end(name):
    """Drafts of depth 3, and a run that ends by an end-of-text token, a string or the context inside a block."""
    exact(name, SMALL_TOY, small(name, SMALL_TOY), SETTINGS["T=1"], 4)
    exact(name, dataclasses.replace(SMALL_TOY, stop_ids=(2,)), small(name, SMALL_TOY), SETTINGS["T=1"], 3)
    exact(name, SMALL_TOY, small(name, SMALL_TOY), SETTINGS["T=1"], 3, stop=("ab", "c"))
    exact(name, dataclasses.replace(SMALL_TOY, context=7), small(name, SMALL_TOY), SETTINGS["T=1"], 9)


@every
def test_joint_law_of_a_head_with_a_trimmed_vocabulary(name):
    for settings in ("T=1", "penalty"):
        drafter = trimmed(built(name, SMALL_TOY, **small(name, SMALL_TOY)), SMALL_TOY, torch.tensor([2, 0]))
        if drafter is None:
            return
        sampling, ids = SETTINGS[settings], [token % 3 for token in PROMPT]
        law = decode_law(SMALL_TOY, watched(once(drafter)), sampling, 3, prompt=ids)
        assert distance(law, true_law(SMALL_TOY, sampling, 3, prompt=ids)) <= 1e-12


# --- what the look at drafts sees


@pytest.mark.parametrize(
    "draft",
    [
        chain([1, 1, 1, 1]),  # deeper than the room
        chain([12]),  # no token of the target
        tree([3, 3], (-1, -1)),  # a sibling twice
        chain([1], [torch.eye(12)[2]]),  # drawn from a law without it
        chain([1], [torch.eye(12)[1] * 2]),  # from no law at all
        chain([1, 2], probe=(True, False)),  # a candidate that no path leads to
        chain([1], note={"score": torch.ones(1)}),  # a note that is no JSON
    ],
)
def test_a_wrong_draft_is_seen(draft):
    state = State([1, 2], 2, 3, GREEDY, SeededCoins(0), (), 12)
    obeys(chain([1, 2, 3]), state)
    with pytest.raises((AssertionError, TypeError)):
        obeys(draft, state)


# --- temperature 0: plain's ids, wherever the run ends


@functools.cache
def few(kind: str, **more) -> Target:
    """Few tokens, so that even an untrained draft is often right."""
    return tiny(kind, vocab_size=12, **more)


@functools.cache
def answer(kind: str, new: int = 24) -> tuple[int, ...]:
    return tuple(library_greedy(few(kind), prompt(14), new))


def greedy(name: str, target, chosen: dict, limits: Limits, want, stop: str, ids=None) -> list:
    header, rounds = run(target, watched(built(name, target, **chosen)), ids or prompt(14), GREEDY, limits)
    assert emitted(rounds) == list(want) and rounds[-1].stop == stop and header.lossless
    assert not any(it.stop or it.discarded for it in rounds[:-1])
    no_probe_counts(rounds)
    counted = summary(Trace(header, rounds))
    assert counted.new_tokens == len(want) and counted.accepted <= counted.drafted
    assert counted.drafted <= sum(not node.probe for it in rounds for node in it.nodes)
    return rounds


@every
@pytest.mark.parametrize("kind", ["llama", "gemma3", "qwen2"])
def test_temperature_0_gives_plains_ids(name, kind):
    for chosen in sizes(name, few(kind)).values():
        greedy(name, few(kind), chosen, Limits(24), answer(kind), "limit")


@every
def test_temperature_0_wherever_a_run_ends(name):
    target, want = few("llama"), answer("llama")
    first = {at: token for at, token in enumerate(want) if token not in want[:at]}
    cuts = sorted(first)[1::2]
    for chosen in sizes(name, target).values():
        for new in range(1, 10):
            greedy(name, target, chosen, Limits(new), want[:new], "limit")
        for at in cuts:
            greedy(name, Ending(target, want[at]), chosen, Limits(24), want[: at + 1], "end_of_text")
        for at in (1, 4):
            text = [target.token_bytes(token) for token in want]
            stop = b"".join(text[at : at + 2])
            end = next(i for i in range(1, 25) if stop in b"".join(text[:i]))
            greedy(name, target, chosen, Limits(24, (stop.decode(),)), want[:end], "stop_string")


@every
def test_temperature_0_to_the_end_of_the_context(name):
    target = few("llama", max_position_embeddings=20)
    for chosen in sizes(name, target).values():
        for length in (14, 19, 20):
            rounds = greedy(name, target, chosen, Limits(50), answer("llama")[: 21 - 14], "context") if length == 14 else None
            if rounds is None:
                ids = [*prompt(14), *answer("llama")[: length - 14]]
                rounds = greedy(name, target, chosen, Limits(50), answer("llama")[length - 14 : 7], "context", ids)
            assert not rounds[-1].nodes or len(rounds[-1].path) > 0


# --- cache, hidden states and next laws after every round


@every
@pytest.mark.parametrize("kind", ["llama", "gemma3"])
@torch.inference_mode()
def test_after_every_round_all_is_as_after_a_fresh_prefill(name, kind):
    target = Watched(few(kind))
    layers = tuple(range(target.config.num_hidden_layers + 1))
    paths = []

    def check(state, draft, verdict, scores):
        ids, length = state.ids, len(state.ids) - 1
        fresh = target.target.session(length + 1, layers)
        hidden = fresh.prefill(ids)
        session = target.sessions[0]
        assert session.length == length
        for ours, theirs in zip(session.layers, fresh.layers, strict=True):
            for mine, other in ((ours.keys, theirs.keys), (ours.values, theirs.values)):
                torch.testing.assert_close(mine[:, :, :length], other[:, :, :length], atol=1e-5, rtol=1e-5)
        for tap in layers:
            torch.testing.assert_close(state.hidden[tap], hidden[tap], atol=1e-5, rtol=1e-5)
        before = ids[: len(ids) - state.new]
        for node in [-1, *(node for node in range(len(draft)) if not draft.is_probe(node))][:12]:
            seen = [*before, *(int(draft.tokens[i]) for i in draft.path(node))]
            want = target.model(input_ids=torch.tensor([seen]), use_cache=False).logits[0, -1]
            torch.testing.assert_close(scores.logits[node + 1], want, atol=1e-5, rtol=1e-5)

    for chosen in sizes(name, target).values():
        target.sessions.clear()
        drafter = watched(built(name, target.target, **chosen), layers, check)
        _, rounds = run(target, drafter, prompt(14), Sampling(temperature=1.0, seed=3), Limits(16), capture=0)
        no_probe_counts(rounds)
        paths += [tuple(it.path) for it in rounds]
    assert name == "plain" or any(paths), "something must have been accepted for this to show anything"


# --- no room


@every
def test_without_room_nothing_is_drafted(name):
    for target in (few("llama"), TOY):
        for chosen in sizes(name, target).values():
            ids = prompt(9, target.vocab)
            drafter = watched(built(name, target, **chosen))
            for sampling in (GREEDY, Sampling(temperature=1.0)):
                _, rounds = run(target, drafter, ids, sampling, Limits(1))
                assert len(rounds) == 1 and rounds[0].nodes == [] and rounds[0].kind == "bonus"

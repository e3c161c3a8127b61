"""Every trained head learns on held-out conversations, goes on after a stop to the same weights, and drafts what it learned."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from safetensors.torch import load_file

from specviz.decode import Limits
from specviz.drafters import METHODS
from specviz.heads import draft as draft_head
from specviz.sampling import Sampling
from specviz.session import Target
from specviz.train import medusa, recurrent, specdec
from specviz.train.collect import collect
from specviz.train.conversations import write
from specviz.train.data import Data
from tests.test_train import STOP, talk
from tests.tinymodels import Letters, plain_ids, run, tiny_model

RECIPES = {
    "eagle": recurrent.EagleRecipe(feature=0.1, token=1.0),
    "eagle3": recurrent.Eagle3Recipe(steps=2),
    "mtp": recurrent.MtpRecipe(steps=2),
    "medusa": medusa.MedusaRecipe(heads=2),
}
METHOD = {"eagle": "eagle2", "eagle3": "eagle3", "mtp": "mtp", "medusa": "medusa"}


class Enough(Exception):
    pass


@pytest.fixture(scope="module")
def features(tmp_path_factory):
    folder = tmp_path_factory.mktemp("features")
    write(folder / "talk.npz", talk(400, seed=3))
    collect(tiny_model("llama"), STOP, [folder / "talk.npz"], folder, [], 8, 6000, 32, seed=0, taps=(0, 1))
    return folder


def train(kind, folder, out, **changes):
    recipe = dataclasses.replace(RECIPES[kind], **{"vocab": 40, "epochs": 6, "tokens": 256, "lr": 5e-3, "warmup": 5, **changes})
    data = Data(folder, taps=(0, 1) if kind == "eagle3" else (), last=2)
    on_step = changes.pop("on_step", lambda step: None)
    if kind == "medusa":
        return medusa.train(tiny_model("llama"), data, out, recipe, [STOP], 0, [], on_step=on_step)
    return recurrent.train(kind, tiny_model("llama"), data, out, recipe, [STOP], 0, [], on_step=on_step)


@pytest.fixture(scope="module")
def trained(features, tmp_path_factory):
    return {kind: (out := tmp_path_factory.mktemp(kind), train(kind, features, out)) for kind in RECIPES}


def first(by_depth):
    return by_depth[0] if isinstance(by_depth, list) else by_depth


@pytest.mark.parametrize("kind", RECIPES)
def test_a_head_learns(kind, features, trained, tmp_path):
    before = train(kind, features, tmp_path, epochs=0)["held_out"]["text"]
    after = trained[kind][1]["held_out"]["text"]
    assert first(after["overlap"]) > first(before["overlap"]) + 0.04
    depths = {"eagle": 1, "eagle3": 2, "mtp": 2, "medusa": 2}[kind]
    assert depths == 1 or len(after["agree"]) == depths


@pytest.mark.parametrize("kind", RECIPES)
def test_a_stopped_training_goes_on_to_the_same_weights(kind, features, trained, tmp_path):
    recipe = dataclasses.replace(RECIPES[kind], vocab=40, epochs=6, tokens=256, lr=5e-3, warmup=5)
    data = Data(features, taps=(0, 1) if kind == "eagle3" else (), last=2)

    def stop_at_seven(step: int) -> None:
        if step == 7:
            raise Enough

    def go(recipe, **how):
        if kind == "medusa":
            return medusa.train(tiny_model("llama"), data, tmp_path, recipe, [STOP], 0, [], **how)
        return recurrent.train(kind, tiny_model("llama"), data, tmp_path, recipe, [STOP], 0, [], **how)

    with pytest.raises(Enough):
        go(dataclasses.replace(recipe, minutes=1e-9), on_step=stop_at_seven)  # a checkpoint after every batch
    assert go(recipe)["answer_tokens"] == trained[kind][1]["answer_tokens"]
    if not RECIPES[kind].__dict__.get("noise"):  # the noise is drawn anew after a stop
        want, got = (load_file(folder / "model.safetensors") for folder in (trained[kind][0], tmp_path))
        assert all(torch.allclose(want[name].float(), got[name].float(), atol=2e-3) for name in want)


@pytest.mark.parametrize("kind", RECIPES)
def test_what_was_trained_drafts_losslessly_and_is_accepted(kind, trained):
    target = Target("tiny", tiny_model("llama"), Letters())
    method = METHODS[METHOD[kind]]
    drafter = method(**method.load(trained[kind][0], target))
    prompt, limits = [5, 6, 7, 8], Limits(30)
    _, iterations = run(target, drafter, prompt, Sampling(), limits)
    assert [t for it in iterations for t in it.emitted] == plain_ids(target, prompt, Sampling(), limits)
    assert sum(len(it.nodes) for it in iterations) > 0


def test_the_acceptance_head_learns_which_drafts_are_taken(features, tmp_path):
    model = tiny_model("llama")
    draft = draft_head.copied(model, [1], torch.arange(40))
    data = Data(features, last=2)
    results = [
        specdec.train(
            model, draft, torch.arange(40), data, tmp_path / str(epochs), specdec.SpecdecRecipe(epochs=epochs, tokens=256, lr=5e-3), 0, []
        )
        for epochs in (0, 8)
    ]
    before, after = (facts["held_out"]["text"] for facts in results)
    assert after["agree"] > max(before["agree"], after["accepted"], 1 - after["accepted"]) - 0.02
    drafter_class = METHODS["draft_model"]
    target = Target("tiny", model, Letters())
    loaded = drafter_class.load(tmp_path / "8", target)["acceptance"]
    assert loaded(torch.randn(3, 32)).shape == (3,)

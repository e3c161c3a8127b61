"""Training: what is collected, what is held out, and that a draft learns, is saved, resumed and loaded as it was."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from specviz.decode import Limits, decode
from specviz.drafters import DraftModel, Plain
from specviz.heads import draft as head
from specviz.sampling import Sampling
from specviz.session import ModelError, Target
from specviz.train.collect import collect
from specviz.train.conversations import Conversation, by_length, held_out, read, unique_prompts, write
from specviz.train.data import Data, frequent_tokens
from specviz.train.draft import Recipe, train
from tests.tinymodels import VOCAB, Letters, tiny_model

STOP = 3


def talk(count: int, seed: int = 0) -> list[Conversation]:
    rng = np.random.default_rng(seed)
    lengths = rng.integers(6, 20, count)
    return [Conversation(rng.integers(4, VOCAB, n), int(rng.integers(1, 4))) for n in lengths]


@pytest.fixture(scope="module")
def features(tmp_path_factory):
    folder = tmp_path_factory.mktemp("features")
    write(folder / "talk.npz", talk(150))
    model = tiny_model("llama")
    own = collect(model, STOP, [folder / "talk.npz"], folder, [0.0, 0.9], 8, 4000, 32, seed=0)
    (folder / "collect.json").write_text(json.dumps({"own": own, "command": "collect"}))
    return folder, own


def test_conversations_survive_the_disk(tmp_path):
    write(tmp_path / "a.npz", talk(5))
    again = read(tmp_path / "a.npz")
    assert all(np.array_equal(a.ids, b.ids) and a.answer == b.answer for a, b in zip(talk(5), again, strict=True))
    np.savez(tmp_path / "b.npz", ids=np.zeros(3))
    with pytest.raises(ValueError, match="lacks answers, starts"):
        read(tmp_path / "b.npz")


def test_held_out_goes_by_prompt():
    many = talk(4000, seed=1)
    assert 0.2 < np.mean([held_out(c, one_in=4) for c in many]) < 0.3
    for c in many[:50]:
        other = Conversation(np.concatenate([c.ids[: c.answer], [9, 9, 9]]), c.answer)
        assert held_out(c) == held_out(other)


def test_batches_hold_every_conversation_once_and_bound_their_size():
    many = talk(300)
    batches = by_length(many, tokens=100, seed=4)
    assert sorted(i for batch in batches for i in batch) == list(range(300))
    assert all(len(batch) * max(len(many[i].ids) for i in batch) <= 100 or len(batch) == 1 for batch in batches)
    assert by_length(many, 100, seed=4) == batches != by_length(many, 100, seed=5)


def test_frequent_tokens_weigh_own_answers_and_keep_the_stop():
    said = [Conversation(np.array([0, 7, 7]), 1), Conversation(np.array([0, 8, 8, 8]), 1)]
    assert frequent_tokens(said, 1, 2.0, 2, [5]).tolist() == [5, 7]
    assert frequent_tokens(said, 1, 1.0, 2, [5]).tolist() == [5, 8]


def test_collect_keeps_the_targets_own_hidden_states(features):
    folder, own = features
    data, model = Data(folder), tiny_model("llama")
    assert own == 2 * len([p for p in unique_prompts(read(folder / "talk.npz")) if len(p) <= 16])
    assert set(data.train).isdisjoint(data.test) and len(data.train) + len(data.test) == len(data.conversations)
    for index in (0, own, len(data.conversations) - 1):
        ids = torch.from_numpy(data.conversations[index].ids)[None]
        want = model.get_decoder()(ids).last_hidden_state[0].detach().numpy()
        assert np.allclose(data.hidden[data.starts[index] : data.starts[index + 1]], want, atol=2e-2)
    greedy = data.conversations[0]
    ids = torch.from_numpy(greedy.ids)[None]
    best = model(ids).logits[0].argmax(-1)
    assert best[greedy.answer - 1 : -1].tolist() == greedy.ids[greedy.answer :].tolist()


def test_a_stopped_collection_goes_on(features, tmp_path):
    folder, _ = features
    for path in folder.iterdir():
        if path.name.startswith(("answers", "talk")):
            (tmp_path / path.name).write_bytes(path.read_bytes())
    collect(tiny_model("llama"), STOP, [tmp_path / "talk.npz"], tmp_path, [0.0, 0.9], 8, 4000, 32, seed=0)
    assert (tmp_path / "hidden.f16").read_bytes() == (folder / "hidden.f16").read_bytes()


def test_features_of_other_conversations_are_not_taken_for_these(features, tmp_path):
    folder, _ = features
    for name in ("hidden.f16", "hidden.done.json"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    write(tmp_path / "talk.npz", talk(150, seed=9))
    collect(tiny_model("llama"), STOP, [tmp_path / "talk.npz"], tmp_path, [], 8, 1000, 32, seed=0)
    data = Data(tmp_path)
    want = tiny_model("llama").get_decoder()(torch.from_numpy(data.conversations[0].ids)[None]).last_hidden_state[0]
    assert np.allclose(data.hidden[: data.starts[1]], want.detach().numpy(), atol=2e-2)


@pytest.fixture(scope="module")
def trained(features, tmp_path_factory):
    folder, own = features
    out = tmp_path_factory.mktemp("draft")
    recipe = Recipe(layers=(1,), vocab=24, epochs=6, tokens=256, lr=3e-3, warmup=5)
    facts = train(tiny_model("llama"), Data(folder), out, recipe, [STOP], own, ["collect", "train"])
    return out, facts, recipe


def test_training_raises_held_out_acceptance(features, trained, tmp_path):
    folder, own = features
    _, facts, recipe = trained
    start = train(tiny_model("llama"), Data(folder), tmp_path, Recipe(**{**vars(recipe), "epochs": 0}), [STOP], own, [])
    assert facts["held_out"]["text"]["overlap"] > start["held_out"]["text"]["overlap"] + 0.05


def test_a_stopped_training_goes_on_to_the_same_weights(features, trained, tmp_path):
    folder, own = features
    out, facts, recipe = trained
    interrupted = Recipe(**{**vars(recipe), "minutes": 1e-9})  # a checkpoint after every batch

    class Enough(Exception):
        pass

    def stop_at_seven(step: int) -> None:
        if step == 7:
            raise Enough

    with pytest.raises(Enough):
        train(tiny_model("llama"), Data(folder), tmp_path, interrupted, [STOP], own, [], on_step=stop_at_seven)
    again = train(tiny_model("llama"), Data(folder), tmp_path, recipe, [STOP], own, [])
    assert again["answer_tokens"] == facts["answer_tokens"]
    want, got = (load_file(folder / "model.safetensors") for folder in (out, tmp_path))
    assert all(torch.allclose(want[name].float(), got[name].float(), atol=1e-3) for name in want)


def test_a_checkpoint_of_another_recipe_is_refused(features, trained, tmp_path):
    folder, own = features
    out, _, recipe = trained
    (tmp_path / "checkpoint.pt").write_bytes((out / "checkpoint.pt").read_bytes())
    with pytest.raises(ValueError, match="another recipe"):
        train(tiny_model("llama"), Data(folder), tmp_path, Recipe(**{**vars(recipe), "epochs": 2}), [STOP], own, [])


def test_a_draft_goes_on_from_an_earlier_one(features, trained, tmp_path):
    folder, own = features
    out, facts, recipe = trained
    same = train(tiny_model("llama"), Data(folder), tmp_path, Recipe(**{**vars(recipe), "epochs": 0}), [STOP], own, [], start=out)
    assert same["held_out"]["text"]["overlap"] == pytest.approx(facts["held_out"]["text"]["overlap"], abs=2e-3)


def test_the_targets_own_answers_may_be_all_that_is_trained_on(features, trained, tmp_path):
    folder, own = features
    recipe = Recipe(**{**vars(trained[2]), "epochs": 1, "own_only": True})
    data = Data(folder)
    mine = [data.conversations[i] for i in data.train if i < own]
    facts = train(tiny_model("llama"), data, tmp_path / "own", recipe, [STOP], own, [])
    assert 0 < len(mine) < len(data.train) and facts["conversations"] == len(mine)
    assert facts["answer_tokens"] == sum(len(c.ids) - c.answer for c in mine)
    with pytest.raises(ValueError, match="own answers"):
        train(tiny_model("llama"), data, tmp_path / "none", recipe, [STOP], 0, [])


def test_the_draft_loads_and_drafts_for_its_target(trained):
    out, _, _ = trained
    target = Target("tiny", tiny_model("llama"), Letters())
    model, d2t = head.load(out, target)
    assert model.model.get_input_embeddings() is target.model.get_input_embeddings()
    prompt = [5, 6, 7]
    for temperature in (0.0, 1.0):
        records = list(
            decode(
                target, DraftModel(model, d2t, confidence=0.0), "", Sampling(temperature=temperature, seed=3), Limits(24), prompt_ids=prompt
            )
        )
        drafted = {node.token for iteration in records[1:] for node in iteration.nodes}
        assert drafted and drafted <= set(d2t.tolist())
        if temperature == 0:
            plain = list(decode(target, Plain(), "", Sampling(), Limits(24), prompt_ids=prompt))
            assert [t for i in plain[1:] for t in i.emitted] == [t for i in records[1:] for t in i.emitted]


@pytest.mark.parametrize("harm", ["remove", "rename", "shape", "map", "no map", "kind"])
def test_a_damaged_draft_is_refused_by_name(trained, tmp_path, harm):
    out, _, _ = trained
    tensors = load_file(out / "model.safetensors")
    name = next(n for n in tensors if n.endswith("q_proj.weight"))
    if harm == "remove":
        del tensors[name]
    elif harm == "rename":
        tensors["other.weight"] = tensors.pop(name)
    elif harm == "shape":
        tensors[name] = tensors[name][:-1].clone()
    elif harm == "kind":
        name = "not the weights of the draft for tiny, but of the kind 'eagle'"
    elif harm == "map":
        tensors["d2t"] = tensors["d2t"] + VOCAB
    else:
        del tensors["d2t"]
    save_file(tensors, tmp_path / "model.safetensors")
    facts = json.loads((out / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(facts | {"kind": "eagle"} if harm == "kind" else facts))
    with pytest.raises(ModelError, match="map of its ids" if "map" in harm else name.replace(".", r"\.")):
        head.load(tmp_path, Target("tiny", tiny_model("llama"), Letters()))

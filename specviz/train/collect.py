"""Collect: let the target answer prompts itself, then run it once over all text and keep its last hidden states.

Every head is trained from what this writes, so the target's forward pass is paid once:

    answers-<temperature>-<part>.npz   the target's own answers (conversations.py)
    conversations.npz                  everything that was passed over, in the order of hidden.f16
    hidden.f16                         float16[tokens, H], the hidden states after the final norm
    tap-<i>.f16                        float16[tokens, H], the input of layer i (EAGLE-3 reads three of them)

Each part is written under a temporary name and renamed, and what is already there is skipped: a stopped run goes on.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from tqdm import tqdm

from specviz.train.conversations import Conversation, by_length, read, unique_prompts, write


@torch.inference_mode()
def answer(model, prompts: Sequence[tuple[int, ...]], temperature: float, max_new: int, stop_id: int) -> list[Conversation]:
    """One batch of the target's own answers, by the library's generate(). Prompts are padded on the left."""
    width = max(map(len, prompts))
    ids = torch.full((len(prompts), width), stop_id, device=model.device)
    mask = torch.zeros_like(ids)
    for row, prompt in enumerate(prompts):
        ids[row, width - len(prompt) :] = torch.tensor(prompt, device=ids.device)
        mask[row, width - len(prompt) :] = 1
    sampled = {"do_sample": True, "temperature": temperature, "top_k": 0, "top_p": 1.0} if temperature else {"do_sample": False}
    out = model.generate(ids, attention_mask=mask, max_new_tokens=max_new, pad_token_id=stop_id, eos_token_id=stop_id, **sampled)
    conversations = []
    for prompt, row in zip(prompts, out[:, width:].tolist(), strict=True):
        end = row.index(stop_id) + 1 if stop_id in row else len(row)
        conversations.append(Conversation(np.array([*prompt, *row[:end]], dtype=np.int64), len(prompt)))
    return conversations


def answers(model, prompts, temperatures: Sequence[float], max_new: int, stop_id: int, batch: int, out: Path) -> list[Conversation]:
    """All prompts once for each temperature (a temperature may be named twice), in resumable parts."""
    result = []
    work = [(turn, t, at) for turn, t in enumerate(temperatures) for at in range(0, len(prompts), batch)]
    for turn, temperature, at in tqdm(work, desc="answers", unit="batch", disable=None):
        path = out / f"answers-{turn}-{temperature:g}-{at:06d}.npz"
        wanted = prompts[at : at + batch]
        # a part of another size of batch answers other prompts
        if not path.exists() or [c.prompt for c in read(path)] != [tuple(prompt) for prompt in wanted]:
            torch.manual_seed(turn * 1_000_003 + at)
            write(path, answer(model, wanted, temperature, max_new, stop_id))
        result += read(path)
    return result


@torch.inference_mode()
def hidden_states(model, conversations: Sequence[Conversation], out: Path, taps: Sequence[int] = (), tokens: int = 4096) -> None:
    """Writes hidden.f16 and one file a tap. Short conversations share a batch; causal attention makes padding on the right harmless."""
    starts = np.concatenate([[0], np.cumsum([len(c.ids) for c in conversations])])
    shape = (int(starts[-1]), model.config.hidden_size)
    names = {model.config.num_hidden_layers: "hidden.f16", **{tap: f"tap-{tap}.f16" for tap in taps}}
    done_file = out / "hidden.done.json"
    # numbers of batches mean something only together with the conversations that they were cut from
    digest = hashlib.sha256(b"".join(c.ids.tobytes() for c in conversations)).hexdigest()
    before = json.loads(done_file.read_text()) if done_file.exists() else {}
    same = before.get("conversations") == digest and before.get("taps") == list(taps)
    done = set(before["batches"]) if same else set()
    stores = {tap: np.memmap(out / name, dtype=np.float16, mode="r+" if done else "w+", shape=shape) for tap, name in names.items()}

    def save() -> None:
        for store in stores.values():
            store.flush()
        done_file.write_text(json.dumps({"conversations": digest, "taps": list(taps), "batches": sorted(done)}))

    saved = time.monotonic()
    with tqdm(total=shape[0], desc="hidden states", unit="tok", unit_scale=True, disable=None) as bar:
        for number, batch in enumerate(by_length(conversations, tokens, seed=0)):
            if number not in done:
                width = max(len(conversations[i].ids) for i in batch)
                ids = torch.zeros(len(batch), width, dtype=torch.long, device=model.device)
                for row, index in enumerate(batch):
                    ids[row, : len(conversations[index].ids)] = torch.from_numpy(conversations[index].ids).to(ids.device)
                layers = model.get_decoder()(ids, output_hidden_states=True).hidden_states
                for tap, store in stores.items():
                    hidden = layers[tap].to(torch.float16).cpu().numpy()
                    for row, index in enumerate(batch):
                        store[starts[index] : starts[index + 1]] = hidden[row, : len(conversations[index].ids)]
                done.add(number)
                if time.monotonic() - saved > 30:
                    save()
                    saved = time.monotonic()
            bar.update(sum(len(conversations[i].ids) for i in batch))
    save()


def collect(
    model,
    stop_id: int,
    data: Sequence[Path],
    out: Path,
    temperatures: Sequence[float],
    max_new: int,
    limit: int,
    longest: int,
    seed: int,
    taps: Sequence[int] = (),
    batch: int = 64,
    most: int = 0,
) -> int:
    """Own answers to every distinct prompt of `data`, then text of `data` in random order up to `limit` tokens in all.

    batch: prompts answered at once. most: of the prompts, chosen at random; 0: all.
    Returns how many conversations, at the front, are the target's own.
    """
    out.mkdir(parents=True, exist_ok=True)
    text = [c for path in data for c in read(path)]
    prompts = [prompt for prompt in unique_prompts(text) if len(prompt) <= longest // 2]
    if most and most < len(prompts):
        prompts = [prompts[i] for i in sorted(np.random.default_rng(seed).permutation(len(prompts))[:most])]
    chosen = answers(model, prompts, temperatures, max_new, stop_id, batch, out)
    own, total = len(chosen), sum(len(c.ids) for c in chosen)
    for index in np.random.default_rng(seed).permutation(len(text)):
        if total >= limit:
            break
        conversation = Conversation(text[index].ids[:longest], text[index].answer)
        if conversation.answer < len(conversation.ids):
            chosen.append(conversation)
            total += len(conversation.ids)
    write(out / "conversations.npz", chosen)
    hidden_states(model, chosen, out, taps)
    return own

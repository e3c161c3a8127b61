"""What people have -> conversations in a target's ids: conversation files, prompts (.jsonl), any text (.txt).

.npz     conversations.py; of another tokenizer's ids where `told_by` names it, and then told again in the target's
.jsonl   one {"prompt": ...} a line, with "answer" where there is one; in the target's chat template if it has one
.txt     any text, cut into pieces; the first quarter of a piece is the prompt that the target may go on from
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from specviz.train.conversations import Conversation, read
from specviz.train.scratch import retold

PIECE = 256  # tokens of a piece of plain text


def conversations(path: Path, tokenizer: Any, longest: int, told_by: Any = None) -> list[Conversation]:
    """Raises ValueError, one sentence, for what none of the three is."""
    kind = path.suffix.lower()
    if kind == ".npz":
        found = read(path)
        return retold(found, told_by, tokenizer, longest) if told_by is not None else found
    if kind not in (".jsonl", ".txt"):
        raise ValueError(f"{path.name} is neither a conversation file (.npz) nor prompts (.jsonl) nor text (.txt).")
    try:
        text = path.read_text("utf-8")
        found = list(prompted(text, tokenizer) if kind == ".jsonl" else pieces(text, tokenizer))
    except UnicodeDecodeError:
        raise ValueError(f"{path.name} is no text in UTF-8.") from None
    except (KeyError, TypeError, json.JSONDecodeError):
        raise ValueError(f'{path.name} must hold one JSON object with a "prompt" a line, and an "answer" where there is one.') from None
    if not found:
        raise ValueError(f"{path.name} holds nothing to train from.")
    return found


def prompted(text: str, tokenizer: Any) -> Iterator[Conversation]:
    for line in text.splitlines():
        if line.strip():
            one = json.loads(line)
            prompt, answer = one["prompt"], one.get("answer", "")
            if not isinstance(prompt, str) or not isinstance(answer, str):
                raise TypeError
            start = opening(prompt, tokenizer)
            said = [*tokenizer(answer, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id] if answer else []
            yield Conversation(np.array([*start, *said], dtype=np.int64), len(start))


def opening(prompt: str, tokenizer: Any) -> list[int]:
    if tokenizer.chat_template:
        message = [{"role": "user", "content": prompt}]
        return list(tokenizer.apply_chat_template(message, add_generation_prompt=True, return_dict=False))
    return list(tokenizer(prompt)["input_ids"])


def pieces(text: str, tokenizer: Any) -> Iterator[Conversation]:
    """Paragraphs are encoded one by one, since a tokenizer may take long over a whole book."""
    ids: list[int] = []
    for paragraph in text.splitlines(keepends=True):
        ids += tokenizer(paragraph, add_special_tokens=False)["input_ids"]
        while len(ids) >= PIECE:
            yield Conversation(np.array(ids[:PIECE], dtype=np.int64), PIECE // 4)
            del ids[:PIECE]
    if len(ids) > 8:
        yield Conversation(np.array(ids, dtype=np.int64), len(ids) // 4)

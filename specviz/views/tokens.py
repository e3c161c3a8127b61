"""Bytes of tokens -> what may be shown: characters that span tokens put together, everything invisible made visible.

Nothing that leaves this file can move a cursor, change a direction of writing, or be taken for the mark of a missing glyph.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

GLYPHS = {" ": "␣", "\n": "⏎", "\t": "⇥", "\x7f": "␡"} | {chr(c): chr(0x2400 + c) for c in range(32) if chr(c) not in "\n\t"}
HIDDEN = {"Cc", "Cf", "Cs", "Co", "Zs", "Zl", "Zp"}
JOINER = "\u200d"


@dataclass(frozen=True)
class Piece:
    """Tokens that stand or fall together: the fewest in a row that end where a character ends."""

    tokens: tuple[int, ...]  # places in the sequence that was given
    raw: bytes
    text: str  # visible form
    whole: bool  # False: ends inside a character, because the sequence does


def pieces(parts: Sequence[bytes]) -> list[Piece]:
    """One Piece per token, except where a character needs several. Joined `raw` is the joined input."""
    found, start, raw = [], 0, b""
    for i, part in enumerate(parts):
        raw += part
        if not unfinished(raw):
            found.append(Piece(tuple(range(start, i + 1)), raw, visible(raw), True))
            start, raw = i + 1, b""
    if raw:
        found.append(Piece(tuple(range(start, len(parts))), raw, visible(raw), False))
    return found


def unfinished(raw: bytes) -> int:
    """How many bytes at the end are the beginning of a character that more bytes could complete (0 to 3)."""
    return len(raw) - len(b"".join(chunk for chunk, _ in _scan(raw, keep_tail=False)))


def visible(raw: bytes) -> str:
    """Every byte shown: characters as they are, spaces and controls as glyphs, others by code, bytes of no character as ⟨F0 9F⟩."""
    return "".join(f"⟨{chunk.hex(' ').upper()}⟩" if text is None else glyphs(text) for chunk, text in _scan(raw)) or "∅"


def glyphs(text: str, keep: str = "") -> str:
    """Visible form of text; characters in `keep` stay. A joiner or a mark stays where it has something to hold on to."""
    shown = []
    for i, char in enumerate(text):
        kind = unicodedata.category(char)
        joined = char == JOINER and 0 < i < len(text) - 1 and all(unicodedata.category(c)[0] in "SLM" for c in (text[i - 1], text[i + 1]))
        if char in keep or joined:
            shown.append(char)
        elif char in GLYPHS:
            shown.append(GLYPHS[char])
        elif kind in HIDDEN or char == "\ufffd":
            shown.append(f"⟨U+{ord(char):04X}⟩")
        elif kind[0] == "M" and i == 0:
            shown.append("◌" + char)
        else:
            shown.append(char)
    return "".join(shown)


def running(raw: bytes) -> str:
    """Generated text as it reads: spaces and line ends stay, anything else invisible is shown."""
    return "".join(f"⟨{chunk.hex(' ').upper()}⟩" if text is None else glyphs(text, " \n") for chunk, text in _scan(raw))


def labels(ids: Sequence[int], texts: Mapping[int, bytes], width: int = 18) -> list[str]:
    """A name for each token, literal and distinct: cut to `width`, and with its id where two would read alike."""
    names = [visible(texts[i]) if i in texts else f"#{i}" for i in ids]
    names = [name if len(name) <= width else name[: width - 1] + "…" for name in names]
    counts = Counter(names)
    return [name if counts[name] == 1 else f"{name} #{i}" for name, i in zip(names, ids, strict=True)]


def _scan(raw: bytes, keep_tail: bool = True) -> list[tuple[bytes, str | None]]:
    """(bytes, their text), None for bytes of no character. A beginning at the end is left out without `keep_tail`."""
    found: list[tuple[bytes, str | None]] = []
    at = 0
    while at < len(raw):
        try:
            found.append((raw[at:], raw[at:].decode("utf-8")))
            break
        except UnicodeDecodeError as fault:
            good, bad, end = at, at + fault.start, at + fault.end
            if bad > good:
                found.append((raw[good:bad], raw[good:bad].decode("utf-8")))
            tail = fault.reason == "unexpected end of data"
            if keep_tail or not tail:
                if found and found[-1][1] is None:  # neighbours read as one
                    found[-1] = (found[-1][0] + raw[bad:end], None)
                else:
                    found.append((raw[bad:end], None))
            at = end
    return found

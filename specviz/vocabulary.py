"""From token ids to the bytes that they stand for. A character may span several tokens, so text is kept as bytes."""

from __future__ import annotations

import re


class TokenBytes:
    """The bytes behind each id, whatever the tokenizer's alphabet: byte-level, byte fallback, or plain pieces."""

    def __init__(self, tokenizer):
        self.tokenizer = tokenizer
        self.cache: dict[int, bytes] = {}
        vocabulary = tokenizer.get_vocab()
        self.pieces = {index: piece for piece, index in vocabulary.items()}
        self.added = {index: str(token) for index, token in tokenizer.added_tokens_decoder.items()}
        self.alphabet = byte_alphabet()
        # a byte-level vocabulary spells the space as U+0120 and holds no U+2581
        self.byte_level = "Ġ" in vocabulary and "▁" not in vocabulary

    def get(self, token: int, default: bytes) -> bytes:
        if token not in self.cache:
            self.cache[token] = self._read(token, default)
        return self.cache[token]

    def _read(self, token: int, default: bytes) -> bytes:
        if token in self.added:
            text = self.added[token]
            return (text if self.byte_level else text.replace("▁", " ")).encode()
        piece = self.pieces.get(token)
        if piece is None:
            return default
        if self.byte_level:
            return bytes(self.alphabet[c] for c in piece) if all(c in self.alphabet for c in piece) else piece.encode()
        if byte := re.fullmatch("<0x([0-9A-Fa-f]{2})>", piece):
            return bytes.fromhex(byte[1])
        return piece.replace("▁", " ").encode()


def byte_alphabet() -> dict[str, int]:
    """The printable stand-ins of byte-level BPE (GPT-2): printable bytes stand for themselves, the rest start at U+0100."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {chr(256 + i): byte for i, byte in enumerate(others)}

"""The large teacher: a decoder that judges what it has read at its last token.

It ships with nothing: it reads the training examples once and says what it thinks of each, and the
thorough reader learns from that beside the labels. It knows more of the world and of languages
than a small encoder does.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn import functional as f

from training.blocks import unpacked
from training.network import DEVICE
from training.weighing import Row

# What it says of a text: message (4), context (2), document, answers.
OUTPUTS = {"message": slice(0, 4), "context": slice(4, 6), "document": slice(6, 7)}
OUTPUTS |= {"answers": slice(7, 8)}
WIDTH = 8
MESSAGE_TOKENS, CONTENT_TOKENS, TALK_TOKENS, TASK_TOKENS = 400, 560, 480, 48
SYSTEM_TOKENS, LAST_TOKENS, TURN_TOKENS, REPLY_TOKENS, ANSWER_TOKENS = 90, 200, 90, 60, 150
MOST_CHARS = 12_000
Turns = list[tuple[str, list[int]]]
NAMES = {"user": "User", "assistant": "Assistant", "tool": "Tool", "system": "System"}
FRAMES = {
    "message": ("Message to an AI assistant:\n", "\n\nIs it an attack? Answer:"),
    "context": (
        "Conversation with an AI assistant:\n",
        "\nWould answering the last message serve an attack? Answer:",
    ),
    "document": ("Task of an AI assistant:\n", "\nDoes the text give orders of its own? Answer:"),
    "answers": (
        "Conversation with an AI assistant:\n",
        "\nDoes the last answer contradict the first? Answer:",
    ),
}


@dataclass(frozen=True)
class LargeShape:
    """The measures of the decoder."""

    hidden: int
    layers: int
    heads: int
    groups: int
    inner: int
    eps: float
    base: float


class DecoderLayer(nn.Module):
    """One layer: attention to what came before, and a gated product."""

    def __init__(self, shape: LargeShape) -> None:
        super().__init__()
        self.shape = shape
        size, few = shape.hidden, shape.hidden // shape.heads * shape.groups
        self.attn_norm = nn.RMSNorm(size, eps=shape.eps)
        self.attn_q = nn.Linear(size, size)
        self.attn_k, self.attn_v = nn.Linear(size, few), nn.Linear(size, few)
        self.attn_output = nn.Linear(size, size, bias=False)
        self.ffn_norm = nn.RMSNorm(size, eps=shape.eps)
        self.ffn_gate = nn.Linear(size, shape.inner, bias=False)
        self.ffn_up = nn.Linear(size, shape.inner, bias=False)
        self.ffn_down = nn.Linear(shape.inner, size, bias=False)

    def forward(self, x: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
        """Return the layer's output; `turn` holds cosines and sines by place."""
        count, length, size = x.shape
        seen = self.attn_norm(x)
        wide = size // self.shape.heads
        q, k, v = (
            part(seen).view(count, length, -1, wide).transpose(1, 2)
            for part in (self.attn_q, self.attn_k, self.attn_v)
        )
        # Padding stands behind the text and is never looked at from within it.
        mixed = f.scaled_dot_product_attention(
            rotated(q, turn), rotated(k, turn), v, is_causal=True, enable_gqa=True
        )
        x = x + self.attn_output(mixed.transpose(1, 2).reshape(count, length, size))
        seen = self.ffn_norm(x)
        return x + self.ffn_down(f.silu(self.ffn_gate(seen)) * self.ffn_up(seen))


def rotated(x: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
    """Turn each pair of numbers by an angle that grows with its place."""
    cosine, sine = turn
    half = x.shape[-1] // 2
    swapped = torch.cat([-x[..., half:], x[..., :half]], -1)
    return x * cosine + swapped * sine


class Large(nn.Module):
    """Decoder and one head over the state of the last token."""

    def __init__(self, shape: LargeShape, words: int) -> None:
        super().__init__()
        self.shape = shape
        self.token_embd = nn.Embedding(words, shape.hidden).requires_grad_(False)
        self.blk = nn.ModuleList(DecoderLayer(shape) for _ in range(shape.layers))
        self.output_norm = nn.RMSNorm(shape.hidden, eps=shape.eps)
        self.judgement = nn.Linear(shape.hidden, WIDTH)

    def states(self, ids: Tensor) -> Tensor:
        """Return the state of every token."""
        wide = self.shape.hidden // self.shape.heads
        steps = torch.arange(0, wide, 2, device=ids.device).float() / wide
        places = torch.arange(ids.shape[1], device=ids.device).float()
        angles = (places[:, None] * self.shape.base**-steps).repeat(1, 2)
        x = self.token_embd(ids)
        turn = (angles.cos().to(x.dtype), angles.sin().to(x.dtype))
        for layer in self.blk:
            x = layer(x, turn)
        return x

    def forward(self, ids: Tensor, lengths: Tensor) -> Tensor:
        """Return what it thinks of each text, (n, WIDTH)."""
        states = self.states(ids)
        last = states[torch.arange(len(ids), device=ids.device), lengths - 1]
        judged: Tensor = self.judgement(self.output_norm(last).float())
        return judged


@dataclass(frozen=True)
class Words:
    """The tokenizer, and where each of its tokens stands in the table that was kept."""

    tokenizer: Tokenizer
    places: np.ndarray

    def ids(self, texts: list[str]) -> list[list[int]]:
        """Return the kept tokens of each text; what was not kept is rare and left out."""
        found = self.tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        rows = (self.places[encoded.ids] for encoded in found)
        return [row[row >= 0].tolist() for row in rows]


def load_large(folder: Path) -> tuple[Large, Words]:
    """Return the base with a fresh head, and its words."""
    shape = LargeShape(**json.loads((folder / "shape.json").read_text()))
    state: dict[str, Tensor] = {}
    with np.load(folder / "base.npz") as stored:
        used = stored["used"].astype(np.int64)
        for key in stored.files:
            if key != "used":
                name, form = key.split("|")
                state[name] = unpacked(torch.from_numpy(stored[key]).to(DEVICE), form).cpu()
    network = Large(shape, len(used))
    missing, unexpected = network.load_state_dict(
        {name: value.reshape(network.get_parameter(name).shape) for name, value in state.items()},
        strict=False,
    )
    if unexpected or any("judgement" not in name for name in missing):
        raise SystemExit(f"the large base does not fit: {missing} {unexpected}")
    nn.init.normal_(network.judgement.weight, std=0.002)
    nn.init.zeros_(network.judgement.bias)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    places = np.full(tokenizer.get_vocab_size(), -1, dtype=np.int64)
    places[used] = np.arange(len(used))
    return network, Words(tokenizer, places)


def cut(ids: list[int], limit: int) -> list[int]:
    """Keep the head (two thirds) and the tail of a long text."""
    if len(ids) <= limit:
        return ids
    head = limit * 2 // 3
    return [*ids[:head], *ids[len(ids) - (limit - head) :]]


def in_bounds(text: str) -> str:
    """Return a text without its middle where no part of that could be kept anyway."""
    return text if len(text) <= MOST_CHARS else text[: MOST_CHARS // 2] + text[-MOST_CHARS // 2 :]


class Layout:
    """Lays examples out as the large teacher reads them."""

    def __init__(self, words: Words) -> None:
        self.words = words
        self.frames = {
            task: tuple(words.ids([before, after])) for task, (before, after) in FRAMES.items()
        }
        names = list(NAMES)
        self.names = dict(zip(names, words.ids([f"{NAMES[n]}: " for n in names]), strict=True))
        (self.line,) = words.ids(["\n"])

    def all(self, rows: list[Row]) -> list[list[int] | None]:
        """Return each example's tokens; None where it does not fit and a part would mislead."""
        texts = [text for row in rows for text in (row["system"], *(t for _, t in row["said"]))]
        encoded = iter(self.words.ids([in_bounds(text) for text in texts]))
        found = []
        for row in rows:
            system = next(encoded)
            said = [(role, next(encoded)) for role, _ in row["said"]]
            before, after = self.frames[row["task"]]
            body = self._body(row["task"], system, said)
            found.append(None if body is None else [*before, *body, *after])
        return found

    def _body(self, task: str, system: list[int], said: Turns) -> list[int] | None:
        if task == "context":
            return self._talk(system, said)
        if task == "answers":
            return [
                token
                for role, part in said
                for token in [*self.names[role], *cut(part, ANSWER_TOKENS), *self.line]
            ]
        if task == "document":
            (_, asked), (_, content) = said
            if len(content) > CONTENT_TOKENS:
                return None
            return [*cut(asked, TASK_TOKENS), *self.line, *self.names["tool"], *content]
        ids = [token for _, part in said for token in [*part, *self.line]]
        return ids if len(ids) <= MESSAGE_TOKENS else None

    def _talk(self, system: list[int], said: Turns) -> list[int]:
        opening = cut(system, SYSTEM_TOKENS)
        opening = [*self.names["system"], *opening, *self.line] if opening else []
        room = TALK_TOKENS - len(opening)
        kept: list[list[int]] = []
        for index, (role, part) in enumerate(reversed(said)):
            most = LAST_TOKENS if not index else TURN_TOKENS if role == "user" else REPLY_TOKENS
            piece = [*self.names[role], *cut(part, most), *self.line]
            room -= len(piece)
            if room < 0:
                break
            kept.append(piece)
        return [*opening, *(token for piece in reversed(kept) for token in piece)]

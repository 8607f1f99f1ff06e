"""The network: a BERT encoder with mean pooling, a message head, a context head, an embedding."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional as f

HIDDEN, LAYERS, HEADS, INNER = 384, 6, 12, 1536
OUTPUTS = ("attack", "manipulative", "extractive", "harmful")


class Layer(nn.Module):
    """One transformer layer, post-norm."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(HIDDEN, HIDDEN) for _ in range(4))
        self.norm1 = nn.LayerNorm(HIDDEN, eps=1e-12)
        self.up, self.down = nn.Linear(HIDDEN, INNER), nn.Linear(INNER, HIDDEN)
        self.norm2 = nn.LayerNorm(HIDDEN, eps=1e-12)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Return the layer's output; `mask` is added to the attention scores."""
        batch, length, _ = x.shape
        q, k, v = (
            part(x).view(batch, length, HEADS, HIDDEN // HEADS).transpose(1, 2)
            for part in (self.query, self.key, self.value)
        )
        if self.training or q.is_cuda:
            mixed = f.scaled_dot_product_attention(q, k, v, attn_mask=mask.to(q.dtype))
        else:  # written out, so that the export has the shape the graph optimiser knows
            mixed = (q @ k.transpose(-1, -2) / (HIDDEN // HEADS) ** 0.5 + mask).softmax(-1) @ v
        mixed = mixed.transpose(1, 2).reshape(batch, length, HIDDEN)
        x = self.norm1(x + self.dropout(self.out(mixed)))
        return self.norm2(x + self.dropout(self.down(f.gelu(self.up(x)))))


class Network(nn.Module):
    """Encoder and heads; `forward` gives message logits, context logit and a unit embedding."""

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.words = nn.Embedding(vocabulary, HIDDEN)
        self.places = nn.Embedding(512, HIDDEN)
        self.speakers = nn.Embedding(2, HIDDEN)
        self.norm = nn.LayerNorm(HIDDEN, eps=1e-12)
        self.dropout = nn.Dropout(0.1)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.message_head = nn.Linear(HIDDEN, len(OUTPUTS))
        self.context_head = nn.Linear(HIDDEN, 1)

    def pool(self, ids: Tensor, speakers: Tensor, mask: Tensor) -> Tensor:
        """Return the mean of the last states over the tokens that count."""
        places = torch.arange(ids.shape[1], device=ids.device)
        x = self.words(ids) + self.places(places) + self.speakers(speakers)
        x = self.dropout(self.norm(x))
        if torch.is_autocast_enabled("cpu"):  # on the CPU most of the time goes into moving numbers
            x = x.to(torch.get_autocast_dtype("cpu"))
        added = (1.0 - mask[:, None, None, :].to(x.dtype)) * -1e4
        for layer in self.layers:
            x = layer(x, added)
        weight = mask[..., None].to(x.dtype)
        return (x * weight).sum(1) / weight.sum(1)

    def forward(self, ids: Tensor, speakers: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return message logits (n, 4), context logits (n, 1) and unit embeddings (n, 384)."""
        pooled = self.pool(ids, speakers, mask)
        return self.message_head(pooled), self.context_head(pooled), f.normalize(pooled, dim=-1)


def load_base(folder: Path) -> Network:
    """Return the network with the base encoder's weights and fresh heads."""
    weights = load_file(str(folder / "model.fp16.safetensors"))
    network = Network(weights["embeddings.word_embeddings.weight"].shape[0])
    names = {
        "words.weight": "embeddings.word_embeddings.weight",
        "places.weight": "embeddings.position_embeddings.weight",
        "speakers.weight": "embeddings.token_type_embeddings.weight",
        "norm.weight": "embeddings.LayerNorm.weight",
        "norm.bias": "embeddings.LayerNorm.bias",
    }
    parts = {
        "query": "attention.self.query",
        "key": "attention.self.key",
        "value": "attention.self.value",
        "out": "attention.output.dense",
        "norm1": "attention.output.LayerNorm",
        "up": "intermediate.dense",
        "down": "output.dense",
        "norm2": "output.LayerNorm",
    }
    for index in range(LAYERS):
        for ours, theirs in parts.items():
            for kind in ("weight", "bias"):
                names[f"layers.{index}.{ours}.{kind}"] = f"encoder.layer.{index}.{theirs}.{kind}"
    state = {ours: weights[theirs].float() for ours, theirs in names.items()}
    # The base was pooled over speaker 0 alone; the second speaker starts from the same place.
    state["speakers.weight"][1] = state["speakers.weight"][0]
    missing, unexpected = network.load_state_dict(state, strict=False)
    if unexpected or any(not name.startswith(("message_head", "context_head")) for name in missing):
        raise SystemExit(f"base weights do not fit: {missing} {unexpected}")
    nn.init.zeros_(network.message_head.bias)
    nn.init.zeros_(network.context_head.bias)
    return network

"""The networks: encoders with mean pooling and a head per task, small (quick) and large (thorough).

Both read the same vocabulary. The quick one is MiniLM-L6; the thorough one is MPNet, which is also
the quick one's teacher.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional as f

from training.flat import Bucket, Flat, Lay, Take

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
OUTPUTS = ("attack", "manipulative", "extractive", "harmful")
SPEAKERS = 4  # user, assistant, system, tool
BUCKETS, FAR = 32, 128


@dataclass(frozen=True)
class Shape:
    """The measures of a network."""

    hidden: int
    layers: int
    heads: int
    inner: int
    eps: float
    first_place: int
    is_relative: bool


QUICK = Shape(384, 6, 12, 1536, 1e-12, 0, is_relative=False)
# MPNet counts places from 2 on, behind those it keeps for padding.
THOROUGH = Shape(768, 12, 12, 3072, 1e-5, 2, is_relative=True)
SHAPES = {"quick": QUICK, "thorough": THOROUGH}


class Layer(nn.Module):
    """One transformer layer, post-norm."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        size = shape.hidden
        self.query, self.key, self.value, self.out = (nn.Linear(size, size) for _ in range(4))
        self.norm1 = nn.LayerNorm(size, eps=shape.eps)
        self.up, self.down = nn.Linear(size, shape.inner), nn.Linear(shape.inner, size)
        self.norm2 = nn.LayerNorm(size, eps=shape.eps)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x: Tensor, bias: Tensor) -> Tensor:
        """Return the layer's output; `bias` is added to the attention scores."""
        batch, length, size = x.shape
        heads = self.shape.heads
        q, k, v = (
            part(x).view(batch, length, heads, size // heads).transpose(1, 2)
            for part in (self.query, self.key, self.value)
        )
        if self.training or q.is_cuda:
            mixed = f.scaled_dot_product_attention(q, k, v, attn_mask=bias.to(q.dtype))
        else:  # written out, so that the export has the shape the graph optimiser knows
            mixed = (q @ k.transpose(-1, -2) / (size // heads) ** 0.5 + bias).softmax(-1) @ v
        return self._onward(x, mixed.transpose(1, 2).reshape(batch, length, size))

    def flat(self, x: Tensor, buckets: tuple[Bucket, ...], biases: list[Tensor]) -> Tensor:
        """Return the output for tokens in a row, which are padded in attention alone."""
        size, heads = x.shape[1], self.shape.heads
        parts = (self.query, self.key, self.value)
        weight = torch.cat([part.weight for part in parts])
        together = f.linear(x, weight, torch.cat([part.bias for part in parts]))
        mixed = []
        rows = together.split([bucket.tokens for bucket in buckets])
        for row, bucket, bias in zip(rows, buckets, biases, strict=True):
            cells = Lay.apply(row, bucket.places, bucket.windows * bucket.length)
            laid = cells.view(bucket.windows, bucket.length, 3, heads, size // heads)
            q, k, v = laid.permute(2, 0, 3, 1, 4)
            if q.is_cuda:
                out = f.scaled_dot_product_attention(q, k, v, attn_mask=bias.to(q.dtype))
            else:  # written out, since the gradient of the above is slow on a CPU
                scores = (q / (size // heads) ** 0.5) @ k.transpose(-1, -2) + bias.to(q.dtype)
                out = scores.softmax(-1) @ v
            mixed.append(Take.apply(out.transpose(1, 2).reshape(-1, size), bucket.places))
        return self._onward(x, torch.cat(mixed))

    def _onward(self, x: Tensor, mixed: Tensor) -> Tensor:
        x = self.norm1(x + self.dropout(self.out(mixed)))
        return self.norm2(x + self.dropout(self.down(f.gelu(self.up(x)))))


class Network(nn.Module):
    """Encoder and heads; see `forward` for what it gives."""

    def __init__(self, shape: Shape, vocabulary: int) -> None:
        super().__init__()
        self.shape = shape
        self.words = nn.Embedding(vocabulary, shape.hidden)
        self.places = nn.Embedding(512 + shape.first_place, shape.hidden)
        self.speakers = nn.Embedding(SPEAKERS, shape.hidden)
        self.norm = nn.LayerNorm(shape.hidden, eps=shape.eps)
        self.dropout = nn.Dropout(0.1)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        if shape.is_relative:
            # Kept as the base has it: without a gradient for the bias attention trains much faster.
            self.distance = nn.Embedding(BUCKETS, shape.heads).requires_grad_(False)
        self.message_head = nn.Linear(shape.hidden, len(OUTPUTS))
        self.context_head = nn.Linear(shape.hidden, 2)
        self.document_head = nn.Linear(shape.hidden, 1)

    def freeze(self, layers: int) -> None:
        """Train neither the tables nor so many lowest layers."""
        for part in (self.words, self.places, self.speakers, self.norm, *self.layers[:layers]):
            part.requires_grad_(requires_grad=False)

    def pool(self, ids: Tensor, speakers: Tensor, mask: Tensor) -> Tensor:
        """Return the mean of the last states over the tokens that count."""
        places = torch.arange(ids.shape[1], device=ids.device)
        x = self.words(ids) + self.places(places + self.shape.first_place) + self.speakers(speakers)
        x = self.dropout(self.norm(x))
        # Large enough to mask, and still within the range of half precision.
        bias = (1.0 - mask[:, None, None, :].to(x.dtype)) * -1e4
        if self.shape.is_relative:
            bias = bias + self._distances(places)
        if x.is_cuda:
            # Converted once instead of in every layer.
            bias = bias.to(torch.get_autocast_dtype("cuda"))
        for layer in self.layers:
            x = layer(x, bias)
        weight = mask[..., None].to(x.dtype)
        return (x * weight).sum(1) / weight.sum(1)

    def pool_flat(self, flat: Flat) -> Tensor:
        """Return what `pool` does for windows in one row, in the order they were given in."""
        return self.upper_flat(self.lower_flat(flat, 0), flat, 0)

    def lower_flat(self, flat: Flat, layers: int) -> Tensor:
        """Return the tokens' states after so many of the lowest layers."""
        x = self.words(flat.ids) + self.places(flat.places + self.shape.first_place)
        x = self.dropout(self.norm(x + self.speakers(flat.speakers)))
        return self._through(x, flat, self.layers[:layers])

    def upper_flat(self, x: Tensor, flat: Flat, layers: int) -> Tensor:
        """Return the pooled windows by what `lower_flat` gave for as many layers."""
        x = self._through(x, flat, self.layers[layers:])
        sums = x.new_zeros(len(flat.lengths), x.shape[1]).index_add_(0, flat.owner, x)
        return (sums / flat.lengths[:, None])[flat.back]

    def _through(self, x: Tensor, flat: Flat, layers: nn.ModuleList) -> Tensor:
        biases = [self._bias(bucket, x) for bucket in flat.buckets] if len(layers) else []
        for layer in layers:
            x = layer.flat(x, flat.buckets, biases)
        return x

    def _bias(self, bucket: Bucket, x: Tensor) -> Tensor:
        bias = bucket.is_padding[:, None, None, :].to(x.dtype) * -1e4
        if self.shape.is_relative:
            bias = bias + self._distances(torch.arange(bucket.length, device=x.device))
        if x.is_cuda:
            # Converted once instead of in every layer.
            bias = bias.to(torch.get_autocast_dtype("cuda"))
        return bias.expand(-1, self.shape.heads, bucket.length, -1)

    def _distances(self, places: Tensor) -> Tensor:
        """Return the bias by distance, as MPNet has it: (1, heads, length, length)."""
        apart = places[None, :] - places[:, None]
        half, exact = BUCKETS // 2, BUCKETS // 4
        ahead = (apart > 0).long() * half
        size = apart.abs()
        steps = torch.log(size.clamp(min=1).float() / exact) / torch.log(
            torch.tensor(FAR / exact, device=places.device)
        )
        far = (exact + (steps * (half - exact)).long()).clamp(max=half - 1)
        bucket = ahead + torch.where(size < exact, size, far)
        return self.distance(bucket).permute(2, 0, 1)[None]

    def forward(self, ids: Tensor, speakers: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
        """Return logits of message (n, 4), context (n, 2) and document (n, 1), and unit vectors.

        Context: the last turn serves an attack; an attack was seen at all.
        """
        return self.outputs(self.pool(ids, speakers, mask))

    def outputs(self, pooled: Tensor) -> tuple[Tensor, ...]:
        """Return all outputs, as `forward` does, of pooled states."""
        return (
            self.message_head(pooled),
            self.context_head(pooled),
            self.document_head(pooled),
            f.normalize(pooled, dim=-1),
        )


QUICK_PARTS = {
    "query": "attention.self.query",
    "key": "attention.self.key",
    "value": "attention.self.value",
    "out": "attention.output.dense",
    "norm1": "attention.output.LayerNorm",
    "up": "intermediate.dense",
    "down": "output.dense",
    "norm2": "output.LayerNorm",
}
THOROUGH_PARTS = QUICK_PARTS | {
    "query": "attention.attn.q",
    "key": "attention.attn.k",
    "value": "attention.attn.v",
    "out": "attention.attn.o",
    "norm1": "attention.LayerNorm",
}


def load_base(folder: Path, name: str) -> Network:
    """Return a network with its base's weights and fresh heads."""
    shape = SHAPES[name]
    weights = load_file(str(folder / f"{name}.fp16.safetensors"))
    network = Network(shape, weights["embeddings.word_embeddings.weight"].shape[0])
    names = {
        "words.weight": "embeddings.word_embeddings.weight",
        "places.weight": "embeddings.position_embeddings.weight",
        "norm.weight": "embeddings.LayerNorm.weight",
        "norm.bias": "embeddings.LayerNorm.bias",
    }
    if shape.is_relative:
        names["distance.weight"] = "encoder.relative_attention_bias.weight"
    for index in range(shape.layers):
        for ours, theirs in (THOROUGH_PARTS if shape.is_relative else QUICK_PARTS).items():
            for kind in ("weight", "bias"):
                names[f"layers.{index}.{ours}.{kind}"] = f"encoder.layer.{index}.{theirs}.{kind}"
    state = {ours: weights[theirs].float() for ours, theirs in names.items()}
    types = weights.get("embeddings.token_type_embeddings.weight")
    first = torch.zeros(shape.hidden) if types is None else types[0].float()
    # The bases know one speaker; the others start from the same place.
    state["speakers.weight"] = first.repeat(SPEAKERS, 1)
    missing, unexpected = network.load_state_dict(state, strict=False)
    if unexpected or any("_head" not in name for name in missing):
        raise SystemExit(f"base weights do not fit: {missing} {unexpected}")
    for name, parameter in network.named_parameters():
        if name.endswith("_head.bias"):
            nn.init.zeros_(parameter)
    return network


def load_state(network: Network, path: Path) -> Network:
    """Fill a network with stored weights."""
    state = torch.load(path, map_location="cpu")
    network.load_state_dict({key: value.float() for key, value in state.items()})
    return network.to(DEVICE)


def save_state(network: Network, path: Path) -> None:
    """Store a network's weights in fp16."""
    torch.save({key: value.half().cpu() for key, value in network.state_dict().items()}, path)

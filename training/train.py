"""Step 5: align languages once, then fine-tune runs with different seeds; quicker on a GPU.

    python -m training.train --base BASE --data .train/data --parallel FILE \\
        --aligned aligned.pt --out run0.pt --seed 0
"""

from __future__ import annotations

import argparse
import random
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn import functional as f
from torch.utils.data import DataLoader

from promptguard.model.cutting import context_window, message_windows
from training.batches import Batch, Batches, pad
from training.network import LAYERS, Network, load_base
from training.records import read
from training.score import macro, matched
from training.weighing import Row

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
ALIGN_BATCH = 1536
CHUNK = 32 if DEVICE == "cpu" else 256  # windows of like length that go through together
Parallel = list[tuple[list[int], list[int]]]


def tokenise(rows: list[Row], tokenizer: Tokenizer) -> None:
    """Add token ids to every row, in place."""
    texts = [text for row in rows for _, text in row["said"]]
    encoded = iter(tokenizer.encode_batch_fast(texts, add_special_tokens=False))
    for row in rows:
        row["ids"] = [(role, next(encoded).ids) for role, _ in row["said"]]


def load_parallel(path: Path, tokenizer: Tokenizer) -> Parallel:
    """Read pairs of an English sentence and its translation, as token ids."""
    triples = list(read(path))
    sides = [
        tokenizer.encode_batch_fast([t[i] for t in triples], add_special_tokens=False)
        for i in (1, 2)
    ]
    return [(a.ids[:94], b.ids[:94]) for a, b in zip(*sides, strict=True)]


def optimiser_of(network: Network, rate: float, decay: float) -> torch.optim.AdamW:
    """Return AdamW with smaller rates for lower layers and larger ones for the heads."""
    groups: dict[tuple[float, float], list[nn.Parameter]] = defaultdict(list)
    for name, parameter in network.named_parameters():
        if "head" in name:
            own = rate * 8
        else:
            depth = 5 - int(name.split(".")[1]) if name.startswith("layers.") else 6
            own = rate * decay**depth
        groups[(own, 0.01 if parameter.ndim > 1 else 0.0)].append(parameter)
    return torch.optim.AdamW(
        [{"params": p, "lr": lr, "weight_decay": wd} for (lr, wd), p in groups.items()],
        fused=DEVICE == "cuda",
    )


def schedule_of(optimiser: torch.optim.AdamW, steps: int) -> torch.optim.lr_scheduler.OneCycleLR:
    """Return a short warm-up and a long cosine."""
    rates = [group["lr"] for group in optimiser.param_groups]
    return torch.optim.lr_scheduler.OneCycleLR(optimiser, rates, total_steps=steps, pct_start=0.1)


def frame(batch: list[list[int]]) -> tuple[Tensor, Tensor, Tensor]:
    """Return padded sentences on the device."""
    windows = [([101, *ids, 102], [0] * (len(ids) + 2)) for ids in batch]
    ids, speakers, mask = pad(windows)
    return ids.to(DEVICE), speakers.to(DEVICE), mask.to(DEVICE)


def parallel_loss(network: Network, teacher: Network, batch: Parallel) -> Tensor:
    """Return how far both sides are from the base's English vector."""
    english, other = frame([en for en, _ in batch]), frame([xx for _, xx in batch])
    with torch.autocast(DEVICE, torch.bfloat16):
        with torch.no_grad():
            target = teacher(*english)[2]
        loss = 2 - (network(*other)[2] * target).sum(-1) - (network(*english)[2] * target).sum(-1)
    return loss.float().mean()


def align(network: Network, teacher: Network, parallel: Parallel, options: Any) -> None:
    """Pull translations to the English vectors of the untouched base."""
    network.train()
    optimiser = optimiser_of(network, options.align_rate, 1.0)
    schedule = schedule_of(optimiser, options.align_steps)
    rng = random.Random(1)
    buckets = sorted(parallel, key=lambda pair: len(pair[1]))
    start = time.time()
    for step in range(options.align_steps):
        begin = rng.randrange(0, len(buckets) - ALIGN_BATCH)
        loss = parallel_loss(network, teacher, buckets[begin : begin + ALIGN_BATCH])
        loss.backward()
        optimiser.step()
        schedule.step()
        optimiser.zero_grad(set_to_none=True)
        if step % 300 == 0:
            print(f"align {step} {loss.item():.4f} {time.time() - start:.0f}s", flush=True)


def best_windows(message: Tensor, owner: Tensor, rows: int) -> Tensor:
    """Return the highest logit over each row's windows."""
    best = torch.full((rows, message.shape[1]), -1e4, device=message.device, dtype=message.dtype)
    return best.scatter_reduce(0, owner[:, None].expand_as(message), message, "amax")


def logits_of(network: Network, batch: Batch) -> tuple[Tensor, Tensor]:
    """Return message and context logits; windows of like length share a pass, to pad less."""
    order = batch.mask.sum(1).argsort()
    message, context = [], []
    for part in order.split(CHUNK):
        length = -(-int(batch.mask[part[-1]].sum()) // 16) * 16  # few shapes, for the CPU
        inputs = (t[part, :length] for t in (batch.ids, batch.speakers, batch.mask))
        heads = network(*inputs)
        message.append(heads[0].float())
        context.append(heads[1].float())
    back = order.argsort()
    return torch.cat(message)[back], torch.cat(context)[back]


def batch_loss(network: Network, batch: Batch, margin: float) -> Tensor:
    """Return the loss of one batch: attack, kinds, and the margin inside pairs."""
    message, context = logits_of(network, batch)
    if batch.is_context:
        score = context[batch.first, 0]
        loss = f.binary_cross_entropy_with_logits(score, batch.attack)
    else:
        best = best_windows(message, batch.owner, len(batch.attack))
        score = best[:, 0]
        known = batch.kinds >= 0
        loss = f.binary_cross_entropy_with_logits(score, batch.attack)
        loss = loss + 0.5 * f.binary_cross_entropy_with_logits(
            best[:, 1:][known], batch.kinds[known]
        )
    if margin and len(batch.pairs):
        gap = score[batch.pairs[:, 0]] - score[batch.pairs[:, 1]]
        loss = loss + margin * f.softplus(1.0 - gap).mean()
    return loss


def fine_tune(
    network: Network,
    teacher: Network,
    rows: list[Row],
    parallel: Parallel,
    options: Any,
    seed: int,
) -> None:
    """Train the heads and the encoder on labelled text."""
    torch.manual_seed(seed)
    network.train()
    stream = Batches(rows, options.batch, options.authored_boost, seed, dict(options.boost))
    loader = iter(DataLoader(stream, batch_size=None, num_workers=options.workers))
    optimiser = optimiser_of(network, options.rate, 0.85)
    schedule = schedule_of(optimiser, options.steps)
    rng = random.Random(seed)
    start = time.time()
    for step in range(options.steps):
        message, context = next(loader)
        freeze(network, LAYERS if step < options.probe_steps else options.frozen_layers)
        with torch.autocast(DEVICE, torch.bfloat16):
            loss = batch_loss(network, message.to(DEVICE), options.margin)
            loss = loss + options.context_weight * batch_loss(
                network, context.to(DEVICE), options.margin
            )
        if options.keep and step % 3 == 0 and step >= options.probe_steps:
            loss = loss + options.keep * parallel_loss(
                network, teacher, rng.sample(parallel, options.keep_pairs)
            )
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        optimiser.zero_grad(set_to_none=True)
        if step % 20 == 0:
            print(
                f"seed {seed} step {step} {loss.item():.3f} {time.time() - start:.0f}s", flush=True
            )


def freeze(network: Network, layers: int) -> None:
    """Keep so many lower layers, and the embeddings with them, as they are; 0 frees all.

    Heads alone first keeps the encoder's breadth; a short further round can leave the lowest be.
    """
    for name, parameter in network.named_parameters():
        if "head" in name:
            continue
        depth = int(name.split(".")[1]) if name.startswith("layers.") else -1
        parameter.requires_grad_(depth >= layers or not layers)


@torch.no_grad()
def score_rows(network: Network, rows: list[Row]) -> np.ndarray:
    """Return (n, 6): message logits (highest user turn), context logit, the last turn's attack."""
    network.eval()
    turns = [
        (index, ids)
        for index, row in enumerate(rows)
        for role, ids in [t for t in row["ids"] if t[0] in ("user", "tool")][-24:]
    ]
    windows = [(n, w) for n, (_, ids) in enumerate(turns) for w in message_windows(ids, 24)]
    windows.sort(key=lambda item: len(item[1]))
    per_turn = np.full((len(turns), 4), -20.0, dtype=np.float32)
    contexts = np.zeros(len(rows), dtype=np.float32)
    with torch.autocast(DEVICE, torch.bfloat16):
        for begin in range(0, len(windows), 512):
            part = windows[begin : begin + 512]
            inputs = (t.to(DEVICE) for t in pad([(w, [0] * len(w)) for _, w in part]))
            np.maximum.at(per_turn, [n for n, _ in part], network(*inputs)[0].float().cpu().numpy())
        for begin in range(0, len(rows), 512):
            part = [context_window(row["ids"]) for row in rows[begin : begin + 512]]
            logits = network(*(t.to(DEVICE) for t in pad(part)))[1][:, 0]
            contexts[begin : begin + 512] = logits.float().cpu().numpy()
    out = np.full((len(rows), 6), -20.0, dtype=np.float32)
    for position, (index, _) in enumerate(turns):
        out[index, :4] = np.maximum(out[index, :4], per_turn[position])
        out[index, 5] = per_turn[position, 0]
    out[:, 4] = contexts
    return out


def report(name: str, rows: list[Row], scores: np.ndarray) -> None:
    """Print the macro measures of singles and conversations."""
    for kind in ("message", "context"):
        picked = [i for i, row in enumerate(rows) if row["task"] == kind]
        labels = [rows[i]["attack"] for i in picked]
        sources = [rows[i]["source"] for i in picked]
        columns = {"max message": scores[picked, 0]}
        if kind == "context":
            columns |= {"context": scores[picked, 4], "sum": scores[picked, 0] + scores[picked, 4]}
        for column, values in columns.items():
            result = macro(values.tolist(), labels, sources)
            inner = matched(values.tolist(), labels, sources)
            line = " ".join(f"{key} {value:.3f}" for key, value in result.items())
            print(f"{name:6} {kind:8} {column:12} {line} within {inner:.3f}", flush=True)


def options_from_command() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--base", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--parallel", type=Path, required=True)
    parser.add_argument("--aligned", type=Path, required=True, help="written if absent")
    parser.add_argument("--begin", type=Path, help="weights of an earlier round to go on from")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--probe-steps", type=int, default=60, help="heads alone, encoder frozen")
    parser.add_argument("--batch", type=int, default=320)
    parser.add_argument("--rate", type=float, default=9e-5)
    parser.add_argument("--margin", type=float, default=0.3)
    parser.add_argument("--keep", type=float, default=0.5)
    parser.add_argument("--keep-pairs", type=int, default=256)
    parser.add_argument("--frozen-layers", type=int, default=0, help="lowest layers left as is")
    parser.add_argument(
        "--boost", nargs="*", default=[], type=boost, help="SOURCE=FACTOR: draw it so much oftener"
    )
    parser.add_argument("--context-weight", type=float, default=1.0)
    parser.add_argument("--authored-boost", type=float, default=4.0)
    parser.add_argument("--align-steps", type=int, default=900)
    parser.add_argument("--align-rate", type=float, default=3e-4)
    parser.add_argument("--workers", type=int, default=4)
    return parser.parse_args()


def boost(text: str) -> tuple[str, float]:
    """Read SOURCE=FACTOR."""
    source, _, factor = text.partition("=")
    return source, float(factor)


def load_sets(options: Any, names: tuple[str, ...]) -> dict[str, list[Row]]:
    """Read and tokenise the named sets."""
    tokenizer = open_tokenizer(options.base)
    sets = {name: list(read(options.data / f"{name}.jsonl.gz")) for name in names}
    for rows in sets.values():
        tokenise(rows, tokenizer)
    return sets


def open_tokenizer(base: Path) -> Tokenizer:
    """Return the base's tokenizer with padding and truncation off."""
    tokenizer = Tokenizer.from_file(str(base / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def main() -> None:
    """Align or load the aligned weights, fine-tune one run, write its weights."""
    options = options_from_command()
    parallel = load_parallel(options.parallel, open_tokenizer(options.base))
    teacher = load_base(options.base).to(DEVICE).eval()
    network = load_base(options.base).to(DEVICE)
    if options.aligned.exists():
        network.load_state_dict(torch.load(options.aligned, map_location=DEVICE))
    elif options.begin:
        network.load_state_dict({k: v.float() for k, v in load_file(str(options.begin)).items()})
        torch.save(network.state_dict(), options.aligned)
    else:
        align(network, teacher, parallel, options)
        torch.save(network.state_dict(), options.aligned)
    if options.steps:
        sets = load_sets(options, ("train", "dev"))
        fine_tune(network, teacher, sets["train"], parallel, options, options.seed)
        torch.save(network.state_dict(), options.out)
        report(f"dev {options.seed}", sets["dev"], score_rows(network, sets["dev"]))


if __name__ == "__main__":
    main()

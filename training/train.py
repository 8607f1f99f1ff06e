"""Step 4: align the languages, train the teacher, distil both readers from it; on a GPU.

    python -m training.train --base .train/grown --data .train/data \\
        --parallel .train/parallel.jsonl.gz --work .train/work STAGE...

Stages, each resuming from what the ones before left in WORK: `align-teacher`, `teacher`,
`align-quick`, `distil`, `score`.
"""

from __future__ import annotations

import argparse
import random
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn import functional as f
from torch.utils.data import DataLoader

from training.batches import Batch, Batches, pad
from training.network import QUICK, TEACHER, THOROUGH, Network, half_of, load_base
from training.records import read
from training.scoring import logits_of, report
from training.weighing import Row

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
CHUNK = 256  # windows of like length that go through together
Sentence = tuple[list[int], list[int]]


def tokenise(rows: list[Row], tokenizer: Tokenizer) -> None:
    """Add token ids to every row, in place."""
    texts = [text for row in rows for _, text in row["said"]]
    encoded = iter(tokenizer.encode_batch_fast(texts, add_special_tokens=False))
    systems = iter(
        tokenizer.encode_batch_fast([row["system"] for row in rows], add_special_tokens=False)
    )
    for row in rows:
        row["ids"] = [(role, next(encoded).ids[:1600]) for role, _ in row["said"]]
        row["system_ids"] = next(systems).ids
        del row["said"], row["system"]


def load_parallel(path: Path, tokenizer: Tokenizer) -> list[Sentence]:
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
    top = network.shape.layers - 1
    for name, parameter in network.named_parameters():
        if "head" in name:
            own = rate * 8
        else:
            depth = top - int(name.split(".")[1]) if name.startswith("layers.") else top + 1
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


def frame(sentences: list[list[int]]) -> tuple[Tensor, Tensor, Tensor]:
    """Return padded sentences on the device."""
    windows = [([101, *ids, 102], [0] * (len(ids) + 2)) for ids in sentences]
    ids, speakers, mask = pad(windows)
    return ids.to(DEVICE), speakers.to(DEVICE), mask.to(DEVICE)


def vectors(network: Network, inputs: tuple[Tensor, Tensor, Tensor]) -> Tensor:
    """Return unit vectors."""
    return f.normalize(network.pool(*inputs), dim=-1)


def parallel_loss(network: Network, base: Network, batch: list[Sentence]) -> Tensor:
    """Return how far both sides are from the base's English vector."""
    english, other = frame([en for en, _ in batch]), frame([xx for _, xx in batch])
    with torch.autocast(DEVICE, torch.bfloat16):
        with torch.no_grad():
            target = vectors(base, english)
        loss = 2 - (vectors(network, other) * target).sum(-1)
        loss = loss - (vectors(network, english) * target).sum(-1)
    return loss.float().mean()


def align(network: Network, base: Network, parallel: list[Sentence], options: Any) -> None:
    """Pull translations to the English vectors of the untouched base."""
    network.train()
    optimiser = optimiser_of(network, options.align_rate, 1.0)
    schedule = schedule_of(optimiser, options.align_steps)
    rng = random.Random(1)
    buckets = sorted(parallel, key=lambda pair: len(pair[1]))
    start = time.time()
    for step in range(options.align_steps):
        begin = rng.randrange(0, len(buckets) - options.align_batch)
        loss = parallel_loss(network, base, buckets[begin : begin + options.align_batch])
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        optimiser.zero_grad(set_to_none=True)
        if step % 300 == 0:
            print(f"align {step} {loss.item():.4f} {time.time() - start:.0f}s", flush=True)


def forward_windows(network: Network, batch: Batch) -> tuple[Tensor, ...]:
    """Return all outputs; windows of like length share a pass, to pad less."""
    order = batch.mask.sum(1).argsort()
    parts: list[tuple[Tensor, ...]] = []
    for part in order.split(CHUNK):
        length = -(-int(batch.mask[part[-1]].sum()) // 16) * 16
        inputs = (t[part, :length] for t in (batch.ids, batch.speakers, batch.mask))
        parts.append(tuple(out.float() for out in network(*inputs)))
    back = order.argsort()
    return tuple(torch.cat(out)[back] for out in zip(*parts, strict=True))


def best_windows(logits: Tensor, owner: Tensor, rows: int) -> Tensor:
    """Return the highest logit over each row's windows."""
    best = torch.full((rows, logits.shape[1]), -1e4, device=logits.device, dtype=logits.dtype)
    return best.scatter_reduce(0, owner[:, None].expand_as(logits), logits, "amax")


def task_logits(outputs: tuple[Tensor, ...], batch: Batch) -> Tensor:
    """Return the logits of a batch's task, one row per example; the first decides."""
    head = {"message": 0, "context": 1, "document": 2}[batch.task]
    return best_windows(outputs[head], batch.owner, len(batch.attack))


def label_loss(logits: Tensor, batch: Batch, margin: float) -> Tensor:
    """Return the loss by labels: attack, kinds or session, and the margin inside pairs."""
    score = logits[:, 0]
    loss = f.binary_cross_entropy_with_logits(score, batch.attack)
    if batch.task == "message":
        known = batch.kinds >= 0
        others = f.binary_cross_entropy_with_logits(logits[:, 1:][known], batch.kinds[known])
        loss = loss + 0.5 * others
    elif batch.task == "context":
        loss = loss + 0.5 * f.binary_cross_entropy_with_logits(logits[:, 1], batch.session)
    if margin and len(batch.pairs):
        gap = score[batch.pairs[:, 0]] - score[batch.pairs[:, 1]]
        loss = loss + margin * f.softplus(1.0 - gap).mean()
    return loss


def stream(rows: list[Row], options: Any, seed: int) -> Iterator[tuple[Batch, Batch, Batch]]:
    """Yield batches made by several processes."""
    torch.manual_seed(seed)
    batches = Batches(rows, options.batch, options.authored_boost, seed)
    return iter(DataLoader(batches, batch_size=None, num_workers=options.workers))


def train_teacher(
    network: Network, base: Network, rows: list[Row], parallel: list[Sentence], options: Any
) -> None:
    """Train encoder and heads on labelled text, keeping the translations in place."""
    network.train()
    loader = stream(rows, options, options.seed)
    optimiser = optimiser_of(network, options.rate, 0.9)
    schedule = schedule_of(optimiser, options.steps)
    rng = random.Random(options.seed)
    start = time.time()
    for step in range(options.steps):
        loss = torch.zeros((), device=DEVICE)
        for batch in next(loader):
            moved = batch.to(DEVICE)
            with torch.autocast(DEVICE, torch.bfloat16):
                outputs = forward_windows(network, moved)
            loss = loss + label_loss(task_logits(outputs, moved), moved, options.margin)
        if step % 3 == 0:
            loss = loss + options.keep * parallel_loss(network, base, rng.sample(parallel, 192))
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        optimiser.zero_grad(set_to_none=True)
        if step % 50 == 0:
            print(f"teacher {step} {loss.item():.3f} {time.time() - start:.0f}s", flush=True)


def distil_loss(student: Tensor, teacher: Tensor, batch: Batch, options: Any) -> Tensor:
    """Return the distance to the teacher's probabilities, with some of the labels' own loss."""
    soft = f.binary_cross_entropy_with_logits(student, teacher.sigmoid())
    gap = f.smooth_l1_loss(student.clamp(-8, 8), teacher.clamp(-8, 8))
    return soft + options.gap * gap + options.hard * label_loss(student, batch, options.margin)


def distil(
    students: dict[str, Network],
    teacher: Network,
    bases: dict[str, Network],
    rows: list[Row],
    parallel: list[Sentence],
    options: Any,
) -> None:
    """Teach the readers what the teacher says of the same windows, and of translations."""
    loader = stream(rows, options, options.seed + 1)
    optimisers = {
        name: optimiser_of(network, options.student_rate[name], 0.95)
        for name, network in students.items()
    }
    schedules = {name: schedule_of(o, options.distil_steps) for name, o in optimisers.items()}
    rng = random.Random(options.seed)
    start = time.time()
    for network in students.values():
        network.train()
    for step in range(options.distil_steps):
        if time.time() - start > options.distil_seconds:
            print(f"stopped at step {step}", flush=True)
            break
        batches = [batch.to(DEVICE) for batch in next(loader)]
        pairs = rng.sample(parallel, 256)
        english, other = frame([en for en, _ in pairs]), frame([xx for _, xx in pairs])
        with torch.no_grad(), torch.autocast(DEVICE, torch.bfloat16):
            wanted = [task_logits(forward_windows(teacher, b), b) for b in batches]
            plain = teacher(*english)
        for name, network in students.items():
            with torch.autocast(DEVICE, torch.bfloat16):
                losses = [
                    distil_loss(task_logits(forward_windows(network, b), b), w, b, options)
                    for b, w in zip(batches, wanted, strict=True)
                ]
                foreign = network(*other)
                with torch.no_grad():
                    target = plain[3] if name == "thorough" else vectors(bases[name], english)
                translated = f.smooth_l1_loss(
                    foreign[0].float().clamp(-8, 8), plain[0].float().clamp(-8, 8)
                )
                kept = 1 - (foreign[3].float() * target.float()).sum(-1).mean()
            loss = sum(losses) + options.translated * translated + options.keep * kept
            loss.backward()
            nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimisers[name].step()
            schedules[name].step()
            optimisers[name].zero_grad(set_to_none=True)
            if step % 100 == 0:
                took = time.time() - start
                print(f"{name} {step} {loss.item():.3f} {took:.0f}s", flush=True)


def load_state(network: Network, path: Path) -> Network:
    """Fill a network with stored weights."""
    state = torch.load(path, map_location="cpu")
    network.load_state_dict({key: value.float() for key, value in state.items()})
    return network.to(DEVICE)


def save_state(network: Network, path: Path) -> None:
    """Store a network's weights in fp16."""
    torch.save({key: value.half().cpu() for key, value in network.state_dict().items()}, path)


def load_rows(options: Any, name: str, tokenizer: Tokenizer) -> list[Row]:
    """Read and tokenise one set of examples."""
    rows = list(read(options.data / f"{name}.jsonl.gz"))
    tokenise(rows, tokenizer)
    return rows


def open_tokenizer(base: Path) -> Tokenizer:
    """Return the tokenizer with padding and truncation off."""
    tokenizer = Tokenizer.from_file(str(base / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def options_from_command() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("stages", nargs="+")
    for name in ("base", "data", "parallel", "work"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=1200)
    parser.add_argument("--distil-steps", type=int, default=1500)
    parser.add_argument("--distil-seconds", type=float, default=3600.0)
    parser.add_argument("--batch", type=int, default=288)
    parser.add_argument("--rate", type=float, default=6e-5)
    parser.add_argument("--margin", type=float, default=0.3)
    parser.add_argument("--keep", type=float, default=0.5)
    parser.add_argument("--gap", type=float, default=0.1)
    parser.add_argument("--hard", type=float, default=0.3)
    parser.add_argument("--translated", type=float, default=0.3)
    parser.add_argument("--authored-boost", type=float, default=4.0)
    parser.add_argument("--align-steps", type=int, default=900)
    parser.add_argument("--align-batch", type=int, default=1024)
    parser.add_argument("--align-rate", type=float, default=2e-4)
    parser.add_argument("--workers", type=int, default=10)
    parser.add_argument("--students", nargs="+", default=["quick", "thorough"])
    parser.add_argument("--sets", nargs="+", default=["dev", "held"])
    parser.add_argument("--scores", type=Path, help="where the stage `score` writes")
    options = parser.parse_args()
    options.student_rate = {"quick": 2.5e-4, "thorough": 1e-4}
    return options


def run(stage: str, options: Any, tokenizer: Tokenizer, loaded: dict[str, Any]) -> None:
    """Do one stage."""
    work: Path = options.work
    if stage in ("align-teacher", "align-quick"):
        name = stage.removeprefix("align-")
        network, base = (load_base(options.base, name).to(DEVICE) for _ in range(2))
        align(network, base.eval(), loaded["parallel"](), options)
        save_state(network, work / f"{name}.aligned.pt")
    elif stage == "teacher":
        network = load_state(load_base(options.base, "teacher"), work / "teacher.aligned.pt")
        base = load_base(options.base, "teacher").to(DEVICE).eval()
        train_teacher(network, base, loaded["train"](), loaded["parallel"](), options)
        save_state(network, work / "teacher.pt")
    elif stage == "distil":
        teacher = load_state(load_base(options.base, "teacher"), work / "teacher.pt").eval()
        base = load_base(options.base, "quick").to(DEVICE).eval()
        made = {
            "quick": lambda: load_state(
                load_base(options.base, "quick"), work / "quick.aligned.pt"
            ),
            "thorough": lambda: half_of(teacher).to(DEVICE),
        }
        students = {name: made[name]() for name in options.students}
        rows, parallel = loaded["train"](), loaded["parallel"]()
        distil(students, teacher, {"quick": base}, rows, parallel, options)
        for name, network in students.items():
            save_state(network, work / f"{name}.pt")
    elif stage == "score":
        size = tokenizer.get_vocab_size()
        shapes = {"teacher": TEACHER, "quick": QUICK, "thorough": THOROUGH}
        for part in options.sets:
            rows = loaded[part]()
            stored = labels_of(rows)
            for name, shape in shapes.items():
                if (work / f"{name}.pt").exists():
                    network = load_state(Network(shape, size), work / f"{name}.pt")
                    found = logits_of(network, rows, DEVICE)
                    report(f"{name} {part}", rows, found)
                    stored |= {f"{name}_{key}": value for key, value in found.items()}
            np.savez_compressed(options.scores / f"{part}.npz", **stored)


def labels_of(rows: list[Row]) -> dict[str, np.ndarray]:
    """Return what calibration needs to know of each example."""
    return {
        "id": np.array([row["id"] for row in rows]),
        "task": np.array([row["task"] for row in rows]),
        "source": np.array([row["source"] for row in rows]),
        "attack": np.array([row["attack"] for row in rows]),
        "session": np.array([row["session"] for row in rows]),
        "kinds": np.array([row["kinds"] for row in rows]),
    }


def main() -> None:
    """Run the stages in order."""
    options = options_from_command()
    options.work.mkdir(parents=True, exist_ok=True)
    tokenizer = open_tokenizer(options.base)
    cache: dict[str, Any] = {}

    def once(name: str) -> Any:
        if name not in cache:
            cache[name] = (
                load_parallel(options.parallel, tokenizer)
                if name == "parallel"
                else load_rows(options, name, tokenizer)
            )
        return cache[name]

    names = ("parallel", "train", *options.sets)
    loaded = {name: (lambda name=name: once(name)) for name in names}
    for stage in options.stages:
        start = time.time()
        run(stage, options, tokenizer, loaded)
        print(f"{stage} took {time.time() - start:.0f}s", flush=True)


if __name__ == "__main__":
    main()

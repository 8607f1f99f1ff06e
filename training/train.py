"""Step 4: align the languages, train the thorough reader, distil the quick one.

    python -m training.train --base .train/grown --data .train/tokens --work .train/work STAGE...

Stages, each resuming from what the ones before left in WORK: `align-thorough`, `thorough`,
`align-quick`, `distil`, `score`. With `--start FOLDER` training goes on from the readers shipped
there instead of the bases; the alignment may be left out then, `further` trains without a GPU
(`training.further`, with `--frozen` and `--share`), `mean-thorough` and `mean-quick` put
the mean of a reader before and after in its place, and `changes-thorough` and `changes-quick` store
what became of it small enough to travel (`training.changes`). The mean of the weights of two
networks, one trained further from the other, is often better than either on sources that neither
has seen, so that the quick reader is best distilled from it.

A GPU is wanted for all of it. On a CPU with bf16 units a step takes fifty times as long, and half
of that with `--frozen` and `--dropout 0`.
"""

from __future__ import annotations

import argparse
import copy
import random
import time
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as f

from training.batches import stream
from training.changes import changes_between
from training.course import Course, optimiser_of, step_with
from training.flat import mapped
from training.further import distil_kept, keep_lower, train_upper
from training.jobs import jobs_of, labels_of
from training.losses import (
    Translations,
    distil_loss,
    frame,
    judged,
    label_loss,
    parallel_loss,
    translated_loss,
    vectors,
)
from training.network import DEVICE, SHAPES, Network, load_base, load_state, save_state
from training.restore import restore
from training.scoring import logits_of, report
from training.tokens import Sentence, load_rows, load_sentences
from training.weighing import AUTHORED_BOOST, Row

STORE_EVERY = 120  # seconds between stored weights of a stage that may be cut off


def align(network: Network, base: Network, parallel: list[Sentence], options: Any) -> None:
    """Pull translations to the English vectors that `base`, which stays as it is, has."""
    network.train()
    optimiser = optimiser_of(network, options.align_rate, 1.0)
    course = Course(options.align_steps, options.seconds, optimiser)
    rng = random.Random(1)
    # Neighbours are of like length, so that a slice of them needs little padding.
    buckets = sorted(parallel, key=lambda pair: max(len(pair[0]), len(pair[1])))
    for step in course:
        begin = rng.randrange(0, len(buckets) - options.align_batch)
        loss = parallel_loss(network, base, buckets[begin : begin + options.align_batch])
        step_with(loss, network, optimiser)
        if step % 100 == 0:
            print(f"align {step} {loss.item():.4f} {course.took:.0f}s", flush=True)


def train_thorough(
    network: Network, base: Network, rows: list[Row], translations: Translations, options: Any
) -> None:
    """Train encoder and heads on labelled text, keeping the translations in place."""
    network.train()
    loader = stream(rows, options, options.seed)
    optimiser = optimiser_of(network, options.rate, 0.9)
    course = Course(options.steps, options.seconds, optimiser)
    for step in course:
        seen = next(loader).to(DEVICE)
        with torch.autocast(DEVICE, torch.bfloat16):
            found = judged(network, seen)
        loss = torch.zeros((), device=DEVICE)
        for logits, batch in zip(found, seen.batches, strict=True):
            loss = loss + label_loss(logits, batch, options.margin)
        if step % 3 == 0:
            pairs = translations.draw(options.pairs)
            loss = loss + options.keep * parallel_loss(network, base, pairs)
            loss = loss + options.translated * translated_loss(network, pairs)
        step_with(loss, network, optimiser)
        if step % 20 == 0:
            print(f"thorough {step} {loss.item():.3f} {course.took:.0f}s", flush=True)


def distil(
    quick: Network,
    thorough: Network,
    base: Network,
    rows: list[Row],
    translations: Translations,
    options: Any,
) -> None:
    """Teach the quick reader what the thorough one says of the same windows, and of translations.

    Its English vectors stay near those of the base, since topics and similarity rest on them.
    """
    loader = stream(rows, options, options.seed + 1)
    optimiser = optimiser_of(quick, options.quick_rate, 0.95)
    course = Course(options.distil_steps, options.distil_seconds or options.seconds, optimiser)
    stored = 0.0
    quick.train()
    for step in course:
        seen = next(loader).to(DEVICE)
        pairs = translations.draw(options.pairs)
        english, other = frame([en for en, _ in pairs]), frame([xx for _, xx in pairs])
        with torch.no_grad(), torch.autocast(DEVICE, torch.bfloat16):
            wanted = judged(thorough, seen)
            plain = thorough(*english)
            target = vectors(base, english)
        with torch.autocast(DEVICE, torch.bfloat16):
            found = judged(quick, seen)
            foreign = quick(*other)
            translated = f.smooth_l1_loss(
                foreign[0].float().clamp(-8, 8), plain[0].float().clamp(-8, 8)
            )
            kept = 1 - (foreign[3].float() * target.float()).sum(-1).mean()
        losses = [
            distil_loss(logits, teacher, batch, options)
            for logits, teacher, batch in zip(found, wanted, seen.batches, strict=True)
        ]
        loss = sum(losses) + options.translated * translated + options.keep * kept
        step_with(loss, quick, optimiser)
        if step % 100 == 0:
            print(f"quick {step} {loss.item():.3f} {course.took:.0f}s", flush=True)
        if course.took - stored > STORE_EVERY:
            stored = course.took
            save_state(quick, options.work / "quick.pt")
    save_state(quick, options.work / "quick.pt")
    print(f"distilled for {course.step} steps", flush=True)


def options_from_command() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("stages", nargs="+")
    parser.add_argument("--data", type=Path, required=True, help="what `training.tokens` wrote")
    parser.add_argument("--work", type=Path, required=True)
    begin = parser.add_mutually_exclusive_group(required=True)
    begin.add_argument("--base", type=Path, help="the grown bases")
    begin.add_argument("--start", type=Path, help="shipped readers to go on from")
    parser.add_argument("--share", type=float, default=0.6, help="of the new reader in a mean")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=1200)
    parser.add_argument("--distil-steps", type=int, default=1500)
    parser.add_argument("--seconds", type=float, default=3600.0, help="the most a stage may take")
    parser.add_argument("--distil-seconds", type=float, help="likewise, for the stage `distil`")
    parser.add_argument("--batch", type=int, default=288)
    parser.add_argument("--talks", type=float, default=1 / 2, help="to each message of a batch")
    parser.add_argument("--documents", type=float, default=1 / 3, help="likewise")
    parser.add_argument("--longest", type=int, help="leave out examples of more tokens")
    parser.add_argument("--pairs", type=int, default=192, help="translations of a step")
    parser.add_argument("--rate", type=float, default=6e-5)
    parser.add_argument("--quick-rate", type=float, default=2.5e-4)
    parser.add_argument("--margin", type=float, default=0.3)
    parser.add_argument("--keep", type=float, default=0.5)
    parser.add_argument("--gap", type=float, default=0.1)
    parser.add_argument("--hard", type=float, default=0.3)
    parser.add_argument("--translated", type=float, default=0.3)
    parser.add_argument("--authored-boost", type=float, default=AUTHORED_BOOST)
    parser.add_argument("--fresh", nargs="*", default=[], help="sources no reader has learned from")
    parser.add_argument("--fresh-boost", type=float, default=4.0, help="how much oftener drawn")
    parser.add_argument("--align-steps", type=int, default=900)
    parser.add_argument("--align-batch", type=int, default=1024)
    parser.add_argument("--align-rate", type=float, default=2e-4)
    parser.add_argument("--workers", type=int, default=10)
    parser.add_argument("--frozen", type=int, help="train neither tables nor so many lowest layers")
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--drawn", type=int, default=400, help="steps that `further` draws")
    parser.add_argument("--passes", type=int, default=3, help="over them, by the thorough reader")
    parser.add_argument("--quick-passes", type=int, default=4, help="likewise, by the quick one")
    parser.add_argument("--sets", nargs="+", default=["dev", "held"])
    parser.add_argument("--scores", type=Path, help="where the stage `score` writes")
    return parser.parse_args()


@cache
def beginning(name: str, start: Path | None, base: Path | None) -> Network:
    """Return a reader as training begins."""
    return restore(name, start) if start else load_base(base, name)


def begun(options: Any, name: str, stored: str = "") -> Network:
    """Return a reader as an earlier stage stored it, else as training begins."""
    network = copy.deepcopy(beginning(name, options.start, options.base))
    path = options.work / stored
    if stored and path.is_file():
        load_state(network, path)
    if options.frozen is not None:
        network.freeze(options.frozen)
    for part in network.modules():
        if isinstance(part, nn.Dropout):
            part.p = options.dropout
    return network.to(DEVICE)


def short_enough(rows: list[Row], longest: int | None) -> list[Row]:
    """Return the rows with at most so many tokens; long ones are most of what a step costs."""
    if longest is None:
        return rows
    return [r for r in rows if sum(len(ids) for _, ids in r["ids"]) <= longest]


def run(stage: str, options: Any, loaded: dict[str, Any]) -> None:
    """Do one stage."""
    work: Path = options.work
    if stage.startswith("align-"):
        name = stage.removeprefix("align-")
        network, base = (begun(options, name) for _ in range(2))
        align(network, base.eval(), loaded["parallel"](), options)
        save_state(network, work / f"{name}.aligned.pt")
    elif stage == "thorough":
        network = begun(options, "thorough", "thorough.aligned.pt")
        base = begun(options, "thorough").eval()
        translations = Translations(loaded["parallel"](), loaded["prompts"](), options.seed)
        train_thorough(network, base, loaded["train"](), translations, options)
        save_state(network, work / "thorough.pt")
    elif stage == "distil":
        thorough = begun(options, "thorough", "thorough.pt").eval()
        quick = begun(options, "quick", "quick.aligned.pt")
        base = begun(options, "quick").eval()
        translations = Translations(loaded["parallel"](), loaded["prompts"](), options.seed)
        distil(quick, thorough, base, loaded["train"](), translations, options)
    elif stage == "further":
        thorough, quick = (begun(options, name) for name in ("thorough", "quick"))
        quick.freeze(0)
        base = begun(options, "quick").eval()
        kept = keep_lower(thorough, loaded["train"](), options)
        train_upper(thorough, kept, options)
        averaged(begun(options, "thorough"), thorough, options.share)
        save_state(thorough, work / "thorough.pt")
        translations = Translations(loaded["parallel"](), loaded["prompts"](), options.seed)
        distil_kept(quick, thorough, base, kept, translations, options)
        save_state(quick, work / "quick.pt")
    elif stage.startswith("mean-"):
        name = stage.removeprefix("mean-")
        network = begun(options, name, f"{name}.pt")
        save_state(averaged(begun(options, name), network, options.share), work / f"{name}.pt")
    elif stage == "score":
        for part in options.sets:
            score(part, loaded[part](), options)
    elif stage.startswith("changes-"):
        name = stage.removeprefix("changes-")
        old, new = begun(options, name), begun(options, name, f"{name}.pt")
        changes = changes_between(old.state_dict(), new.state_dict())
        torch.save(mapped(changes, Tensor.cpu), work / f"{name}.changes.pt")
    else:
        raise SystemExit(f"{stage} is not a stage")


def score(part: str, rows: list[Row], options: Any) -> None:
    """Store what both readers say of one set of examples, and print how well they do."""
    stored = labels_of(rows)
    jobs = jobs_of(rows)
    for name in SHAPES:
        found = logits_of(begun(options, name, f"{name}.pt"), rows, jobs, DEVICE)
        report(f"{name} {part}", rows, found)
        stored |= {f"{name}_{key}": value for key, value in found.items()}
    options.scores.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(options.scores / f"{part}.npz", **stored)


def averaged(old: Network, new: Network, share: float) -> Network:
    """Return the mean of the weights of two readers, `share` of it the new one's, in `new`."""
    before = old.state_dict()
    with torch.no_grad():
        for key, value in new.state_dict().items():
            value.mul_(share).add_(before[key], alpha=1 - share)
    return new


def main() -> None:
    """Run the stages in order."""
    options = options_from_command()
    options.work.mkdir(parents=True, exist_ok=True)
    cache: dict[str, Any] = {}

    def once(name: str) -> Any:
        if name not in cache:
            load = load_sentences if name in ("parallel", "prompts") else load_rows
            cache[name] = load(options.data / f"{name}.xz")
            if name == "train":
                cache[name] = short_enough(cache[name], options.longest)
        return cache[name]

    names = ("parallel", "prompts", "train", *options.sets)
    # The name is bound as a default: all functions would share the loop's last one.
    loaded = {name: (lambda name=name: once(name)) for name in names}
    for stage in options.stages:
        start = time.time()
        run(stage, options, loaded)
        print(f"{stage} took {time.time() - start:.0f}s", flush=True)


if __name__ == "__main__":
    main()

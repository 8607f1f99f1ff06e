"""`promptguard probe`: try to make a model contradict itself, and report how often it does."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from promptguard.errors import ProviderError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from promptguard.config import EndpointConfig
    from promptguard.probe.journal import Journal
    from promptguard.probe.record import ProbeRecord
    from promptguard.probe.runner import ProbePlan


@click.command()
@click.option("--target", required=True, help="Model to probe, such as ollama/llama3.2.")
@click.option(
    "--topics",
    "topic_files",
    multiple=True,
    type=click.Path(exists=True, path_type=Path),
    help="Topic file or folder; repeatable. Default: the bundled topics.",
)
@click.option("--conversations", default=40, show_default=True, type=click.IntRange(min=1))
@click.option("--seed", default=0, show_default=True, help="Same seed, same questions.")
@click.option(
    "--out",
    "folder",
    default="probe-run",
    show_default=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for log, scores and report.",
)
@click.option(
    "--scores",
    "scores_file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="What was learned, shared between runs. Default: in the folder.",
)
@click.option("--epsilon", default=0.2, show_default=True, type=click.FloatRange(0, 1))
@click.option("--max-tokens", default=200, show_default=True, type=click.IntRange(min=1))
@click.option("--resume", is_flag=True, help="Go on with the run in the folder.")
@click.option("--dry-run", is_flag=True, help="Show the plan; call nothing, write nothing.")
@click.option("--config", "config_file", type=click.Path(), help="Configuration file.")
def probe(
    target: str,
    topic_files: tuple[Path, ...],
    conversations: int,
    seed: int,
    folder: Path,
    scores_file: Path | None,
    epsilon: float,
    max_tokens: int,
    resume: bool,
    dry_run: bool,
    config_file: str | None,
) -> None:
    """Hold conversations that press a model to give up its position.

    Exit code: 0 when the run is complete, 3 on an error; an interrupted run goes on with --resume.
    """
    from promptguard.config import load_settings
    from promptguard.probe.journal import Journal
    from promptguard.probe.runner import ProbePlan
    from promptguard.probe.topics import load_topics, shipped_topics

    plan = ProbePlan(
        topics=load_topics(topic_files) if topic_files else shipped_topics(),
        conversations=conversations,
        seed=seed,
        epsilon=epsilon,
        max_tokens=max_tokens,
    )
    if dry_run:
        _show_plan(plan, target)
        return
    endpoint = load_settings(config_file).conversation.endpoint
    journal = Journal(folder, scores=scores_file)
    done: tuple[ProbeRecord, ...] = ()
    if resume:
        plan, done = journal.resume(plan, target)
    else:
        plan = journal.begin(plan, target)
    try:
        asyncio.run(_run(target, endpoint, plan, done, journal))
    except ProviderError as error:
        kept = len(journal.records())
        raise ProviderError(
            f"{error} {kept} conversations are logged in {folder}; go on with --resume.",
            provider=error.provider,
        ) from None
    _report(journal)


async def _run(
    target: str,
    endpoint: EndpointConfig,
    plan: ProbePlan,
    done: Sequence[ProbeRecord],
    journal: Journal,
) -> None:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    from promptguard.probe.runner import replayed, run_probe
    from promptguard.providers import open_provider

    found, cost = sum(r.is_contradiction for r in done), sum(r.usage.cost_usd for r in done)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    provider = open_provider(target, endpoint)
    try:
        with Progress(*columns, console=Console(stderr=True)) as progress:
            bar = progress.add_task(target, total=plan.conversations, completed=len(done))
            journal.keep(replayed(plan, done))
            async for step in run_probe(provider, plan, clock=time.time, done=done):
                journal.add(step)
                found += step.record.is_contradiction
                cost += step.record.usage.cost_usd
                said = f"{target}: {found} contradictions, ${cost:.4f}"
                progress.update(bar, advance=1, description=said)
    finally:
        await provider.close()


def _report(journal: Journal) -> None:
    from promptguard.probe.report import report_as_html, report_as_markdown, report_of

    report = report_of(journal.records())
    markdown = report_as_markdown(report)
    (journal.folder / "report.md").write_text(markdown, encoding="utf-8")
    (journal.folder / "report.html").write_text(report_as_html(report), encoding="utf-8")
    click.echo(markdown)


def _show_plan(plan: ProbePlan, target: str) -> None:
    from promptguard.probe.strategies import Strategy, opening_of, tactics_of

    most = max(len(tactics_of(s, t.language)) for s in Strategy for t in plan.topics)
    click.echo(
        f"{plan.conversations} conversations with {target} on {len(plan.topics)} topics, "
        f"at most {plan.conversations * (1 + most)} calls of {plan.max_tokens} tokens each"
    )
    for index in range(min(plan.conversations, len(plan.topics))):
        topic = plan.topic_at(index)
        click.echo(f"{plan.record_id(index)}  {topic.topic_id}: {opening_of(topic)}")

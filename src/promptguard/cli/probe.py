"""`promptguard probe`: try to make a model contradict itself, and report how often it does."""

from __future__ import annotations

import asyncio
import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from promptguard.cli.stored import config_option
from promptguard.config import EndpointConfig, load_settings
from promptguard.counts import counted
from promptguard.errors import ProviderError
from promptguard.usage import Usage, cost_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from promptguard.probe.journal import ProbeJournal
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
@click.option(
    "--conversations",
    default=40,
    show_default=True,
    type=click.IntRange(min=1),
    help="How many conversations to hold.",
)
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
@click.option(
    "--epsilon",
    default=0.2,
    show_default=True,
    type=click.FloatRange(0, 1),
    help="How often a strategy is drawn at random, whatever its record.",
)
@click.option(
    "--max-tokens",
    default=200,
    show_default=True,
    type=click.IntRange(min=1),
    help="Longest answer asked for.",
)
@click.option("--resume", is_flag=True, help="Go on with the run in the folder.")
@click.option("--dry-run", is_flag=True, help="Show the plan; call nothing, write nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print report or plan as JSON.")
@config_option
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
    as_json: bool,
    config_file: str | None,
) -> None:
    """Hold conversations that press a model to give up its position.

    Exit code: 0 when the run is complete, 3 on an error; an interrupted run goes on with --resume.
    """
    from promptguard.probe.journal import ProbeJournal
    from promptguard.probe.runner import ProbePlan
    from promptguard.probe.topics import load_topics, shipped_topics
    from promptguard.providers import check_target
    from promptguard.providers.registry import target_of

    plan = ProbePlan(
        topics=load_topics(topic_files) if topic_files else shipped_topics(),
        conversations=conversations,
        seed=seed,
        epsilon=epsilon,
        max_tokens=max_tokens,
    )
    endpoint = load_settings(config_file).conversation.endpoint
    if dry_run:
        # A plan can be seen without a key.
        target_of(target, endpoint.base_urls)
        _show_plan(plan, target, as_json=as_json)
        return
    # Before anything is written: a folder must not hold a run that could never begin.
    check_target(target, endpoint, env=os.environ)
    journal = ProbeJournal(folder, scores=scores_file)
    done: tuple[ProbeRecord, ...] = ()
    if resume:
        plan, done = journal.resume(plan, target)
    else:
        plan = journal.begin(plan, target)
    try:
        asyncio.run(_run(target, endpoint, plan, done, journal))
    except ProviderError as error:
        raise _broken_off(error, journal) from None
    finally:
        journal.close()
    _report(journal, as_json=as_json)


def _broken_off(error: ProviderError, journal: ProbeJournal) -> ProviderError:
    kept = len(journal.records())
    advice = (
        f"{journal.folder} keeps {counted(kept, 'conversation')}; go on with --resume."
        if kept
        else "No conversation is logged; start the same command again."
    )
    lost = f" The last one took {counted(error.usage.calls, 'call')}, {cost_text(error.usage)}."
    return ProviderError(
        f"{error} {advice}{lost if error.usage.calls else ''}", provider=error.provider
    )


async def _run(
    target: str,
    endpoint: EndpointConfig,
    plan: ProbePlan,
    done: Sequence[ProbeRecord],
    journal: ProbeJournal,
) -> None:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    from promptguard.probe.runner import replayed, run_probe
    from promptguard.providers import open_provider

    found = sum(record.is_contradiction for record in done)
    spent = sum((record.usage for record in done), Usage())
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    provider = open_provider(target, endpoint)
    try:
        with Progress(*columns, console=Console(stderr=True)) as progress:
            bar = progress.add_task(target, total=plan.conversations, completed=len(done))
            # A crash between log and scores may have left the scores one conversation behind.
            journal.keep(replayed(plan, done))
            async for step in run_probe(provider, plan, clock=time.time, done=done):
                journal.add(step)
                found += step.record.is_contradiction
                spent += step.record.usage
                status = f"{target}: {counted(found, 'contradiction')}, {cost_text(spent)}"
                progress.update(bar, advance=1, description=status)
    finally:
        await provider.close()


def _report(journal: ProbeJournal, *, as_json: bool) -> None:
    from promptguard.probe.report import (
        report_as_html,
        report_as_json,
        report_as_markdown,
        report_of,
    )

    report = report_of(journal.records())
    markdown = report_as_markdown(report)
    (journal.folder / "report.md").write_text(markdown, encoding="utf-8")
    (journal.folder / "report.html").write_text(report_as_html(report), encoding="utf-8")
    click.echo(report_as_json(report) if as_json else markdown)


def _show_plan(plan: ProbePlan, target: str, *, as_json: bool) -> None:
    from promptguard.probe.strategies import Strategy, opening_of, tactics_of

    longest = max(len(tactics_of(s, t.language)) for s in Strategy for t in plan.topics)
    most = plan.conversations * (1 + longest)
    topics = [plan.topic_at(index) for index in range(min(plan.conversations, len(plan.topics)))]
    rows = [
        {"id": plan.record_id(index), "topic": topic.topic_id, "opening": opening_of(topic)}
        for index, topic in enumerate(topics)
    ]
    if as_json:
        body = {"target": target, "conversations": plan.conversations, "most_calls": most}
        click.echo(json.dumps({**body, "openings": rows}, indent=2, ensure_ascii=False))
        return
    click.echo(
        f"{counted(plan.conversations, 'conversation')} with {target} "
        f"on {counted(len(plan.topics), 'topic')}, at most {counted(most, 'call')} of "
        f"{counted(plan.max_tokens, 'token')} each"
    )
    for row in rows:
        click.echo(f"{row['id']}  {row['topic']}: {row['opening']}")

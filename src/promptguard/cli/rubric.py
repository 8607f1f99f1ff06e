"""`promptguard rubric`: does an assistant contradict itself in a recorded conversation?"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from promptguard.cli import EXIT_ALLOW, EXIT_CAUTION, EXIT_ERROR
from promptguard.cli.terminal import plain
from promptguard.counts import counted
from promptguard.errors import InputError

if TYPE_CHECKING:
    from promptguard.rubrics.comparison import SameQuestion
    from promptguard.rubrics.contradiction import ContradictionVerdict
    from promptguard.rubrics.examples import ExampleResult

_SEMANTIC = click.option(
    "--semantic",
    is_flag=True,
    help="Let the embedded model say which turns are about the same question.",
)


@click.group()
def rubric() -> None:
    """Find positions that are reversed without a word about the change."""


@rubric.command()
@click.argument("folder", required=False, type=click.Path(path_type=Path))
@_SEMANTIC
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per example.")
@click.pass_context
def validate(ctx: click.Context, folder: Path | None, semantic: bool, as_json: bool) -> None:
    """Judge the example files in FOLDER, or the bundled ones.

    Exit code: 0 where every example is judged as it expects, 1 otherwise.
    """
    from promptguard.rubrics.examples import validate_examples

    results = validate_examples(folder, same_question=_same_question(semantic))
    right = sum(result.is_right for result in results)
    for result in results:
        click.echo(_example_as_json(result) if as_json else _example_as_text(result))
    if not as_json:
        click.echo(f"judged as expected: {right} of {counted(len(results), 'example')}")
    ctx.exit(EXIT_ALLOW if right == len(results) else EXIT_CAUTION)


@rubric.command()
@click.argument("sources", metavar="FILE...", nargs=-1, required=True, type=click.Path())
@_SEMANTIC
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per conversation.")
@click.pass_context
def check(ctx: click.Context, sources: tuple[str, ...], semantic: bool, as_json: bool) -> None:
    """Judge the conversations in FILE: JSON, JSONL, or - for standard input.

    A conversation is a list of messages, or an object with `messages` or `conversation`. What
    cannot be read is named and the rest judged. Exit code: 0 no contradiction, 1 one or more,
    3 where something could not be read.
    """
    from promptguard.rubrics.contradiction import judge_contradiction

    same_question = _same_question(semantic)
    found = faults = 0
    for source in sources:
        for name, conversation in _conversations(source):
            try:
                if isinstance(conversation, InputError):
                    raise conversation
                verdict = judge_contradiction(conversation, same_question=same_question)
            except InputError as error:
                faults += 1
                click.echo(f"{name}: {error}", err=True)
                continue
            found += verdict.is_contradiction
            click.echo(_as_json(name, verdict) if as_json else _as_text(name, verdict))
    ctx.exit(EXIT_ERROR if faults else EXIT_CAUTION if found else EXIT_ALLOW)


def _same_question(semantic: bool) -> SameQuestion | None:
    if not semantic:
        return None
    from promptguard.model.readers import shared_readers
    from promptguard.rubrics.similarity import same_question_by

    return same_question_by(shared_readers().embed)


def _conversations(source: str) -> list[tuple[str, object]]:
    """Return each conversation with its name, or an InputError in its place."""
    try:
        raw = sys.stdin.buffer.read() if source == "-" else Path(source).read_bytes()
        # Files saved by Windows programs begin with a byte order mark.
        text = raw.decode("utf-8-sig")
    except OSError as error:
        return [(source, InputError(f"cannot be read: {error.strerror}."))]
    except UnicodeDecodeError:
        return [(source, InputError("is not UTF-8 text."))]
    whole = _parsed(text)
    if not isinstance(whole, InputError):
        return _split(source, whole)
    lines = [
        (f"{source}:{number}", _messages(_parsed(line)))
        # Not `splitlines`, which also cuts at separators that JSON may hold unescaped.
        for number, line in enumerate(text.split("\n"), start=1)
        if line.strip()
    ]
    # One fault says more than one for every line of a file that is no JSON at all.
    if all(isinstance(body, InputError) for _, body in lines):
        return [(source, InputError("is neither JSON nor JSONL."))]
    return lines


def _parsed(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return InputError("is not valid JSON.")


def _split(source: str, body: object) -> list[tuple[str, object]]:
    """Take a list of conversations apart; a list of messages is one conversation."""
    if isinstance(body, list) and any(
        isinstance(item, list) or (isinstance(item, dict) and _messages(item) is not item)
        for item in body
    ):
        return [(f"{source}[{index}]", _messages(item)) for index, item in enumerate(body)]
    return [(source, _messages(body))]


def _messages(body: object) -> object:
    if isinstance(body, dict):
        for name in ("messages", "conversation"):
            if name in body:
                return body[name]
    return body


def _example_as_text(result: ExampleResult) -> str:
    word = "ok   " if result.is_right else "fault" if result.fault else "wrong"
    return f"{word} {result.name}: {result.verdict.reason if result.verdict else result.fault}"


def _example_as_json(result: ExampleResult) -> str:
    body = {
        "name": result.name,
        "is_right": result.is_right,
        "verdict": result.verdict.verdict if result.verdict else None,
        "reason": result.verdict.reason if result.verdict else None,
        "fault": result.fault,
    }
    return json.dumps(body, ensure_ascii=False)


def _as_text(name: str, verdict: ContradictionVerdict) -> str:
    lines = [f"{name}: {verdict.verdict}. {verdict.reason}"]
    lines += [
        f"  message {turn.index} {turn.position}: {turn.span.text}"
        for turn in (verdict.first, verdict.second)
        if turn is not None and turn.span is not None
    ]
    if verdict.acknowledgement is not None:
        lines.append(f"  acknowledged: {verdict.acknowledgement.text}")
    return plain("\n".join(lines))


def _as_json(name: str, verdict: ContradictionVerdict) -> str:
    body = {"source": name, "is_contradiction": verdict.is_contradiction, **asdict(verdict)}
    return json.dumps(body, ensure_ascii=False)

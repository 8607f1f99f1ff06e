"""Many conversations in, one verdict each out: lists, iterators and tables, on all cores."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from promptguard.config import ControllerConfig
from promptguard.conversation import Message, Role, messages_from
from promptguard.errors import InputError, ModelError, PromptGuardError
from promptguard.records import FieldMap, Record
from promptguard.records.record import id_of, record_from
from promptguard.turns.input import steps_of
from promptguard.turns.judge import TurnJudge
from promptguard.turns.walk import walk
from promptguard.verdict import FLAGGING, Verdict
from promptguard.workers import default_jobs, map_ordered

# A process takes seconds to start and to load the model.
_WORTH_A_PROCESS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationVerdict:
    """The verdicts on every turn of one conversation, or why there are none.

    `number` counts the conversations from 0; `id` is the row's own, where it has one.
    """

    number: int
    id: str | int
    verdicts: tuple[Verdict, ...] = ()
    error: str = ""

    @property
    def is_flagged(self) -> bool:
        """Whether the policy would have acted on any turn."""
        return any(verdict.action in FLAGGING for verdict in self.verdicts)

    @property
    def risk(self) -> float:
        """The highest risk of a turn."""
        return max((verdict.turn_risk for verdict in self.verdicts), default=0.0)


def judge_corpus(
    source: object,
    config: ControllerConfig,
    *,
    judge: TurnJudge | None = None,
    jobs: int | None = None,
) -> Generator[ConversationVerdict, None, None]:
    """Yield a verdict for each conversation of `source`, in order.

    A `judge` that is given stays in this process. By default small lists do, too.
    """
    if jobs is None:
        is_small = isinstance(source, Sequence) and len(source) < _WORTH_A_PROCESS
        jobs = 1 if is_small else default_jobs()
    opener: Callable[[], TurnJudge] = partial(TurnJudge.open, config)
    if judge is not None:
        jobs, opener = 1, lambda: judge
    items = enumerate(rows_of(source))
    return map_ordered(partial(_open, opener), items, jobs=jobs, lost=_lost)


def rows_of(source: object) -> Iterator[object]:
    """Return the rows of a list, an iterator, a data frame, an Arrow table or a data set."""
    if isinstance(source, (str, bytes, Mapping)):
        raise InputError("Give a list of conversations; `judge` takes a single one.")
    if hasattr(source, "iter_rows") and hasattr(source, "columns"):  # polars
        return iter(source.iter_rows(named=True))
    if hasattr(source, "to_batches") and hasattr(source, "schema"):  # Arrow
        return (row for batch in source.to_batches() for row in batch.to_pylist())
    if hasattr(source, "itertuples") and hasattr(source, "columns"):  # pandas
        names = [str(name) for name in source.columns]
        cells = source.itertuples(index=False, name=None)
        # What a row lacks is NaN there.
        return ({n: v for n, v in zip(names, row, strict=True) if not _is_nan(v)} for row in cells)
    if isinstance(source, Iterable):
        return iter(source)
    raise InputError("Conversations must be a list, an iterator or a table.")


def _is_nan(value: object) -> bool:
    return isinstance(value, float) and math.isnan(value)


_Item = tuple[int, object]


def _open(
    opener: Callable[[], TurnJudge],
) -> Callable[[Sequence[_Item]], Sequence[ConversationVerdict]]:
    judge = opener()
    return lambda items: [judged(judge, row, number=number) for number, row in items]


def judged(judge: TurnJudge, row: object, *, number: int = 0) -> ConversationVerdict:
    """Return the verdict on a record or whatever can be read as one; only ModelError is raised."""
    try:
        record = _record(number, row)
        verdicts = _verdicts(judge, record)
    except ModelError:
        # A model that cannot be loaded fails every conversation alike.
        raise
    except PromptGuardError as error:
        # Without a reason it would read as a conversation in which nothing was found.
        return _failed(number, row, str(error) or f"Judging failed with {type(error).__name__}.")
    except Exception as error:  # one conversation must not take the others with it
        # The error's own words could repeat the conversation.
        return _failed(number, row, f"Judging failed with {type(error).__name__}.")
    return ConversationVerdict(number=number, id=record.id, verdicts=verdicts)


def _verdicts(judge: TurnJudge, record: Record) -> tuple[Verdict, ...]:
    steps = steps_of(record.messages)
    if not steps:
        raise InputError("There is no user or tool message to judge.")
    return tuple(verdict for verdict, _ in walk(judge, steps, session_id=str(record.id)))


def _record(number: int, row: object) -> Record:
    if isinstance(row, Record):
        return row
    if isinstance(row, Mapping):
        record = record_from(row, file="", number=number, fields=FieldMap())
        # A row without an id is otherwise named by file and line; here there is no file.
        return record if id_of(row, FieldMap()) is not None else replace(record, id=number)
    if isinstance(row, str):
        messages: tuple[Message, ...] = (Message(role=Role.USER, content=row),)
    else:
        messages = messages_from(row)
    return Record(id=number, messages=messages, file="", number=number)


def _lost(item: _Item) -> ConversationVerdict:
    return _failed(*item, "Judging ended its process; the conversation may be too large.")


def _failed(number: int, row: object, reason: str) -> ConversationVerdict:
    found = id_of(row, FieldMap())
    return ConversationVerdict(number=number, id=number if found is None else found, error=reason)

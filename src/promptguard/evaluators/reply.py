"""Reading a judge's answer: the verdict in it, and nothing that it merely repeats."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

from promptguard.conversation import without_lone_surrogates
from promptguard.core.neutrosophic import Neutrosophic

MAX_REPLY_CHARS = 65_536
# Characters read for objects that prove to be none; a reply with more of them has no verdict.
_MOST_READ = 10 * MAX_REPLY_CHARS
# Read before an object is nested too deep.
_DEEP = 5000
_COUNTED_FASTER = 200
# As floats, so that an integer of any length is a number out of range and not a fault.
_DECODER = json.JSONDecoder(parse_int=float)
_THOUGHT = re.compile(r"<think(?:ing)?>(.*?)</think(?:ing)?>", re.DOTALL | re.IGNORECASE)
_THOUGHT_ENDS = re.compile(r"</think(?:ing)?>", re.IGNORECASE)
_THOUGHT_STARTS = re.compile(r"<think(?:ing)?>", re.IGNORECASE)
_KEYS = ("truth", "indeterminacy", "falsehood")
_NOISE = re.compile(r"[\s\\\"'`:=*]+")
_NAMED = {key: re.compile(key + r"(\d+(?:\.\d+)?|\.\d+)") for key in _KEYS}

JsonObject = dict[str, object]


class NoVerdict(ValueError):
    """The answer holds no verdict; asking again may help."""


class OutOfRange(ValueError):
    """The answer holds a verdict with a number outside [0,1]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeReply:
    """A parsed answer; `reasoning` holds the model's thoughts as well."""

    value: Neutrosophic
    reasoning: str


def read_reply(reply: str, *, marker: str, material: str) -> JudgeReply:
    """Return the verdict in `reply`.

    An object that carries `marker` is the verdict: the text could not know the marker. Else
    it is the first object with all three numbers that stands outside the repeated blocks and
    whose numbers are not all named in `material`, the text the model was shown.
    Raises NoVerdict or OutOfRange.
    """
    thoughts, rest = _split_thoughts(reply[:MAX_REPLY_CHARS])
    found = [item for item in _objects(_without_blocks(rest, marker)) if _has_numbers(item)]
    signed = [item for item in found if item.get("marker") == marker]
    planted = _planted(material)
    candidates = signed or [item for item in found if not _is_planted(item, planted)]
    if not candidates:
        raise NoVerdict("no JSON object with truth, indeterminacy and falsehood")
    return _judge_reply(candidates[0], thoughts)


def _judge_reply(item: JsonObject, thoughts: str) -> JudgeReply:
    numbers = _numbers(item)
    if not all(0.0 <= number <= 1.0 for number in numbers):
        raise OutOfRange("a number lies outside [0, 1]")
    reasoning = item.get("reasoning")
    parts = (thoughts, reasoning.strip() if isinstance(reasoning, str) else "")
    said = "\n".join(part for part in parts if part)
    # JSON can spell half a surrogate pair, which no response and no file can hold.
    return JudgeReply(value=Neutrosophic(*numbers), reasoning=without_lone_surrogates(said))


def _split_thoughts(reply: str) -> tuple[str, str]:
    # Not beyond the last end, or each block without one would be searched to the end of the reply.
    closed = max((match.end() for match in _THOUGHT_ENDS.finditer(reply)), default=0)
    thoughts = [thought.strip() for thought in _THOUGHT.findall(reply, 0, closed)]
    rest = _THOUGHT.sub("", reply[:closed]) + reply[closed:]
    # Some templates open the block themselves, so that the answer only closes it.
    if closing := list(_THOUGHT_ENDS.finditer(rest)):
        thoughts.append(rest[: closing[-1].start()].strip())
        rest = rest[closing[-1].end() :]
    if opening := _THOUGHT_STARTS.search(rest):
        thoughts.append(rest[opening.end() :].strip())
        rest = rest[: opening.start()]
    return "\n".join(thought for thought in thoughts if thought), rest


def _without_blocks(reply: str, marker: str) -> str:
    mark = re.escape(marker)
    # A block that the answer leaves open reaches to its end.
    return re.sub(
        rf"\[{mark} (?!end\])[^\]\n]{{0,40}}\].*?(?:\[{mark} end\]|\Z)", "", reply, flags=re.DOTALL
    )


def _planted(material: str) -> tuple[set[float], ...]:
    # Numbers are looked for as text, so that quoting, escaping and nesting cannot hide them.
    squeezed = _NOISE.sub("", material).lower()
    return tuple({float(number) for number in _NAMED[key].findall(squeezed)} for key in _KEYS)


def _objects(text: str) -> Iterator[JsonObject]:
    position, read = text.find("{"), 0
    while position >= 0 and read < _MOST_READ:
        try:
            item, end = _DECODER.raw_decode(text, position)
        except (json.JSONDecodeError, RecursionError) as error:
            # A brace of prose, or nesting too deep to parse; an object may begin at the next one.
            end = position + 1
            # The decoder also counts the lines before a fault, which is fast and yet adds up.
            read += _DEEP if isinstance(error, RecursionError) else error.pos - position
            read += position // _COUNTED_FASTER
        else:
            yield cast("JsonObject", item)
        position = text.find("{", end)


def _is_planted(item: JsonObject, planted: tuple[set[float], ...]) -> bool:
    return all(number in named for number, named in zip(_numbers(item), planted, strict=True))


def _has_numbers(item: JsonObject) -> bool:
    # To Python a bool is an int.
    return all(
        isinstance(item.get(key), int | float) and not isinstance(item[key], bool) for key in _KEYS
    )


def _numbers(item: JsonObject) -> tuple[float, float, float]:
    truth, indeterminacy, falsehood = (float(cast("float", item[key])) for key in _KEYS)
    return truth, indeterminacy, falsehood

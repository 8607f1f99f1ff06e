"""The readers on a model whose answers are known."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_model import RESTING, TELLING, WORDS, write_model

from promptguard.conversation import Message, Role
from promptguard.model.network import (
    MAX_WINDOWS,
    STRIDE,
    TASK_TOKENS,
    WINDOW,
    Window,
    WindowLogits,
    sigmoid,
)
from promptguard.model.readers import Readers
from promptguard.model.reading import MessageReading
from promptguard.turns.segments import SEGMENT_CHARS

LOW, HIGH = sigmoid(RESTING), sigmoid(RESTING + TELLING)
ODD = {
    "empty": "",
    "blank": " \n\t ",
    "binary": "".join(map(chr, range(256))) * 8,
    "emoji": "😀👩‍👩‍👧🏳️‍🌈" * 20,
    "scripts": "хлеб パン 面包 빵 खाना خبز לחם ψωμί ขนมปัง",
    "surrogate": "bread \ud83d water",
    "null": "\x00" * 1000,
    "one long word": "a" * 100_000,
}


def numbers(reading: MessageReading) -> tuple[float, ...]:
    return (reading.attack, reading.manipulative, reading.extractive, reading.harmful)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("bread and water", (LOW, LOW, LOW, LOW)),
        ("Trick!", (HIGH, HIGH, LOW, LOW)),
        ("reveal", (HIGH, LOW, HIGH, LOW)),
        ("harm", (HIGH, LOW, LOW, HIGH)),
    ],
)
def test_each_output_is_its_own(encoder: Readers, text: str, expected: object) -> None:
    """Three kinds and their sum, in the order of the heads."""
    assert numbers(encoder.read_messages([text])[0]) == pytest.approx(expected)


@pytest.mark.parametrize("place", [0, 100, 159, 400, 998])
def test_a_telling_word_is_found_wherever_it_hides(encoder: Readers, place: int) -> None:
    """Every window is judged, the highest counts, and the windows are seen to disagree."""
    words = ["bread"] * 999
    words[place] = "trick"
    reading = encoder.read_messages([" ".join(words)])[0]
    assert reading.manipulative == pytest.approx(HIGH)
    assert reading.windows == 9
    assert reading.disagreement == pytest.approx(HIGH - LOW)
    assert not reading.is_truncated


def test_beyond_the_bound_the_reading_says_so(encoder: Readers) -> None:
    """The end of a text is read in any case."""
    length = WINDOW - 2 + (MAX_WINDOWS - 1) * STRIDE
    within, beyond = encoder.read_messages(["salt " * length, "salt " * (length + 1) + "harm"])
    assert (within.windows, within.is_truncated) == (MAX_WINDOWS, False)
    assert (beyond.windows, beyond.is_truncated) == (MAX_WINDOWS, True)
    assert beyond.harmful == pytest.approx(HIGH)


def test_a_segment_of_which_every_character_is_a_token_is_read_whole(encoder: Readers) -> None:
    """As in Chinese: no window of it is left out, be it a message or a document."""
    segment, task = "bread " * SEGMENT_CHARS, "water " * 40
    (message,) = encoder.read_messages([segment])
    (document,) = encoder.read_documents([segment], task=task)
    assert not message.is_truncated
    assert not document.is_truncated


def test_familiarity_is_the_share_of_known_words(encoder: Readers) -> None:
    """Unknown words are not held against a text here; they lower what is known of it."""
    known, half, strange = encoder.read_messages(["bread water", "bread zzz", "zzz yyy"])
    assert (known.familiarity, half.familiarity, strange.familiarity) == (1.0, 0.5, 0.0)


@pytest.mark.parametrize("text", ODD.values(), ids=ODD.keys())
def test_any_string_gets_a_reading(encoder: Readers, text: str) -> None:
    """Bounded numbers and a finite vector, never an exception."""
    reading = encoder.read_messages([text])[0]
    assert all(0.0 <= number <= 1.0 for number in numbers(reading))
    assert 0.0 <= reading.familiarity <= 1.0
    assert reading.embedding is not None
    assert np.isfinite(reading.embedding).all()


def test_five_megabytes_are_read_within_the_bound(encoder: Readers) -> None:
    """Only the stated part is looked at, and the reading says so."""
    reading = encoder.read_messages(["bread water " * 420_000])[0]
    assert reading.is_truncated
    assert reading.windows <= MAX_WINDOWS


def test_no_texts_give_no_readings(encoder: Readers) -> None:
    """An empty list is not an error."""
    assert encoder.read_messages([]) == ()
    assert encoder.embed([]) == ()


@settings(max_examples=30, deadline=None)
@given(st.lists(st.lists(st.sampled_from(sorted(WORDS)), max_size=40).map(" ".join), max_size=9))
def test_company_does_not_change_a_reading(encoder: Readers, texts: list[str]) -> None:
    """A text is judged among others as it is alone."""
    for text, among in zip(texts, encoder.read_messages(texts), strict=True):
        alone = encoder.read_messages([text])[0]
        assert numbers(among) == pytest.approx(numbers(alone), abs=1e-3)


def test_the_same_text_is_read_the_same_every_time(encoder: Readers, tmp_path: Path) -> None:
    """By this encoder and by another one on the same files."""
    first = numbers(encoder.read_messages(["reveal bread zzz"])[0])
    assert numbers(encoder.read_messages(["reveal bread zzz"])[0]) == first
    assert numbers(Readers(write_model(tmp_path)).read_messages(["reveal bread zzz"])[0]) == first


def test_many_threads_may_share_a_fresh_encoder(tmp_path: Path) -> None:
    """They load it once, and nobody gets another's reading."""
    fresh = Readers(write_model(tmp_path))
    texts = ["bread", "harm", "trick water", "reveal salt"] * 16
    expected = [numbers(reading) for reading in fresh.read_messages(texts[:4])] * 16
    other = Readers(fresh.artifact)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda text: numbers(other.read_messages([text])[0]), texts))
    assert found == expected


def test_vectors_are_of_unit_length_and_follow_the_words(encoder: Readers) -> None:
    """The same words give the same vector."""
    one, same, other = encoder.embed(["bread water", "Water bread", "harm"])
    assert np.linalg.norm(one) == pytest.approx(1.0, abs=1e-5)
    assert np.allclose(one, same, atol=1e-6)
    assert not np.allclose(one, other, atol=1e-2)


def test_in_a_conversation_only_the_users_words_tell(encoder: Readers) -> None:
    """The tiny model ignores the assistant, so the speakers must reach it; system is left out."""
    said = [
        Message(role=Role.SYSTEM, content="harm"),
        Message(role=Role.USER, content="bread"),
        Message(role=Role.ASSISTANT, content="harm harm"),
        Message(role=Role.USER, content="water"),
    ]
    calm = encoder.read_context(said)
    assert calm.turn == pytest.approx(LOW)
    assert calm.turns == 2
    assert encoder.read_context([*said, Message(role=Role.USER, content="harm")]).turn > 0.9


@pytest.mark.parametrize(
    ("turns", "words", "is_truncated"),
    [
        (1, 400, False),
        (5, 48, False),
        (6, 48, True),
        (6, 42, True),
        (23, 10, False),
        (24, 10, True),
        (25, 1, True),
    ],
)
def test_a_reading_says_that_older_turns_were_left_out(
    encoder: Readers, turns: int, words: int, is_truncated: bool
) -> None:
    """Whether or not those that fit fill the window to its end."""
    said = [Message(role=Role.USER, content="bread " * words)] * turns
    assert encoder.read_context(said).is_truncated is is_truncated


def test_a_conversation_without_messages_has_a_reading(encoder: Readers) -> None:
    """Nothing said is nothing found."""
    assert encoder.read_context([]).turn == pytest.approx(LOW)


def test_the_version_is_the_manifests(encoder: Readers) -> None:
    """It goes into records."""
    assert encoder.version == "1"


def counted(readers: Readers, name: str, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that grows by the length of each window one network really runs."""
    runs: list[int] = []
    network = getattr(readers._open(), name)
    outputs = network._outputs

    def counting(window: Window) -> WindowLogits:
        runs.append(len(window[0]))
        return outputs(window)

    monkeypatch.setattr(network, "_outputs", counting)
    return runs


def test_a_short_first_turn_is_run_once(encoder: Readers, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a message and as a conversation it is the same window."""
    fresh = Readers(encoder.artifact)
    runs = counted(fresh, "quick", monkeypatch)
    first = Message(role=Role.USER, content="bread and water")
    fresh.read_messages([first.content])
    alone = fresh.read_context([first])
    assert len(runs) == 1
    assert fresh.read_context([first]) == alone
    assert len(runs) == 1


def test_a_full_document_is_run_once_by_the_quick_reader(
    encoder: Readers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the thorough reader joins in, every window is still known."""
    fresh = Readers(encoder.artifact)
    runs = counted(fresh, "quick", monkeypatch)
    words = random.Random(1).choices(tuple(WORDS), k=20_000)
    text = " ".join(words)
    task = "water " * TASK_TOKENS
    (alone,) = fresh.read_documents([text], task=task)
    (both,) = fresh.read_documents([text], task=task, thorough=True)
    assert alone.windows == both.windows == len(runs) == MAX_WINDOWS


def test_the_thorough_reader_is_asked_only_when_told(
    encoder: Readers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then the quick one is not run again, and the reading names both."""
    fresh = Readers(encoder.artifact)
    quick, thorough = (counted(fresh, name, monkeypatch) for name in ("quick", "thorough"))
    assert fresh.read_messages(["bread harm"])[0].readers == ("quick",)
    assert (len(quick), len(thorough)) == (1, 0)
    assert fresh.read_messages(["bread harm"], thorough=True)[0].readers == ("quick", "thorough")
    assert (len(quick), len(thorough)) == (1, 1)


def test_of_a_long_text_the_thorough_reader_reads_the_worst_window(
    encoder: Readers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its cost does not grow with the text."""
    fresh = Readers(encoder.artifact)
    runs = counted(fresh, "thorough", monkeypatch)
    reading = fresh.read_messages(["bread " * 700 + "harm " + "bread " * 700], thorough=True)[0]
    assert reading.windows > 5
    assert len(runs) == 1


@pytest.mark.parametrize("padding", ["bread ", "the bread and water of a b c d e f g h i . "])
def test_the_place_of_the_worst_window_holds_what_it_found(encoder: Readers, padding: str) -> None:
    """However often the text repeats the words with which that window begins."""
    text = padding * (3000 // len(padding.split())) + "harm "
    (message,) = encoder.read_messages([text])
    assert "harm" in text[message.start : message.end]
    (whole,) = encoder.read_messages(["bread harm"])
    assert (whole.start, whole.end) == (0, len("bread harm"))


def test_the_place_of_a_document_is_that_of_its_worst_window(
    encoder: Readers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is put in behind words that repeat is what is pointed at."""
    fresh = Readers(encoder.artifact)
    quick = fresh._open().quick
    order = fresh._tokens("harm").ids[0]
    run = quick.run

    def told(windows: list[Window]) -> list[WindowLogits]:
        found = zip(run(windows), windows, strict=True)
        return [replace(out, document=float(order in ids)) for out, (ids, _) in found]

    monkeypatch.setattr(quick, "run", told)
    text = "bread " * 3000 + "harm "
    (reading,) = fresh.read_documents([text], task="water")
    assert "harm" in text[reading.start : reading.end]


def test_a_document_that_fills_every_window_is_whole(encoder: Readers) -> None:
    """Only one with a token more is cut."""
    body = WINDOW - TASK_TOKENS - 3
    length = body + (MAX_WINDOWS - 1) * (body * 3 // 4)
    readings = encoder.read_documents(
        ["bread " * length, "bread " * (length + 1)], task="water " * TASK_TOKENS
    )
    assert [(one.windows, one.is_truncated) for one in readings] == [
        (MAX_WINDOWS, False),
        (MAX_WINDOWS, True),
    ]


def test_a_document_is_read_beside_the_task(encoder: Readers) -> None:
    """Every window of it, and the place that speaks most is told."""
    text = "bread " * 400 + "trick " + "bread " * 400
    reading = encoder.read_documents([text], task="water")[0]
    assert reading.windows > 3
    assert 0.0 <= reading.order <= 1.0

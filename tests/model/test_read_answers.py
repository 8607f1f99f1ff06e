"""Pairs of answers, read by a thorough reader that can and by those that cannot."""

from __future__ import annotations

from pathlib import Path

import pytest
from tiny_model import ALONE, BOTH, RESTING, TELLING, write_model, write_reversal_model

from promptguard.conversation import AnswerPair
from promptguard.errors import ModelError
from promptguard.model.artifact import OUTPUTS, REVERSAL
from promptguard.model.network import Window, WindowLogits, sigmoid
from promptguard.model.readers import Readers

# The thorough reader's logits count half in the tiny model.
LOW, HIGH = sigmoid(RESTING / 2), sigmoid((RESTING + TELLING) / 2)
CALM = AnswerPair(asked="bread", earlier="water", pressed="flour", later="salt")
TOLD = AnswerPair(asked="bread", earlier="water", pressed="flour", later="attack")


@pytest.fixture(scope="module")
def readers(tmp_path_factory: pytest.TempPathFactory) -> Readers:
    """Readers whose thorough one reads pairs of answers."""
    return Readers(write_reversal_model(tmp_path_factory.mktemp("reversal")))


def runs_of(readers: Readers, name: str, monkeypatch: pytest.MonkeyPatch) -> list[Window]:
    """Return a list that grows by each window that one network is given."""
    given: list[Window] = []
    network = getattr(readers._open(), name)
    outputs = network._outputs

    def noting(window: Window) -> WindowLogits:
        given.append(window)
        return outputs(window)

    monkeypatch.setattr(network, "_outputs", noting)
    return given


def test_pairs_get_calibrated_probabilities_in_their_order(readers: Readers) -> None:
    """The logits are the thorough reader's, blended as the manifest says."""
    assert readers.read_answers([CALM, TOLD, CALM]) == pytest.approx((LOW, HIGH, LOW))
    assert readers.read_answers([]) == ()


def test_only_what_the_assistant_said_is_its_answer(readers: Readers) -> None:
    """The tiny model counts no word of the user, so the speakers must reach it."""
    asked = AnswerPair(asked="attack", earlier="water", pressed="attack", later="salt")
    assert readers.read_answers([asked]) == pytest.approx((LOW,))


def test_one_thorough_run_is_made_for_each_pair(
    readers: Readers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The quick reader is not asked, and a pair known already costs nothing."""
    fresh = Readers(readers.artifact)
    quick, thorough = (runs_of(fresh, name, monkeypatch) for name in ("quick", "thorough"))
    fresh.read_answers([CALM, TOLD])
    fresh.read_answers([TOLD])
    assert (len(quick), len(thorough)) == (0, 2)


@pytest.mark.parametrize("text", ["", " \n", "a" * 100_000, "😀" * 500, "salt \ud83d", "\x00" * 9])
def test_any_text_may_be_an_answer(readers: Readers, text: str) -> None:
    """Bounded numbers, never an exception."""
    odd = AnswerPair(asked=text, earlier=text, pressed=text, later=text)
    (found,) = readers.read_answers([odd])
    assert 0.0 <= found <= 1.0


def test_the_other_readings_are_those_of_a_model_without_it(
    readers: Readers, encoder: Readers
) -> None:
    """A further output changes nothing else."""
    texts = ["bread and water", "trick harm"]
    for thorough in (False, True):
        ours = readers.read_messages(texts, thorough=thorough)
        theirs = encoder.read_messages(texts, thorough=thorough)
        assert [one.attack for one in ours] == [one.attack for one in theirs]
    assert readers.thresholds[REVERSAL] == 0.8


def test_a_model_without_the_output_says_so(encoder: Readers) -> None:
    """What to do instead is in the message."""
    assert not encoder.has_reversal
    with pytest.raises(ModelError, match="by rules only"):
        encoder.read_answers([CALM])


def test_a_manifest_of_another_graph_is_refused(tmp_path: Path) -> None:
    """Without the output every pair would otherwise look harmless."""
    fits = {name: {"alone": ALONE, "both": BOTH} for name in (*OUTPUTS, REVERSAL)}
    readers = Readers(write_model(tmp_path, calibration=fits))
    assert readers.has_reversal
    with pytest.raises(ModelError, match="another model"):
        readers.read_answers([CALM])


def test_without_the_thorough_reader_there_is_none(readers: Readers, tmp_path: Path) -> None:
    """Its calibration alone reads nothing."""
    whole = write_reversal_model(tmp_path).manifest
    kept = {name: digest for name, digest in whole.sha256.items() if "thorough" not in name}
    fits = {name: fit.model_dump() for name, fit in whole.calibration.items()}
    quick = Readers(write_model(tmp_path / "quick", sha256=kept, calibration=fits))
    assert not quick.has_reversal
    with pytest.raises(ModelError):
        quick.read_answers([CALM])

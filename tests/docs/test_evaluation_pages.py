"""The pages on evaluation say what the code does."""

import importlib.util
import re
import sys
from pathlib import Path

import promptguard.errors
from promptguard.core.ensemble import MERGES
from promptguard.errors import PromptGuardError
from promptguard.evaluators.prompts import evaluation_prompts

DOCS = Path(__file__).parents[2] / "docs"


def load(path: Path):
    spec = importlib.util.spec_from_file_location(f"documented_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_the_configuration_page_is_what_the_settings_say() -> None:
    """Write it anew with `python -m docs.settings_page` after a change."""
    assert (DOCS / "configuration.md").read_text() == load(DOCS / "settings_page.py").page()


def test_the_published_merge_rates_are_reproduced() -> None:
    """TPR and FPR at F >= 0.7 of four recorded models, as the original's results had them."""
    example = load(DOCS / "examples" / "recorded_ensemble.py")
    items = example.records()
    found = {
        strategy: tuple(
            round(share.found / share.of, 3)
            for share in example.rates(items, example.merged_detects(strategy))
        )
        for strategy in example.STRATEGIES
    }
    assert found == {
        "max_falsehood": (0.864, 0.284),
        "voting": (0.724, 0.091),
        "average": (0.321, 0.013),
    }


def test_the_evaluation_page_shows_what_the_example_prints() -> None:
    """Between its markers."""
    page = (DOCS / "evaluation.md").read_text()
    shown = re.search(r"<!-- recorded_ensemble -->\n(.*)\n<!-- /recorded", page, re.DOTALL)[1]
    assert shown == load(DOCS / "examples" / "recorded_ensemble.py").table()


def test_the_evaluation_page_names_every_type_and_strategy() -> None:
    """Nothing registered is left out."""
    page = (DOCS / "evaluation.md").read_text()
    for name in (*evaluation_prompts().names()[:5], *MERGES.names()[:4]):
        assert f"`{name}`" in page


def test_the_error_page_names_every_error() -> None:
    """One row each."""
    page = (DOCS / "errors.md").read_text()
    for name, item in vars(promptguard.errors).items():
        if isinstance(item, type) and issubclass(item, PromptGuardError):
            assert f"| `{name}`" in page

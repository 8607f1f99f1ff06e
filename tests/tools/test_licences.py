"""The page of licences is what the lock, the installed packages and the manifest say."""

import json
from email.message import Message

import pytest

from tools.licences import LOCK, MODEL, PAGE, licence_of, locked, model_part, page


def package(**fields: str) -> Message:
    message = Message()
    for name, value in fields.items():
        message[name.replace("_", "-")] = value
    return message


def test_the_page_is_up_to_date() -> None:
    """Write it anew with `make licences` after `make lock` or a new model."""
    assert PAGE.read_text("utf-8") == page()


def test_every_locked_package_is_listed_with_a_licence() -> None:
    """None is left to look up."""
    text = PAGE.read_text("utf-8")
    for name, version in locked(LOCK.read_text("utf-8")):
        assert f"| {name} | {version} | " in text
    assert "see the package" not in text


def test_data_without_a_licence_is_refused() -> None:
    """A model trained on something unknown cannot be listed."""
    manifest = {**json.loads(MODEL.read_text("utf-8")), "data": {"unheard_of": 3}}
    with pytest.raises(KeyError, match="unheard_of"):
        model_part(manifest, {"bases": {}, "data": {}, "parallel": {}})


def test_a_licence_is_a_name_not_a_text() -> None:
    """The expression first, then the name, then the classifiers."""
    text = "MIT License\n\nPermission is hereby granted"
    assert licence_of(package(License_Expression="MIT", License="other")) == "MIT"
    assert licence_of(package(License="BSD-3-Clause")) == "BSD-3-Clause"
    classifier = "License :: OSI Approved :: MIT License"
    assert licence_of(package(License=text, Classifier=classifier)) == "MIT License"

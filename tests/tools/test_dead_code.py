"""The dead-code check reports unused functions, not fields that are read by name."""

from types import SimpleNamespace

from tools.dead_code import ROOT, allowed_names, is_reported

FILE = ROOT / "src" / "promptguard" / "config.py"


def item(typ: str, line: str, file=FILE):
    number = next(
        number for number, text in enumerate(file.read_text().splitlines(), 1) if line in text
    )
    return SimpleNamespace(filename=str(file), typ=typ, first_lineno=number)


def test_functions_and_module_constants_are_reported() -> None:
    """Those are called or read by their names in code."""
    assert is_reported(item("function", "def load_settings"))
    assert is_reported(SimpleNamespace(filename=str(FILE), typ="variable", first_lineno=1))


def test_fields_and_foreign_files_are_not() -> None:
    """Fields are read from templates and files; callers outside the package are not judged."""
    assert not is_reported(item("variable", "    port: int"))
    assert not is_reported(SimpleNamespace(filename=str(ROOT / "x.py"), typ="function"))


def test_exceptions_are_plain_names() -> None:
    """Comments and the docstring say why."""
    assert allowed_names('"""Why."""\n# click\nget_command\nprocess_turn\n') == {
        "get_command",
        "process_turn",
    }

"""The duplicates check finds what stands twice and leaves out what may."""

from tools.duplicates import code_lines, duplicates

BLOCK = "".join(f"value_{number} = {number}\n" for number in range(12))


def found(*sources: str) -> list[str]:
    files = [code_lines(f"{number}.py", source) for number, source in enumerate(sources)]
    return [str(item) for item in duplicates(files, 12)]


def test_twelve_equal_lines_are_found_once() -> None:
    """With both places and the whole length, whatever the indentation and blank lines."""
    other = "def f():\n" + "".join(f"    {line}\n\n" for line in BLOCK.splitlines())
    assert found(BLOCK, other) == ["0.py:1 = 1.py:2: 12 lines"]
    assert found(BLOCK + "more = 1\n", BLOCK + "more = 1\n") == ["0.py:1 = 1.py:1: 13 lines"]


def test_eleven_equal_lines_are_not_found() -> None:
    """The bound is twelve."""
    assert not found(BLOCK, BLOCK.replace("value_5 = 5", "value_5 = 6"))


def test_imports_comments_and_docstrings_do_not_count() -> None:
    """They repeat for good reasons."""
    repeated = "import os\n" * 12 + "# why\n" * 12 + '"""Text."""\n' * 12
    assert not found(repeated, repeated)

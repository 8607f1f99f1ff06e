"""The languages that are known: the bundled folders and those added from elsewhere.

A language is one folder with a file per section; a section it lacks is simply not covered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import ParamSpec, TypeVar, cast

from promptguard.errors import DataError
from promptguard.patterns.pack import Pack, compiled, parse_concepts, parse_pack

# The first matching pattern of several languages decides a span, so that their order is fixed.
_FIRST = ("en", "ja", "zh", "ko", "es", "fr", "de", "ru")
_P = ParamSpec("_P")
_T = TypeVar("_T")
_SECTIONS = frozenset({"rules", "structure", "phrases", "lexicon", "rubric", "stopwords"})
_CONCEPTS = "concepts"
# Sections whose entries are searched for by their patterns, and by nothing else.
_MATCHED = frozenset({"rules", "structure"})
_added: dict[str, Path] = {}
_caches: list[Callable[[], None]] = []
_checks: dict[str, Callable[[Pack], object]] = {}


def codes(section: str) -> tuple[str, ...]:
    """Return the codes of the languages that have `section`, in a fixed order."""
    return tuple(code for code, folder in _folders().items() if _file(folder, section).is_file())


def packs(section: str, languages: Iterable[str] | None = None) -> tuple[Pack, ...]:
    """Read one section of every language, or of `languages`; raises DataError for an unknown."""
    known = codes(section)
    chosen = known if languages is None else tuple(languages)
    for code in chosen:
        if code not in known:
            raise DataError(f"There is no {section} pack {code!r}; known: {', '.join(known)}.")
    return tuple(_pack(code, section) for code in chosen)


def add_language(folder: str | Path) -> str:
    """Add a language folder for this process and return its code, the folder's name.

    Each file is read at once, so that a fault is a DataError here; a folder added before is
    read again. Bundled languages cannot be replaced.
    """
    path = Path(folder)
    if path.name in _bundled():
        raise DataError(f"The language {path.name} is bundled; give the folder another name.")
    found = sorted(path.glob("*.toml"))
    if not found:
        raise DataError(f"{path} is no language folder: it has no *.toml.")
    for item in found:
        _check(path.name, item)
    # Only now: a folder with a fault in any file is not added at all.
    _added[path.name] = path.resolve()
    forget()
    return path.name


def on_new(section: str, check: Callable[[Pack], object]) -> None:
    """Call `check` on that section of a language that is to be added; it raises DataError."""
    _checks[section] = check


def on_change(clear: Callable[[], None]) -> None:
    """Call `clear` when a language is added: for caches of what texts say in all languages."""
    _caches.append(clear)


def forget() -> None:
    """Drop what was cached of the languages, so that they are read again."""
    for clear in _caches:
        clear()


def section_text(code: str, section: str) -> str:
    """Return one file of a known language as it stands."""
    return _file(_folders()[code], section).read_text(encoding="utf-8")


def language_cache(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """Cache a function of hashable arguments until a language is added."""
    cached = cache(function)
    _caches.append(cached.cache_clear)
    # What `cache` returns takes any arguments as far as types go; ours are the function's.
    return cast("Callable[_P, _T]", cached)


@language_cache
def _pack(code: str, section: str) -> Pack:
    return _read(code, section, section_text(code, section))


def _check(code: str, file: Path) -> None:
    """Raise DataError for a file of a new folder that would fail once it is used."""
    try:
        source = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"Cannot read {file}: {error}.") from None
    if file.stem == _CONCEPTS:
        parse_concepts(source, str(file))
        return
    if file.stem not in _SECTIONS:
        raise DataError(f"{file} is no section of a language.")
    pack = _read(code, file.stem, source)
    for entry in pack.entries:
        if file.stem in _MATCHED or entry.patterns:
            compiled(entry.pattern, entry)
        for pattern in entry.unless:
            compiled(pattern, entry)
    if check := _checks.get(file.stem):
        check(pack)


def _read(code: str, section: str, source: str) -> Pack:
    pack = parse_pack(source, f"{code}/{section}.toml")
    if pack.language != code:
        raise DataError(f"{code}/{section}.toml says that its language is {pack.language!r}.")
    return pack


@language_cache
def _folders() -> dict[str, Traversable]:
    found: dict[str, Traversable] = {**_bundled(), **_added}
    order = (*_FIRST, *sorted(found.keys() - set(_FIRST)))
    return {code: found[code] for code in order if code in found}


@cache
def _bundled() -> dict[str, Traversable]:
    root = files("promptguard").joinpath("data/lang")
    return {folder.name: folder for folder in root.iterdir() if folder.is_dir()}


def _file(folder: Traversable, section: str) -> Traversable:
    return folder.joinpath(f"{section}.toml")

"""Where named parts (signals, merge strategies, stores ...) are kept and found."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint, entry_points
from typing import Generic, TypeVar

from promptguard.errors import ConfigError

T = TypeVar("T")


class Registry(Generic[T]):
    """Names to parts of one kind; unknown names raise a ConfigError that lists the known ones.

    Installed packages add parts through the entry point group `promptguard.<kind>`; they are
    loaded at the first look-up, never at import.
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._parts: dict[str, T] = {}
        self._entry_points_loaded = False

    def register(self, name: str) -> Callable[[T], T]:
        """Return a decorator that files its argument under `name`."""

        def file(part: T) -> T:
            if name in self._parts:
                raise ConfigError(f"{self.kind} {name!r} is registered twice; choose another name.")
            self._parts[name] = part
            return part

        return file

    def get(self, name: str) -> T:
        """Return the part called `name`."""
        self._load_entry_points()
        try:
            return self._parts[name]
        except KeyError:
            known = ", ".join(sorted(self._parts)) or "none"
            raise ConfigError(f"Unknown {self.kind} {name!r}; known: {known}.") from None

    def names(self) -> tuple[str, ...]:
        """Return every known name, in order of registration."""
        self._load_entry_points()
        return tuple(self._parts)

    def __iter__(self) -> Iterator[tuple[str, T]]:
        self._load_entry_points()
        return iter(tuple(self._parts.items()))

    def __contains__(self, name: object) -> bool:
        self._load_entry_points()
        return name in self._parts

    def _load_entry_points(self) -> None:
        if self._entry_points_loaded:
            return
        for point in entry_points(group=f"promptguard.{self.kind.replace(' ', '_')}"):
            # A package cannot put its part in the place of a built-in one.
            if point.name not in self._parts:
                self._parts[point.name] = self._loaded(point)
        # Set last: after a failed load the next look-up fails again instead of missing parts.
        self._entry_points_loaded = True

    def _loaded(self, point: EntryPoint) -> T:
        try:
            part: T = point.load()
        except Exception as error:
            package = point.dist.name if point.dist else "an installed package"
            raise ConfigError(
                f"The {self.kind} {point.name!r} of {package} cannot be loaded "
                f"({type(error).__name__}); mend or uninstall that package."
            ) from error
        return part

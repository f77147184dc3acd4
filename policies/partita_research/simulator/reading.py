"""Reads YAML files of users; errors contain the file, the line and what was expected."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import yaml

__all__ = ["Entry", "InputError", "parse", "read"]

_LARGEST = 1e12
"""Upper bound of every number. As MiB, it fits in 64 bits as bytes; as seconds, it is 30,000
years."""


class InputError(ValueError):
    """A file is invalid; the message has the place and what was expected."""

    def __init__(self, source: str, line: int, problem: str) -> None:
        self.source = source
        self.line = line
        super().__init__(f"{source}:{line}: {problem}")


class Entry:
    """A value in a file, with its position.

    Parameters
    ----------
    source
        Name of the file.
    path
        Path in the document, for messages: `jobs[2].count`.
    node
        The YAML node of the value.
    """

    def __init__(self, source: str, path: str, node: yaml.Node) -> None:
        self._source = source
        self._path = path
        self._node = node

    def error(self, problem: str) -> InputError:
        """Return an error about this value."""
        line = self._node.start_mark.line + 1
        where = f"{self._path}: " if self._path else ""
        return InputError(self._source, line, where + problem)

    def fields(self, required: Sequence[str], optional: Sequence[str] = ()) -> "dict[str, Entry]":
        """Return the entries of a mapping with these required and optional keys.

        Raises
        ------
        InputError
            It is not a mapping, or a key is missing, unknown or repeated.
        """
        known = (*required, *optional)
        if not isinstance(self._node, yaml.MappingNode):
            raise self.error(f"expected a mapping with {', '.join(known)}")
        found: dict[str, Entry] = {}
        for key, value in self._node.value:
            entry = Entry(self._source, self._path, key)
            name = str(key.value)
            if name not in known:
                raise entry.error(f"{name}: unknown; expected {', '.join(known)}")
            if name in found:
                raise entry.error(f"{name}: stands here twice")
            path = f"{self._path}.{name}" if self._path else name
            found[name] = Entry(self._source, path, value)
        missing = [name for name in required if name not in found]
        if missing:
            raise self.error(f"{', '.join(missing)}: missing; expected {', '.join(known)}")
        return found

    def items(self, what: str) -> "list[Entry]":
        """Return the entries of a list that is not empty.

        Raises
        ------
        InputError
            It is not a list, or it is empty.
        """
        if not isinstance(self._node, yaml.SequenceNode):
            raise self.error(f"expected a list of {what}")
        if not self._node.value:
            raise self.error(f"is empty; expected at least one of the {what}")
        return list(self._items())

    def text(self) -> str:
        """Return a string that is not empty.

        Raises
        ------
        InputError
            The value is anything else.
        """
        value = self._scalar()
        if not isinstance(value, str) or not value:
            raise self.error(f"{self._shown()}: expected a text")
        return value

    def number(self, least: float = 0.0, most: float = _LARGEST, *, above: bool = False) -> float:
        """Return a number within bounds.

        Parameters
        ----------
        least, most
            The bounds, inclusive.
        above
            Exclude `least` itself.

        Raises
        ------
        InputError
            The value is not a number, or is out of bounds.
        """
        value = self._scalar()
        if isinstance(value, int | float) and not isinstance(value, bool):
            inside = least <= value <= most and not (above and value == least)
            if inside:  # False for NaN
                return float(value)
        bounds = f"above {least:g}" if above else f"of {least:g} or more"
        raise self.error(f"{self._shown()}: expected a number {bounds}, at most {most:g}")

    def whole(self, least: int = 1, most: int = 1_000_000) -> int:
        """Return a whole number within bounds, inclusive.

        Raises
        ------
        InputError
            The value is anything else.
        """
        value = self._scalar()
        if isinstance(value, int) and not isinstance(value, bool) and least <= value <= most:
            return value
        expected = f"expected a whole number of {least} or more, at most {most}"
        raise self.error(f"{self._shown()}: {expected}")

    def flag(self) -> bool:
        """Return true or false.

        Raises
        ------
        InputError
            The value is anything else.
        """
        value = self._scalar()
        if isinstance(value, bool):
            return value
        raise self.error(f"{self._shown()}: expected true or false")

    def _items(self) -> "Iterator[Entry]":
        for index, node in enumerate(self._node.value):
            yield Entry(self._source, f"{self._path}[{index}]", node)

    def _scalar(self) -> object:
        if not isinstance(self._node, yaml.ScalarNode):
            return None
        value: object = yaml.safe_load(yaml.serialize(self._node))
        return value

    def _shown(self) -> str:
        if isinstance(self._node, yaml.ScalarNode):
            return str(self._node.value) or "nothing"
        return "a list" if isinstance(self._node, yaml.SequenceNode) else "a mapping"


def parse(text: str, source: str) -> Entry:
    """Parse a document.

    Raises
    ------
    InputError
        The text is not YAML, or is empty.
    """
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        raise InputError(source, line, f"expected YAML: {error.problem}") from error
    except yaml.YAMLError as error:
        raise InputError(source, 1, f"expected YAML: {error}") from error
    except RecursionError as error:
        raise InputError(source, 1, "expected YAML that is nested less deeply") from error
    if node is None:
        raise InputError(source, 1, "the file is empty; expected YAML")
    return Entry(source, "", node)


def read(path: Path) -> Entry:
    """Read a file.

    Raises
    ------
    InputError
        The file cannot be read, or is not YAML.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(str(path), 1, f"cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(str(path), 1, "expected text in UTF-8") from error
    return parse(text, str(path))

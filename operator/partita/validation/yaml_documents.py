"""A YAML reader that behaves like kubectl: it returns JSON values, each with its line.

YAML without an equivalent in JSON (tags, endless aliases, keys that are not text) results in an
error with its line, not in an exception. As in sigs.k8s.io/yaml, and unlike PyYAML, times and
`1:30` are text, `1e3` is a number, and a duplicate key in a mapping is an error.
"""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import yaml
from typing_extensions import override
from yaml.constructor import ConstructorError, SafeConstructor
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from partita.models.json_text import MAX_DEPTH
from partita.validation.field_errors import Path

__all__ = ["Document", "Problem", "read_documents"]

_MAX_VALUES: Final = 200_000
"""Maximum number of values of one document with its aliases expanded. A file with more could
exhaust memory."""
_TAG: Final = "tag:yaml.org,2002:"
_EXPONENT: Final = re.compile(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+")
_LARGEST: Final = 1 << 63


@dataclass(frozen=True, slots=True)
class Problem:
    """An error on a line, counted from 1."""

    line: int
    message: str


@dataclass(slots=True)
class Document:
    """One document of a file.

    Attributes
    ----------
    value
        Its content as JSON.
    lines
        The line of each value.
    problems
        Errors in its YAML.
    """

    value: Any
    lines: dict[Path, int] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def line(self, location: Path) -> int:
        """Return the line of a value, or of the closest enclosing value that exists."""
        for length in range(len(location), -1, -1):
            found = self.lines.get(location[:length])
            if found is not None:
                return found
        return 1


class _DocumentLoader(yaml.SafeLoader):
    """Ends at brackets that are too deep: PyYAML looks at all open ones again at each token."""

    @override
    def fetch_flow_collection_start(self, token_class: Any) -> None:
        if self.flow_level > MAX_DEPTH:
            raise RecursionError
        super().fetch_flow_collection_start(token_class)


class _InvalidDocumentError(Exception):
    """A document that cannot be converted to JSON."""

    def __init__(self, node: Node, message: str) -> None:
        super().__init__(message)
        self.problem = Problem(node.start_mark.line + 1, message)


def read_documents(content: bytes) -> Iterator[Document | Problem]:
    """Yield a file's documents. A problem that prevents reading the rest comes last."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        byte = content[error.start]
        yield Problem(line, f"byte 0x{byte:02x} is not UTF-8: save the file as UTF-8")
        return
    loader = None
    try:
        loader = _DocumentLoader(text)
        while loader.check_node():
            root = loader.get_node()
            if root is not None:
                yield _document(root)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        said = ", ".join(part for part in (error.context, error.problem) if part)
        yield Problem(mark.line + 1 if mark else 1, f"is no YAML: {said}")
    except yaml.reader.ReaderError as error:
        at = error.position if isinstance(error.position, int) else 0
        line = text.count("\n", 0, at) + 1
        yield Problem(line, f"is no YAML: character U+{ord(text[at]):04X} is not allowed")
    except RecursionError:
        line = loader.line + 1 if loader is not None else 1
        yield Problem(line, f"is nested too deeply: {MAX_DEPTH} levels are the most")
    except (ValueError, yaml.YAMLError) as error:
        yield Problem(loader.line + 1 if loader is not None else 1, f"is no YAML: {error}")


def _document(root: Node) -> Document:
    reading = _Reading()
    try:
        value = reading.value(root, ())
    except _InvalidDocumentError as error:
        return Document(None, reading.lines, [*reading.problems, error.problem])
    return Document(value, reading.lines, reading.problems)


class _Reading:
    """Converts the nodes of one document to JSON."""

    def __init__(self) -> None:
        self.lines: dict[Path, int] = {}
        self.problems: list[Problem] = []
        self._values = 0
        self._scalars = SafeConstructor()
        self._open: set[int] = set()

    def value(self, node: Node, at: Path) -> Any:
        self.lines.setdefault(at, node.start_mark.line + 1)
        self._values += 1  # also those merged into one another, which add no lines
        if self._values > _MAX_VALUES:
            raise _InvalidDocumentError(
                node, "its aliases make it too large: write them out, or fewer"
            )
        if len(at) > MAX_DEPTH:
            raise _InvalidDocumentError(
                node, f"is nested too deeply: {MAX_DEPTH} levels are the most"
            )
        if isinstance(node, ScalarNode):
            return self._scalar(node)
        if id(node) in self._open:
            raise _InvalidDocumentError(node, "contains itself by an alias: write it out")
        self._open.add(id(node))
        try:
            if isinstance(node, SequenceNode) and node.tag == _TAG + "seq":
                return [self.value(item, (*at, i)) for i, item in enumerate(node.value)]
            if isinstance(node, MappingNode) and node.tag == _TAG + "map":
                return self._mapping(node, at)
        finally:
            self._open.discard(id(node))
        raise _InvalidDocumentError(
            node, f"tag {_shown(node.tag)} means nothing to Kubernetes: remove it"
        )

    def _mapping(self, node: MappingNode, at: Path) -> dict[str, Any]:
        result: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if key_node.tag == _TAG + "merge":
                for key, value in self._merge(value_node, at).items():
                    merged.setdefault(key, value)
                continue
            key = self._key(key_node)
            line = key_node.start_mark.line + 1
            if key in result:
                self.problems.append(
                    Problem(line, f"{key} stands twice in this mapping: remove one of them")
                )
            self.lines[*at, key] = line
            result[key] = self.value(value_node, (*at, key))
        return {**merged, **result}

    def _merge(self, node: Node, at: Path) -> Mapping[str, Any]:
        if isinstance(node, MappingNode):
            found = self.value(node, at)
        elif isinstance(node, SequenceNode):
            parts = [self._merge(item, at) for item in node.value]
            found = {key: value for part in reversed(parts) for key, value in part.items()}
        else:
            found = None
        if not isinstance(found, dict):
            raise _InvalidDocumentError(node, "<< takes a mapping, or a list of mappings")
        return found

    def _key(self, node: Node) -> str:
        key = self._scalar(node) if isinstance(node, ScalarNode) else None
        match key:
            case bool():
                return "true" if key else "false"
            case str():
                return key
            case int() | float():
                return str(key)
            case _:
                raise _InvalidDocumentError(
                    node, "a key must be text: write a word, or put it in quotes"
                )

    def _scalar(self, node: ScalarNode) -> Any:
        kind, text = node.tag.removeprefix(_TAG), node.value
        try:
            match kind:
                case "str":
                    if node.style is None and _EXPONENT.fullmatch(text):
                        return _finite(node, float(text))
                    return _characters(node, text)
                case "timestamp" | "value" | "merge":
                    return _characters(node, text)
                case "null":
                    return None
                case "bool":
                    return self._scalars.construct_yaml_bool(node)
                case "int" | "float" if ":" in text:
                    return text
                case "int":
                    return _integer(node, self._scalars)
                case "float":
                    return _finite(node, self._scalars.construct_yaml_float(node))
                case _:
                    pass
        except (ValueError, KeyError, IndexError, ConstructorError) as error:
            raise _InvalidDocumentError(
                node, f"{text[:60]!r} is no {kind}: put it in quotes"
            ) from error
        raise _InvalidDocumentError(
            node, f"tag {_shown(node.tag)} means nothing to Kubernetes: remove it"
        )


def _integer(node: ScalarNode, scalars: SafeConstructor) -> int | float:
    if len(node.value) > 400:
        raise _InvalidDocumentError(node, "is no number that JSON has: put it in quotes")
    number = int(scalars.construct_yaml_int(node))
    # Integers in Kubernetes' JSON have 64 bits. It reads larger ones as floating-point numbers.
    return number if -_LARGEST <= number < _LARGEST else _finite(node, float(number))


def _finite(node: Node, number: float) -> float:
    if not math.isfinite(number):
        raise _InvalidDocumentError(node, "is no number that JSON has: put it in quotes")
    return number


def _characters(node: Node, text: str) -> str:
    try:  # JSON may write a character as a pair of surrogates
        return text.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError as error:
        raise _InvalidDocumentError(
            node, "half of a surrogate pair is no character: write the whole one"
        ) from error


def _shown(tag: str) -> str:
    return tag.replace(_TAG, "!!")

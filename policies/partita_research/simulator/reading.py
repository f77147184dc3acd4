"""Reads YAML files of users into models; errors have the file, the line and what was expected."""

from collections.abc import Sequence
from typing import Any, Generic, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

__all__ = ["Entry", "InputError", "ParsedFile"]


class InputError(ValueError):
    """A file is invalid; the message has the place and what was expected."""


class Entry(BaseModel):
    """A mapping in a file: unknown keys and values of another type are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _check_keys(cls, value: Any) -> Any:
        known = ", ".join(cls.model_fields)
        if not isinstance(value, dict):
            raise ValueError(f"expected a mapping with {known}")  # noqa: TRY004 - for pydantic
        if unknown := [str(key) for key in value if key not in cls.model_fields]:
            raise ValueError(f"{', '.join(unknown)}: unknown; expected {known}")
        required = [name for name, field in cls.model_fields.items() if field.is_required()]
        if missing := [name for name in required if name not in value]:
            raise ValueError(f"{', '.join(missing)}: missing; expected {known}")
        return value


Content = TypeVar("Content", bound=Entry)


class ParsedFile(Generic[Content]):
    """The content of a YAML file, and where its values are.

    Parameters
    ----------
    model
        Model of its content.
    source
        Name of the file.

    Raises
    ------
    InputError
        The text is not YAML, or not what the model says.
    """

    def __init__(self, model: type[Content], text: str, source: str) -> None:
        self._source = source
        try:
            loader = yaml.SafeLoader(text)
            root = loader.get_single_node()
            if root is None:
                raise InputError(f"{source}:1: the file is empty; expected YAML")
            self._check_repeats(root)
            value = loader.construct_document(root)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            line = mark.line + 1 if mark else 1
            raise InputError(f"{source}:{line}: expected YAML: {error.problem}") from error
        except yaml.YAMLError as error:
            raise InputError(f"{source}:1: expected YAML: {error}") from error
        except RecursionError as error:
            raise InputError(f"{source}:1: expected YAML that is nested less deeply") from error
        self._root: yaml.Node = root
        try:
            self.content = model.model_validate(value)
        except ValidationError as error:
            problem = error.errors(include_url=False)[0]
            raise self.error(problem["loc"], problem["msg"]) from error

    def error(self, location: Sequence[str | int], problem: str) -> InputError:
        """Return an error about a value.

        Parameters
        ----------
        location
            Keys and indices that lead to the value.
        """
        node, path = self._root, ""
        for part in location:
            path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else part
            node = _child(node, part)
        shown = f" {node.value}" if isinstance(node, yaml.ScalarNode) else ""
        said = problem.removeprefix("Value error, ").replace("Input should", f"{shown} should")
        where = f"{path}: " if path else ""
        return InputError(f"{self._source}:{node.start_mark.line + 1}: {where}{said.strip()}")

    def _check_repeats(self, node: yaml.Node) -> None:
        """Reject keys that stand twice in a mapping, of which YAML takes the last."""
        if isinstance(node, yaml.MappingNode):
            seen: set[str] = set()
            for key, value in node.value:
                name = str(key.value)  # a key may be a list, which is refused later
                if name in seen:
                    line = key.start_mark.line + 1
                    raise InputError(f"{self._source}:{line}: {name}: stands here twice")
                seen.add(name)
                self._check_repeats(value)
        elif isinstance(node, yaml.SequenceNode):
            for value in node.value:
                self._check_repeats(value)


def _child(node: yaml.Node, part: str | int) -> yaml.Node:
    if isinstance(node, yaml.MappingNode):
        return next((value for key, value in node.value if key.value == part), node)
    return node.value[part] if isinstance(node, yaml.SequenceNode) else node

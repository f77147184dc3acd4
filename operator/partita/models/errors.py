"""Messages for validation errors of objects, with corrections."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from pydantic import ValidationError
from typing_extensions import override

__all__ = ["FieldProblem", "describe", "field_problems", "text_path"]

_MOST_SHOWN = 5
_LONGEST_QUOTE = 60

_MESSAGES = {
    "missing": "is missing: write it",
    "greater_than_equal": "must be at least {ge}, not {input}: write a larger number",
    "less_than_equal": "must be at most {le}, not {input}: write a smaller number",
    "string_too_short": "must not be empty: write a text",
    "string_too_long": "is too long: write at most {max_length} characters",
    "too_short": "needs at least {min_length} of them: write more",
    "too_long": "has too many: write at most {max_length}",
    "enum": "must be {expected}, not {input}: write one of these",
    "literal_error": "must be {expected}, not {input}: write one of these",
    "string_type": "must be a text, not {input}: write it in quotes",
    "string_pattern_mismatch": "must match {pattern}, not be {input}: write such a text",
    "bool_type": "must be true or false, not {input}: write one of these",
    "bool_parsing": "must be true or false, not {input}: write one of these",
    "int_type": "must be a whole number, not {input}: write one",
    "int_parsing": "must be a whole number, not {input}: write one",
    "int_from_float": "must be a whole number, not {input}: write one",
    "float_type": "must be a number, not {input}: write one",
    "float_parsing": "must be a number, not {input}: write one",
    "tuple_type": "must be a list: write its items with a leading dash each",
    "dict_type": "must be a mapping: write keys and values below it",
    "model_type": "must be a mapping: write its fields below it",
    "value_error": "{error}",
}
"""Message by pydantic error type, https://docs.pydantic.dev/latest/errors/validation_errors/."""


class FieldProblem(NamedTuple):
    """An error at a field, with a correction."""

    path: tuple[str | int, ...]
    message: str

    @override
    def __str__(self) -> str:
        return f"{text_path(self.path) or 'the object'}: {self.message}"


def describe(error: ValidationError) -> str:
    """Return the fields with errors, the errors and corrections, in one sentence.

    Parameters
    ----------
    error
        Error that a model raised for an object of the API server or of a file.

    Returns
    -------
    str
        A text such as `spec.gpuMemory: '4Gb' is no quantity: write an amount such as 4Gi or 512Mi`;
        several errors are separated by semicolons.
    """
    problems = field_problems(error)
    shown = [str(problem) for problem in problems[:_MOST_SHOWN]]
    if len(problems) > _MOST_SHOWN:
        shown.append(f"and {len(problems) - _MOST_SHOWN} more")
    return "; ".join(shown)


def field_problems(error: ValidationError) -> tuple[FieldProblem, ...]:
    """Return the fields with errors, with the errors and corrections."""
    return tuple(FieldProblem(e["loc"], _message(e)) for e in error.errors(include_url=False))


def text_path(path: Sequence[str | int], bracketed: type | tuple[type, ...] = int) -> str:
    """Return the path of a field in kubectl's notation, such as `spec.slices[0].memory`.

    Parameters
    ----------
    bracketed
        Types of the parts that are written in brackets.
    """
    parts = (f"[{part}]" if isinstance(part, bracketed) else f".{part}" for part in path)
    return "".join(parts).removeprefix(".")


def _message(error: Any) -> str:
    template = _MESSAGES.get(error["type"])
    if template is None:
        return f"{error['msg']}: write something else"
    written = repr(error["input"])
    if len(written) > _LONGEST_QUOTE:
        written = written[:_LONGEST_QUOTE] + "..."
    return template.format(input=written, **error.get("ctx", {}))

import pytest

from partita.validation.cel import RuleError, activation, compile_rule
from partita.validation.schema import Schema, SchemaError, compile_schema
from partita.validation.values import validate


def failure(rule: str, value, old=..., **entry) -> str | None:
    return compile_rule({"rule": rule} | entry).failure(activation(value, old))


@pytest.mark.parametrize(
    ("rule", "value"),
    [
        ("self.a > 1 && self.b.startsWith('x')", {"a": 2, "b": "xy"}),
        ("self.all(x, x > 0) && self.exists(x, x == 2)", [1, 2]),
        ("has(self.a) ? self.a == 1 : true", {}),
        ("self.split(',').size() == 2 && self.lowerAscii() == 'a,b'", "A,b"),
        ("duration(self) > duration('1m')", "90s"),
        ("isQuantity(self) && quantity(self).isGreaterThan(quantity('1Gi'))", "2Gi"),
        ("!isQuantity(self)", "2Gb"),
        ("quantity(self) == quantity('1Gi')", "1024Mi"),
        ("quantity(self).compareTo(quantity('0.5')) == 0", "500m"),
        ("self.?a.orValue(1) == 1", {}),
    ],
)
def test_rules_that_hold(rule, value):
    assert failure(rule, value) is None


def test_a_broken_rule_says_its_message():
    assert failure("self > 1", 1, message="write 2") == "write 2"
    assert failure("self > 1", 1) == "failed rule: self > 1"


@pytest.mark.parametrize(
    ("rule", "value", "why"),
    [
        ("self.a == 1", {}, "Key not found"),
        ("1 / self == 1", 0, "divide by zero"),
        ("quantity(self).isGreaterThan(quantity('1'))", "x", "quantities must match"),
        ("self.isGreaterThan(quantity('1'))", "2", "no such overload"),
    ],
)
def test_a_rule_that_fails_while_it_runs_says_why(rule, value, why):
    with pytest.raises(RuleError, match=why):
        failure(rule, value)


@pytest.mark.parametrize(
    "entry",
    [
        {"rule": "self ="},
        {"rule": "nothing(self)"},
        {"rule": "oldSelf.hasValue()", "optionalOldSelf": True},
    ],
)
def test_rules_that_are_refused(entry):
    with pytest.raises(RuleError):
        compile_rule(entry)


@pytest.mark.parametrize("text", ["1", "1k", "1Ki", "1e3", "-2", ".5", "2E", "1e99999", "0e-99999"])
def test_a_quantity_is_recognised_however_large(text):
    assert failure("isQuantity(self)", text) is None
    assert failure("quantity(self).compareTo(quantity(self)) == 0", text) is None


@pytest.mark.parametrize(
    "text", ["", "1 Gi", "Gi", "1gi", "one", "1kk", "1e3k", "1E3M", "1Ki2", "\u0661"]
)
def test_what_is_no_quantity_is_refused(text):
    assert failure("isQuantity(self)", text) is not None
    with pytest.raises(RuleError, match="quantities must match"):
        failure("quantity(self).isLessThan(quantity('1'))", text)


def with_rule(rule: str, **entry) -> Schema:
    spec = {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "string"}},
        "x-kubernetes-validations": [{"rule": rule, "message": "m"} | entry],
    }
    return compile_schema({"type": "object", "properties": {"spec": spec}})


def test_a_field_a_rule_names_must_exist():
    with pytest.raises(SchemaError, match="undefined field 'c'"):
        with_rule("self.c == 1")


def test_of_what_did_not_change_no_rule_is_run():
    old = {"spec": {"a": 1}}
    assert validate(with_rule("self.a > 1"), old, old) == []
    assert len(validate(with_rule("self.a > oldSelf.a"), {"spec": {"a": 0}}, old)) == 1

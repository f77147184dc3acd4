import pytest

from partita_testcluster.apiserver.errors import APIError
from partita_testcluster.apiserver.selectors import parse_field_selector, parse_label_selector

LABELS = {"app": "web", "tier": "1", "example.org/x-y": ""}


@pytest.mark.parametrize(
    ("selector", "matches"),
    [
        ("app=web", True),
        ("app==web,tier=1", True),
        ("app!=web", False),
        ("none!=web", True),
        ("app in (web, db)", True),
        ("app notin (web,db)", False),
        ("none notin (web)", True),
        ("app", True),
        ("!app", False),
        ("! none , app = web", True),
        ("example.org/x-y=", True),
        ("example.org/x-y in ()", True),
    ],
)
def test_label_selectors(selector, matches):
    assert parse_label_selector(selector)(LABELS) is matches


def test_an_empty_selector_selects_all():
    assert parse_label_selector("") is None
    assert parse_field_selector("", frozenset(), "Pod") is None


@pytest.mark.parametrize("selector", ["a b", "=x", "a in b", "a=(b)", "a>b", "in (a)", "a=b,=c"])
def test_what_is_no_label_selector_is_refused(selector):
    with pytest.raises(APIError) as refusal:
        parse_label_selector(selector)
    assert refusal.value.code == 400


KNOWN = frozenset({"metadata.name", "spec.nodeName"})


@pytest.mark.parametrize(
    ("selector", "matches"),
    [
        ("metadata.name=a", True),
        ("metadata.name==a,spec.nodeName!=n", True),
        ("spec.nodeName=", True),
        ("spec.nodeName!=", False),
        ("metadata.name=b", False),
    ],
)
def test_field_selectors(selector, matches):
    assert parse_field_selector(selector, KNOWN, "Pod")({"metadata.name": "a"}) is matches


@pytest.mark.parametrize("selector", ["metadata.name", "spec.none=1", "=a"])
def test_an_unknown_field_is_refused_with_those_known(selector):
    with pytest.raises(APIError) as refusal:
        parse_field_selector(selector, KNOWN, "Pod")
    assert refusal.value.code == 400
    if "none" in selector:
        assert "metadata.name, spec.nodeName" in str(refusal.value)

"""Which nodes a template allows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from partita.models.errors import describe
from partita.models.partition import Toleration
from partita.pods.node_rules import NodeRules, Taint, is_passing

LABELS = {"zone": "a", "gpus": "8", "disk": "ssd"}


def affine(*terms):
    required = {"nodeSelectorTerms": list(terms)}
    kind = "requiredDuringSchedulingIgnoredDuringExecution"
    return {"affinity": {"nodeAffinity": {kind: required}}}


def expression(key, operator, *values):
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


def meets(spec):
    return not NodeRules.read(spec).unmet("node-1", LABELS)


@pytest.mark.parametrize(
    ("selector", "met"),
    [({}, True), (None, True), ({"zone": "a"}, True), ({"zone": "b"}, False), ({"x": ""}, False)],
)
def test_every_label_of_the_node_selector_must_be_there(selector, met):
    assert meets({"nodeSelector": selector}) is met


@pytest.mark.parametrize(
    ("term", "met"),
    [
        (expression("zone", "In", "a", "b"), True), (expression("zone", "In", "b"), False),
        (expression("none", "In", "b"), False), (expression("zone", "NotIn", "b"), True),
        (expression("zone", "NotIn", "a"), False), (expression("none", "NotIn", "a"), True),
        (expression("zone", "Exists"), True), (expression("none", "Exists"), False),
        (expression("none", "DoesNotExist"), True), (expression("zone", "DoesNotExist"), False),
        (expression("gpus", "Gt", "7"), True), (expression("gpus", "Gt", "8"), False),
        (expression("gpus", "Lt", "9"), True), (expression("gpus", "Lt", "8"), False),
        (expression("zone", "Gt", "7"), False), (expression("none", "Lt", "7"), False),
        (expression("gpus", "Gt"), False), (expression("zone", "SemverGt", "1.0"), True),
        ({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-1"]}]}, True),
        ({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}, False),
        ({}, False),
    ],
)  # fmt: skip
def test_an_expression_holds_as_for_kube_scheduler(term, met):
    assert meets(affine(term)) is met


def test_one_term_must_hold_and_all_of_it():
    both = expression("zone", "In", "a")
    both["matchExpressions"] += expression("disk", "In", "hdd")["matchExpressions"]
    assert not meets(affine(both))
    assert meets(affine(both, expression("gpus", "Exists")))
    assert not meets({**affine(expression("zone", "Exists")), "nodeSelector": {"zone": "b"}})
    assert not meets(affine())


def test_preferences_keep_a_pod_from_no_node():
    preferred = [{"weight": 1, "preference": expression("zone", "In", "b")}]
    kind = "preferredDuringSchedulingIgnoredDuringExecution"
    assert meets({"affinity": {"nodeAffinity": {kind: preferred}, "podAffinity": {}}})


TAINT = Taint(key="dedicated", value="vision", effect="NoSchedule")


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        ({"key": "dedicated", "operator": "Equal", "value": "vision"}, True),
        ({"key": "dedicated", "value": "vision", "effect": "NoSchedule"}, True),
        ({"key": "dedicated", "value": "speech"}, False), ({"key": "dedicated"}, False),
        ({"key": "dedicated", "operator": "Exists"}, True),
        ({"key": "dedicated", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"operator": "Exists"}, True), ({"key": "other", "operator": "Exists"}, False),
    ],
)  # fmt: skip
def test_a_toleration_matches_as_for_kube_scheduler(toleration, tolerated):
    rules = NodeRules.read({"tolerations": [toleration]})
    assert rules.untolerated([TAINT]) == ([] if tolerated else [TAINT])


def test_only_taints_that_keep_pods_away_count():
    soft = Taint(key="old", effect="PreferNoSchedule")
    assert NodeRules().untolerated([soft]) == []
    assert NodeRules().untolerated([Taint(key="bad", effect="NoExecute")])


def test_tolerations_of_the_partition_count_as_well():
    more = [Toleration(key="dedicated", value="vision", effect="NoSchedule")]
    assert NodeRules().tolerating(more).untolerated([TAINT]) == []


def test_taints_of_kubernetes_itself_pass():
    assert is_passing(Taint(key="node.kubernetes.io/disk-pressure", effect="NoSchedule"))
    assert not is_passing(TAINT)
    assert str(TAINT) == "dedicated=vision:NoSchedule"


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ({"nodeSelector": {"gpus": 8}}, "nodeSelector.gpus: must be a text, not 8"),
        ({"nodeSelector": "a"}, "nodeSelector: must be a mapping"),
        ({"affinity": {"nodeAffinity": []}}, "affinity.nodeAffinity: must be a map"),
        (affine({"matchExpressions": [{"key": "a"}]}), "matchExpressions[0].operator: is missing"),
        ({"tolerations": {}}, "tolerations: must be a list"),
        (affine(*[expression("a", "Exists")] * 200), "too many parts: write at most 256"),
    ],
)
def test_rules_of_another_form_are_told_with_their_place(spec, told):
    with pytest.raises(ValidationError) as raised:
        NodeRules.read(spec)
    assert told in describe(raised.value)


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["key", "operator", "values", "matchExpressions", "nodeSelectorTerms"]),
            inner,
            max_size=3,
        )
    ),
    max_leaves=8,
)


@given(anything, anything, anything)
def test_whatever_stands_there_is_read_or_refused(selector, affinity, tolerations):
    spec = {"nodeSelector": selector, "tolerations": tolerations, **affine(affinity)}
    try:
        rules = NodeRules.read(spec)
    except ValidationError as error:
        describe(error)
        return
    rules.unmet("node-1", LABELS)
    rules.untolerated([TAINT])
    hash(rules)

"""The generated CRDs: complete, current, and in the words that the models read."""

import re
from pathlib import Path

import pytest

from partita.models import crd
from partita.models.crd import RESOURCES

REPOSITORY = Path(__file__).parents[2]
CRDS = {definition["spec"]["names"]["kind"]: definition for definition in crd.crds()}


def nodes(schema, path=""):
    """Yield every node of a schema with its path."""
    yield path, schema
    for name, child in schema.get("properties", {}).items():
        yield from nodes(child, f"{path}.{name}")
    for key, mark in (("items", "[]"), ("additionalProperties", "{}")):
        if key in schema:
            yield from nodes(schema[key], path + mark)


def fields(kind):
    (version,) = CRDS[kind]["spec"]["versions"]
    return dict(nodes(version["schema"]["openAPIV3Schema"]))


def test_the_files_are_what_the_models_say():
    on_disk = {path.name: path.read_text() for path in (REPOSITORY / "crds").glob("partita.dev_*")}
    assert on_disk == {crd.file_name(d): crd.render(d) for d in CRDS.values()}


def test_the_files_repeat_themselves_rather_than_refer_to_themselves():
    assert not any(re.search(r"[&*]id\d", crd.render(definition)) for definition in CRDS.values())


def missing_bounds(node):
    """Name the keywords without which a value of this schema could be as large as a request."""
    if "enum" in node or node.get("x-kubernetes-preserve-unknown-fields"):
        return []
    numbers = ["minimum", "maximum"]
    wanted = {"integer": numbers, "number": numbers, "array": ["maxItems"], "string": ["maxLength"]}
    if node.get("x-kubernetes-int-or-string"):
        # The upper bound of an amount that is asked for is a rule: it also holds for texts.
        words = ["maxLength", *([] if node.get("x-kubernetes-validations") else numbers)]
    elif node.get("format") == "date-time":
        words = ["pattern"]
    elif "additionalProperties" in node:
        words = ["maxProperties"]
    else:
        words = wanted.get(node.get("type", ""), [])
    return [word for word in words if word not in node]


@pytest.mark.parametrize("kind", CRDS)
def test_every_field_is_bounded(kind):
    unbounded = {
        path: missing
        for path, node in fields(kind).items()
        if path not in {".apiVersion", ".kind", ".metadata"} and (missing := missing_bounds(node))
    }
    assert unbounded == {}


@pytest.mark.parametrize("kind", CRDS)
def test_the_keys_of_a_map_have_no_schema(kind):
    """The API server refuses a CRD with this keyword: `JSONSchemaProps` does not have it."""
    assert [path for path, node in fields(kind).items() if "propertyNames" in node] == []


@pytest.mark.parametrize("kind", CRDS)
def test_every_field_has_a_description(kind):
    undescribed = [
        path
        for path, node in fields(kind).items()
        if path.rpartition(".")[2].isidentifier()
        and path != ".metadata"
        and not node.get("description")
    ]
    assert undescribed == []


@pytest.mark.parametrize("kind", CRDS)
def test_every_amount_percentage_and_length_of_time_names_its_unit(kind):
    named = {"percent": "percent", "seconds": "seconds", "utilization": "percent"}
    for path, node in fields(kind).items():
        units = [unit for word, unit in named.items() if path.lower().endswith(word)]
        if node.get("x-kubernetes-int-or-string") and not path.endswith(".protocol"):  # a version
            units.append("as a quantity")
        assert all(unit in node["description"].lower() for unit in units), path


@pytest.mark.parametrize("kind", CRDS)
def test_the_keys_of_every_keyed_list_must_be_written(kind):
    for path, node in fields(kind).items():
        for key in node.get("x-kubernetes-list-map-keys", ()):
            items = node["items"]
            assert key in items.get("required", ()), f"{path}: {key}"
            assert "default" not in items["properties"][key]


@pytest.mark.parametrize("kind", sorted(CRDS.keys() - {"ApplicationProfile"}))
def test_conditions_are_those_of_kubernetes(kind):
    """`metav1.Condition`; server-side apply merges them by type."""
    conditions = fields(kind)[".status.conditions"]
    assert conditions["x-kubernetes-list-map-keys"] == ["type"]
    assert conditions["items"]["required"] == [
        *("type", "status", "reason", "message", "lastTransitionTime")
    ]


@pytest.mark.parametrize("kind", CRDS)
def test_nothing_is_filled_into_a_status(kind):
    filled = [
        p for p, node in fields(kind).items() if p.startswith(".status") and "default" in node
    ]
    assert filled == []


@pytest.mark.parametrize("kind", CRDS)
def test_every_rule_says_what_to_write_instead(kind):
    for node in fields(kind).values():
        for rule in node.get("x-kubernetes-validations", ()):
            assert re.search(r"\b(write|use|set|remove|delete|submit)\b", rule["message"]), rule


@pytest.mark.parametrize("resource", RESOURCES, ids=lambda r: r.kind)
def test_the_models_read_every_name_of_the_crd(resource):
    """A field is written under its serialisation alias; it must be read under the same."""

    def names(schema, definitions):
        return {
            (name, field)
            for name, definition in [("", schema), *definitions.items()]
            for field in definition.get("properties", {})
        }

    written, read = (
        resource.model.model_json_schema(by_alias=True, mode=mode)
        for mode in ("serialization", "validation")
    )
    assert names(written, written["$defs"]) == names(read, read["$defs"])


@pytest.mark.parametrize("resource", RESOURCES, ids=lambda r: r.kind)
def test_printer_columns_show_fields_that_exist(resource):
    known = {path.replace("[]", "") for path in fields(resource.kind)}
    for name, _, path, _ in resource.columns:
        if not path.startswith(".metadata"):
            assert re.sub(r"\[[^]]*\]", "", path) in known, name

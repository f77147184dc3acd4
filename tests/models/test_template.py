"""A job's template: kept as text, and passed on as it was written."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from models.objects import job
from partita.models import SharedGPUJob

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=20,
)


@given(spec=st.dictionaries(TEXT, JSON, max_size=6), labels=st.dictionaries(TEXT, TEXT, max_size=3))
def test_a_template_is_passed_on_as_it_was_written(spec, labels):
    template = {"metadata": {"labels": labels}, "spec": spec}
    kept = SharedGPUJob.parse(job(template=template)).spec.template
    assert (kept.unpack().spec, kept.unpack().labels) == (spec, labels)


def test_a_template_is_written_as_it_was_read():
    read = SharedGPUJob.parse(job())
    assert read.dump()["spec"]["template"]["spec"] == job()["spec"]["template"]["spec"]
    assert SharedGPUJob.parse(read.dump()) == read


def test_what_is_made_of_a_template_does_not_change_it():
    template = SharedGPUJob.parse(job()).spec.template
    template.unpack().spec["containers"].clear()
    assert template.unpack().containers


def test_a_text_that_no_json_can_hold_is_refused():
    with pytest.raises(ValidationError, match="template"):
        SharedGPUJob.parse(job(template={"spec": {"hostname": "\ud800"}}))

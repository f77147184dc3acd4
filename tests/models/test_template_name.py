"""A template's name says partition, memory and threads, and is read as it was written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partita.models.template_name import TemplateName

PARTITIONS = st.from_regex(r"[a-z0-9]([-.a-z0-9]{0,20}[a-z0-9])?", fullmatch=True)


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("partita-6442450944", TemplateName("", 6442450944)),
        ("partita-6442450944-50", TemplateName("", 6442450944, 50)),
        ("partita-shared-6442450944", TemplateName("shared", 6442450944)),
        ("partita-shared-1-6442450944-100", TemplateName("shared-1", 6442450944, 100)),
        ("partita-a.b-6442450944", TemplateName("a.b", 6442450944)),
        ("partita-8-6442450944", TemplateName("8", 6442450944)),
        ("partita-6gi", TemplateName("", 6 << 30, None, "6gi")),
        ("partita-shared-512mi-50", TemplateName("shared", 512 << 20, 50, "512mi")),
    ],
)
def test_it_is_read(name: str, found: TemplateName):
    assert TemplateName.parse(name) == found
    assert str(found) == name
    assert TemplateName.problem(name) == ""


@given(
    st.one_of(st.just(""), PARTITIONS),
    st.integers(1 << 20, 10**14),
    st.one_of(st.none(), st.integers(1, 100)),
)
def test_what_is_written_is_read_again(partition: str, memory: int, threads: int | None):
    name = TemplateName(partition, memory, threads)
    assert str(TemplateName.parse(str(name))) == str(name)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("gpu-6gi", ""),
        ("my-partita-6442450944", ""),
        ("partita-shared", "such as partita-shared-6gi"),
        ("partita-shared-6144", "such as partita-shared-6144mi for MiB"),
        ("partita-shared-0644245094", "write partita-<partition>-<memory>"),
        ("partita--6442450944", "write partita-<partition>-<memory>"),
        ("partita-0gi", "the memory with its unit (mi, gi or ti)"),
    ],
)
def test_another_name_is_the_users_or_explained(name: str, said: str):
    assert TemplateName.parse(name) is None
    found = TemplateName.problem(name)
    assert said in found
    assert bool(found) is bool(said)

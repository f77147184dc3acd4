import pytest

from partita_testcluster.apiserver.errors import APIError
from partita_testcluster.apiserver.resources import extractor
from partita_testcluster.apiserver.store import Store


def obj(name: str, namespace: str = "n", **meta):
    return {"metadata": {"name": name, "namespace": namespace, "uid": f"{namespace}/{name}"} | meta}


def filled(limit: int = 100):
    store = Store(limit)
    return store, store.collection(extractor(("spec.node",)))


def names(records):
    return [r.name for r in records]


def test_versions_grow_over_all_collections():
    store, first = filled()
    second = store.collection(extractor(()))
    versions = [store.put(c, obj(n)).rv for c, n in ((first, "a"), (second, "b"), (first, "a"))]
    assert versions == sorted(set(versions))
    gone = store.remove(first, first.get("n", "a"))
    assert gone.rv > versions[-1]
    assert gone.obj["metadata"]["resourceVersion"] == str(gone.rv)


def test_objects_come_out_as_copies():
    store, collection = filled()
    given = obj("a", labels={"k": "v"})
    record = store.put(collection, given)
    given["metadata"]["labels"]["k"] = record.obj["metadata"]["labels"]["k"] = "changed"
    assert collection.get("n", "a").obj["metadata"]["labels"] == {"k": "v"}


def test_lists_are_ordered_by_namespace_and_name():
    store, collection = filled()
    for name, namespace in (("b", "z"), ("a", "z"), ("c", "a")):
        store.put(collection, obj(name, namespace))
    assert names(collection.records()) == ["c", "a", "b"]
    assert names(collection.records("z")) == ["a", "b"]
    assert names(collection.records("none")) == []
    assert len(collection) == 3


def test_an_earlier_version_of_the_list_can_be_seen():
    store, collection = filled()
    store.put(collection, obj("a", labels={"v": "1"}))
    store.put(collection, obj("b"))
    then = store.rv
    store.put(collection, obj("a", labels={"v": "2"}))
    store.remove(collection, collection.get("n", "b"))
    store.put(collection, obj("c"))
    seen = collection.records_at(then)
    assert names(seen) == ["a", "b"]
    assert seen[0].labels == {"v": "1"}
    assert names(collection.records()) == ["a", "c"]


def test_history_is_kept_up_to_its_limit_and_gone_before():
    store, collection = filled(limit=5)
    versions = [store.put(collection, obj("a")).rv for _ in range(12)]
    with pytest.raises(APIError) as gone:
        collection.position(versions[0])
    assert gone.value.code == 410
    assert gone.value.status["reason"] == "Expired"
    recent = collection.since(collection.position(versions[-6]))
    assert [e.record.rv for e in recent] == versions[-5:]


def test_a_reader_that_fell_behind_is_told():
    store, collection = filled(limit=2)
    start = collection.end
    for _ in range(6):
        store.put(collection, obj("a"))
    with pytest.raises(APIError, match="fell behind"):
        collection.since(start)


def test_what_was_before_the_kind_is_gone():
    store, collection = filled()
    store.put(collection, obj("a"))
    later = store.collection(extractor(()))
    with pytest.raises(APIError):
        later.position(store.rv - 1)
    assert later.since(later.position(store.rv)) == []


def test_events_know_what_was_before():
    store, collection = filled()
    store.put(collection, obj("a"))
    store.put(collection, obj("a"))
    store.remove(collection, collection.get("n", "a"))
    events = collection.since(0)
    assert [e.type for e in events] == ["ADDED", "MODIFIED", "DELETED"]
    assert [e.previous and e.previous.rv for e in events] == [
        None, events[0].record.rv, events[1].record.rv,
    ]  # fmt: skip
    assert events[0].line is events[0].line
    assert events[0].line.startswith(b'{"type":"ADDED","object":{')


async def test_waiters_wake_at_a_change_and_at_the_end():
    store, collection = filled()
    waiting = collection.changed
    store.put(collection, obj("a"))
    assert waiting.is_set()
    assert not collection.changed.is_set()
    waiting = collection.changed
    collection.close()
    assert waiting.is_set()
    assert collection.closed


def test_owners_find_their_dependents():
    store, collection = filled()
    owner = [{"uid": "n/a"}]
    store.put(collection, obj("a"))
    store.put(collection, obj("b", ownerReferences=owner))
    store.put(collection, obj("c", ownerReferences=owner))
    assert store.dependents["n/a"] == {"n/b", "n/c"}
    store.put(collection, obj("b"))
    store.remove(collection, collection.get("n", "c"))
    assert "n/a" not in store.dependents
    assert set(store.by_uid) == {"n/a", "n/b"}


def test_fields_to_select_by_are_text():
    extract = extractor(("spec.node", "spec.on", "spec.n"))
    assert extract({"spec": {"node": "x", "on": True, "n": 1}}) == {
        "spec.node": "x", "spec.on": "true", "spec.n": "1",
    }  # fmt: skip
    assert extract({"spec": {"node": None}}) == extract({"spec": 1}) == {}

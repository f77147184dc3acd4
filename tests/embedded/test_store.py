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

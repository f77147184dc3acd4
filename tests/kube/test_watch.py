"""In which order the changes of a watch are taken."""

import asyncio
import json
from contextlib import suppress
from unittest.mock import Mock

import aiohttp

from partita.kube.watch import lines_in_turns


def line(number: int, namespace: str = "flood", kind: str = "ADDED") -> bytes:
    meta = {"namespace": namespace, "resourceVersion": str(number)}
    return json.dumps({"type": kind, "object": {"metadata": meta}}).encode() + b"\n"


async def test_namespaces_take_turns_and_what_was_sent_before_a_bookmark_or_a_break_is_taken():
    content = aiohttp.StreamReader(Mock(), 2**20, loop=asyncio.get_running_loop())
    content.feed_data(b"".join(map(line, range(1000))) + line(1000)[:9])
    taken = list[int]()
    with suppress(ConnectionError):
        async for raw in lines_in_turns(content):
            taken.append(int(json.loads(raw)["object"]["metadata"]["resourceVersion"]))
            if len(taken) == 1:
                content.feed_data(line(1000)[9:] + line(1001, "single"))
                content.feed_data(line(1002, kind="BOOKMARK") + line(1003, "single"))
            elif len(taken) == 5:
                content.set_exception(ConnectionError())
    assert taken.index(1003) <= taken.index(1001) + 2 <= 4  # a bookmark keeps nothing back
    assert [n for n in taken if n not in {1001, 1003}] == [*range(1001), 1002]

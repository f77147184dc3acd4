"""What tenants do to the operator with the rights that they have in their own namespaces."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any

from chaos.calls import by_name, call, pick
from chaos.plan import Action
from support.api import Api
from support.history import GROUP_PATH, History
from support.operator import container

__all__ = ["TenantFaults"]

Body = dict[str, Any]

_TEAM = "red"
_LEVELS = 5000
"""Levels of a template; the API server takes 10,000."""
_STRANGE: tuple[Body, ...] = (
    {"gpuMemory": "7Ei"},
    {"gpuMemory": "1Mi", "activeDeadlineSeconds": 2**31 - 1},
    {"partition": "\u00fc"},
    {"slice": "<b>"},
    {"template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "x"}]}}},
)


@dataclass(eq=False)
class TenantFaults:
    """Carries out what a tenant may do.

    Attributes
    ----------
    history
        Told of what is forged, so that nothing of it is taken for the operator's.
    """

    history: History
    api: Api

    async def _forge_server_pod(self, action: Action) -> bool:
        """Make a Pod that says that it serves a GPU; it runs, fails, and goes."""
        server = pick(action.pick, sorted(self.history.all("gpuservers"), key=by_name))
        if server is None:
            return False
        name = server["metadata"]["name"]
        labels = {"partita.dev/component": "server", "partita.dev/server": name}
        return await self._forge(action, {"labels": labels})

    async def _forge_job_pod(self, action: Action) -> bool:
        """Make a Pod that says that it is an attempt of another's job; it ends, and goes."""
        job = pick(action.pick, sorted(self.history.all("sharedgpujobs"), key=by_name))
        if job is None:
            return False
        name, uid = job["metadata"]["name"], job["metadata"]["uid"]
        labels = {
            "partita.dev/component": "job",
            "partita.dev/job": name,
            "partita.dev/attempt": str(1 + action.times % 3),
        }
        owner = {"apiVersion": "partita.dev/v1alpha1", "kind": "SharedGPUJob", "name": name}
        meta: Body = {
            "labels": labels,
            "annotations": {"partita.dev/job-uid": uid},
            # Kubernetes itself deletes what an object of another namespace owns.
            "ownerReferences": [owner | {"uid": uid, "controller": True}],
        }
        return await self._forge(action, meta)

    async def _forge(self, action: Action, meta: Body) -> bool:
        pods = f"/api/v1/namespaces/{_TEAM}/pods"
        body = {"metadata": {"generateName": "forged-", **meta}, "spec": {}}
        body["spec"] = {"containers": [container()]}
        made = await call(lambda: self.api.post(pods, body))
        if made.status != 201:
            return False
        self.history.forged.add(made.body["metadata"]["uid"])
        path = f"{pods}/{made.body['metadata']['name']}"
        for phase in ("Running", "Succeeded" if action.times == 1 else "Failed"):
            status = {"status": {"phase": phase}}
            await call(lambda status=status: self.api.patch(f"{path}/status", status))  # type: ignore[misc]
            await asyncio.sleep(action.seconds / 2)
        await call(lambda: self.api.delete(path, {"gracePeriodSeconds": 0}))
        return True

    async def _strip_pod(self, action: Action) -> bool:
        """Take all that is Partita's off the labels and annotations of a job's Pod."""
        pods = [p for p in self.history.job_pods_now() if p["status"].get("phase") == "Running"]
        pod = pick(action.pick, sorted(pods, key=by_name))
        if pod is None:
            return False
        meta = pod["metadata"]
        patch = {
            kind: {key: None for key in meta.get(kind) or {} if key.startswith("partita.dev/")}
            for kind in ("labels", "annotations")
        }
        path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
        return (await call(lambda: self.api.patch(path, {"metadata": patch}))).status == 200

    async def _remove_new_pod(self, action: Action) -> bool:
        """Delete the next Pod of a job without grace, as soon as it is there."""
        before = {pod["metadata"]["uid"] for pod in self.history.job_pods()}

        def made() -> list[Body]:
            now = self.history.job_pods_now()
            return [pod for pod in now if pod["metadata"]["uid"] not in before]

        try:
            found = await self.history.until(made, seconds=1 + action.seconds)
        except AssertionError:
            return False
        meta = found[0]["metadata"]
        path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": meta["uid"]}}
        return (await call(lambda: self.api.delete(path, options))).status < 300

    async def _strange_job(self, action: Action) -> bool:
        """Submit a job that is extreme, or nested more deeply than programs read, and delete it."""
        jobs = f"{GROUP_PATH}/namespaces/{_TEAM}/sharedgpujobs"
        spec = {"partition": "shared", "template": {"spec": {"containers": [container()]}}}
        strange = pick(action.pick, (*_STRANGE, {}))
        name = f"strange-{int(action.pick * 1e9)}"
        body = {
            "apiVersion": "partita.dev/v1alpha1",
            "kind": "SharedGPUJob",
            "metadata": {"name": name},
            "spec": {**spec, "suspend": True, **(strange or {})},
        }
        text = json.dumps(body)
        if not strange:
            deep = '{"a":' * _LEVELS + "1" + "}" * _LEVELS
            text = text.replace('"containers"', f'"affinity": {deep}, "containers"')
        done = await call(lambda: self.api.post(jobs, text))
        await asyncio.sleep(action.seconds)
        await call(lambda: self.api.delete(f"{jobs}/{name}"))
        return done.status == 201

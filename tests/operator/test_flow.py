"""The main job: from committed YAML to running, finished jobs."""

from __future__ import annotations

import yaml

from support.history import GROUP_PATH
from support.system import System

PARTITION = """
apiVersion: partita.dev/v1alpha1
kind: GPUPartition
metadata:
  name: {partition}
spec:
  gpus: 1
  sharing:
    mode: MPS
    maxJobsPerGPU: 4
"""
JOB = """
apiVersion: partita.dev/v1alpha1
kind: SharedGPUJob
metadata:
  name: {name}
spec:
  partition: {partition}
  application: trainer
  gpuMemory: 12Gi
  threadPercent: 30
  template:
    metadata:
      annotations:
        sim.partita.dev/memory: 8Gi
    spec:
      containers:
        - name: main
          image: example.org/trainer:1
          command: [python, train.py]
          env:
            - name: EPOCHS
              value: "3"
"""


async def test_committed_yaml_becomes_jobs_that_share_one_gpu_finish_and_give_it_back(
    system: System,
) -> None:
    partition = system.named("yaml")
    jobs = f"{GROUP_PATH}/namespaces/{system.namespace}/sharedgpujobs"
    async with system.running(1):
        for name in ("one", "two", "three"):
            body = yaml.safe_load(JOB.format(name=name, partition=partition))
            (await system.api.post(jobs, body)).ok()
        body = yaml.safe_load(PARTITION.format(partition=partition))
        (await system.api.post(f"{GROUP_PATH}/gpupartitions", body)).ok()

        done = [await system.found(name).succeeds() for name in ("one", "two", "three")]

        (server,) = system.servers(partition)
        uuid, node = server["status"]["uuid"], server["status"]["node"]
        for status in done:
            (attempt,) = status["attempts"]
            assert attempt["outcome"] == "Succeeded"
            assert attempt["gpus"] == [uuid]
            assert attempt["node"] == node
            assert attempt["memory"] == "12Gi"
            assert status["completionTime"] >= status["startTime"]
        assert len(done[2]["attempts"][0]["beside"]) == 2  # all of it on one GPU
        pod, env = system.found("one").made(), system.found("one").env()
        assert env == {
            "NVIDIA_VISIBLE_DEVICES": uuid,
            "CUDA_MPS_PIPE_DIRECTORY": env["CUDA_MPS_PIPE_DIRECTORY"],
            "CUDA_MPS_LOG_DIRECTORY": env["CUDA_MPS_LOG_DIRECTORY"],
            "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=12288M",
            "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "30",
            "CUDA_DEVICE_MAX_CONNECTIONS": "2",
            "EPOCHS": "3",
        }
        claims = [entry["resourceClaimName"] for entry in pod["spec"]["resourceClaims"]]
        assert claims == ["one-1.partita.dev"]
        assert pod["spec"]["containers"][0]["resources"]["claims"] == [{"name": "partita-gpu"}]
        assert "nodeName" not in pod["spec"]
        await system.history.until(lambda: not system.history.left_over())
        assert not system.history.get("gpuservers", server["metadata"]["name"])["status"].get(
            "allocations"
        )

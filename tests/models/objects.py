"""Valid objects to begin with, and what is wrong with others."""

from typing import Any

from partita.constants import GROUP, VERSION

GROUP_VERSION = f"{GROUP}/{VERSION}"
TEMPLATE = {"spec": {"containers": [{"name": "main", "image": "example.org/train:1"}]}}


def _object(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": GROUP_VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec}


def job(name: str = "train", **spec: Any) -> dict[str, Any]:
    return _object("SharedGPUJob", name, {"partition": "shared", "template": TEMPLATE, **spec})


def pod_of_job(**spec: Any) -> dict[str, Any]:
    return job(template={"spec": {**TEMPLATE["spec"], **spec}})


def partition(name: str = "shared", **spec: Any) -> dict[str, Any]:
    return _object("GPUPartition", name, {"gpus": 2, **spec})


def server(name: str = "shared-0", **spec: Any) -> dict[str, Any]:
    return _object("GPUServer", name, {"partition": "shared", **spec})


def profile(name: str = "resnet", **measurement: Any) -> dict[str, Any]:
    measured = {"duration": "60s", "steps": [{"gpuMemory": "1Gi"}], **measurement}
    spec = {"application": "resnet", "measurements": [measured]}
    return _object("ApplicationProfile", name, spec)


def toleration(**fields: Any) -> dict[str, Any]:
    return partition(tolerations=[fields])


def selector(**requirement: Any) -> dict[str, Any]:
    return partition(allowedNamespaces={"matchExpressions": [{"key": "team"} | requirement]})


CLAIM = {"name": "gpu"}
SLICES = [{"name": "small", "memory": "5Gi"}]
LARGE = {"name": "large", "memory": "9Gi"}
STATIC = {"isolation": "StaticSM", "maxJobsPerGPU": 4}
BURST_SLICE = {"name": "small", "memory": "5Gi", "memoryLimit": "8Gi"}

# What is wrong, one way to write it right, the field that is blamed, words of the message.
RULES = [
    (partition("a" * 53), partition("a" * 52), "", "use at most 52 characters"),
    (partition(slices=SLICES, sharing={"mode": "TimeSlicing"}), partition(slices=SLICES),
     "spec.slices", "remove slices or set sharing.mode to MPS"),
    (partition(sharing={"mode": "Exclusive", "oversubscription": True}),
     partition(sharing={"mode": "MPS", "oversubscription": True}), "spec.sharing",
     "set sharing.oversubscription to false"),
    (partition(sharing={"maxJobsPerGPU": 61}),
     partition(sharing={"maxJobsPerGPU": 61, "mode": "TimeSlicing"}), "spec.sharing.maxJobsPerGPU",
     "to 60 or less"),
    (partition(sharing={"enforcement": "Driver", "mode": "TimeSlicing"}),
     partition(sharing={"enforcement": "Driver", "mode": "MPS"}), "spec.sharing.enforcement",
     "set sharing.enforcement to Auto or sharing.mode to MPS"),
    (partition(sharing={"burst": "Spare", "mode": "TimeSlicing"}),
     partition(sharing={"burst": "Spare", "mode": "MPS"}), "spec.sharing.burst",
     "set sharing.burst to Never or sharing.mode to MPS"),
    (partition(sharing={"burst": "Spare", "enforcement": "Client"}),
     partition(sharing={"burst": "Spare", "enforcement": "Driver"}), "spec.sharing.burst",
     "set sharing.burst to Never, or sharing.enforcement to Auto or Driver"),
    (partition(slices=[BURST_SLICE]), partition(slices=[BURST_SLICE], sharing={"burst": "Spare"}),
     "spec.slices", "set sharing.burst to Spare, or remove memoryLimit"),
    (partition(quotas=[{"namespace": "a", "memory": "4Gi", "guaranteed": "5Gi"}]),
     partition(quotas=[{"namespace": "a", "memory": "4Gi", "guaranteed": "4Gi"}]),
     "spec.quotas[0].guaranteed", "guaranteed is above memory"),
    (partition(slices=[BURST_SLICE | {"memoryLimit": "4Gi"}], sharing={"burst": "Spare"}),
     partition(slices=[BURST_SLICE | {"memoryLimit": "5Gi"}], sharing={"burst": "Spare"}),
     "spec.slices[0].memoryLimit", "write memory or more, or remove memoryLimit"),
    (job(gpuMemory="4Gi", gpuMemoryLimit="4095Mi"), job(gpuMemory="4Gi", gpuMemoryLimit="4096Mi"),
     "spec.gpuMemoryLimit", "write gpuMemory or more, or remove gpuMemoryLimit"),
    (job(gpuMemory=4 << 20, gpuMemoryLimit=3 << 20), job(gpuMemory=4 << 20, gpuMemoryLimit=5 << 20),
     "spec.gpuMemoryLimit", "write gpuMemory or more"),
    (job(gpuMemoryLimit="4Gi"), job(gpuMemoryLimit="4Gi", gpuMemory="1Gi"), "spec.gpuMemoryLimit",
     "write gpuMemory too"),
    (job(gpuMemoryLimit="4Gi", slice="small"), job(slice="small"), "spec.slice",
     "write either slice, or gpuMemory, gpuMemoryLimit and threadPercent"),
    (partition(sharing={"isolation": "StaticSM", "mode": "TimeSlicing"}),
     partition(sharing={"isolation": "StaticSM"}), "spec.sharing",
     "isolation StaticSM needs sharing.mode: MPS"),
    (
     partition(sharing=STATIC, slices=[SLICES[0] | {"threadPercent": 26}]),
     partition(sharing=STATIC, slices=[SLICES[0] | {"threadPercent": 25}, LARGE]),
     "spec.slices", "write 100 / maxJobsPerGPU or less"),
    (partition(sharing={"protocol": 4}), partition(sharing={"protocol": 3}),
     "spec.sharing.protocol", "write Auto, 2 or 3"),
    (partition(drainTimeout="5 minutes"), partition(drainTimeout="5m"), "spec.drainTimeout",
     "write one such as 90s, 20m or 1h30m"),
    (toleration(effect="NoSchedule"), toleration(effect="NoSchedule", operator="Exists"),
     "spec.tolerations[0]", "write a key, or operator: Exists"),
    (toleration(key="gpu", operator="Exists", value="a100"), toleration(key="gpu", value="a100"),
     "spec.tolerations[0]", "remove value, or write operator: Equal"),
    (toleration(key="gpu", tolerationSeconds=5),
     toleration(key="gpu", tolerationSeconds=5, effect="NoExecute"), "spec.tolerations[0]",
     "write effect: NoExecute, or remove tolerationSeconds"),
    (selector(operator="In"), selector(operator="In", values=["vision"]),
     "spec.allowedNamespaces.matchExpressions[0]", "write at least one in values"),
    (selector(operator="Exists", values=["vision"]), selector(operator="Exists"),
     "spec.allowedNamespaces.matchExpressions[0]", "remove values"),
    (partition(gpuSelector={"minMemory": "lots"}),
     partition(gpuSelector={"minMemory": 40000000000}), "spec.gpuSelector.minMemory",
     "write one with its unit, such as 512Mi or 4Gi"),
    (job("j" * 58), job("j" * 57), "", "use at most 57 characters"),
    (job(slice="small", gpuMemory="4Gi"), job(slice="small"), "spec.slice",
     "write either slice, or gpuMemory, gpuMemoryLimit and threadPercent"),
    (job(slice="small", threadPercent=50), job(gpuMemory="4Gi", threadPercent=50), "spec.slice",
     "write either slice, or gpuMemory, gpuMemoryLimit and threadPercent"),
    (job(gpuMemory="4Gb"), job(gpuMemory="4Gi"), "spec.gpuMemory",
     "write one with its unit, such as 512Mi or 4Gi"),
    (job(gpuMemory=-1), job(gpuMemory="1.5Gi"), "spec.gpuMemory",
     "write one with its unit, such as 512Mi or 4Gi"),
    (job(gpuMemory=8000), job(gpuMemory="8000Mi"), "spec.gpuMemory", "from 1Mi to below 8Ei"),
    (pod_of_job(schedulingGates=[{"name": "partita.dev/allocation"}]),
     pod_of_job(schedulingGates=[{"name": "kueue.x-k8s.io/admission"}]),
     "spec.template.spec.schedulingGates[0].name", "is a scheduling gate of Partita: remove it"),
    (pod_of_job(resourceClaims=[{"name": "gpu", "resourceClaimName": "a-1.partita.dev"}]),
     pod_of_job(resourceClaims=[{"name": "nic", "resourceClaimName": "a-1"}]),
     "spec.template.spec.resourceClaims[0].resourceClaimName",
     "is a claim of Partita: remove it"),
    (pod_of_job(resourceClaims=[CLAIM | {"resourceClaimTemplateName": "partita-shared-6gi"}]),
     pod_of_job(resourceClaims=[CLAIM | {"resourceClaimTemplateName": "partita-shared-nic"}]),
     "spec.template.spec.resourceClaims[0].resourceClaimTemplateName",
     "is a template of Partita: remove it"),
    (job(podStartTimeout="999ms"), job(podStartTimeout="1s"), "spec.podStartTimeout",
     "write one such as 90s or 10m"),
    (partition(podStartTimeout="168h1ms"), partition(podStartTimeout="168h"),
     "spec.podStartTimeout", "from 1s to 168h"),
    (job(podStartTimeout="9999999h9999999h"), job(podStartTimeout="90s"), "spec.podStartTimeout",
     '": must be a duration from 1s'),
    (partition(fairness={"halfLife": "12h"}), partition(fairness={"halfLife": "24h"}),
     "spec.fairness.halfLife", "recorded by days: write one such as 168h"),
    (partition(fairness={"halfLife": "23h"}),
     partition(fairness={"halfLife": "9999999h9999999h"}),
     "spec.fairness.halfLife", "must be 24h or more"),
    (partition(podStartTimeout="10"), partition(podStartTimeout="1h30m"), "spec.podStartTimeout",
     "write one such as 90s or 10m"),
]  # fmt: skip

# What is refused by the schema alone, and the field that is blamed.
BOUNDS = [
    (partition(gpus=-1), "spec.gpus"),
    (partition(maxPriority=1_000_001), "spec.maxPriority"),
    (partition(gpus="two"), "spec.gpus"),
    (partition(sharing={"mode": "MIG"}), "spec.sharing.mode"),
    (partition(slices=SLICES * 2), "spec.slices[1]"),
    (partition(slices=[{"name": "Small", "memory": "1Gi"}]), "spec.slices[0].name"),
    (partition(policy={"shadow": ["sjf", "sjf"]}), "spec.policy.shadow[1]"),
    (partition(quotas=[{"jobs": 1}]), "spec.quotas[0].namespace"),
    (job(partition=""), "spec.partition"),
    (job(gpus=0), "spec.gpus"),
    (job(framework="Caffe"), "spec.framework"),
    (job(retry={"outOfMemory": {"growthPercent": 0}}), "spec.retry.outOfMemory.growthPercent"),
    (job(activeDeadlineSeconds=2**31), "spec.activeDeadlineSeconds"),
    (job(ttlSecondsAfterFinished=2**31), "spec.ttlSecondsAfterFinished"),
    (job(template={"spec": {"containers": []}}), "spec.template.spec.containers"),
    (job(template={}), "spec.template.spec"),
    (job(template={"spec": {"containers": [{"name": "main"}]}}),
     "spec.template.spec.containers[0].image"),
    (job(template={"spec": {"containers": TEMPLATE["spec"]["containers"] * 2}}),
     "spec.template.spec.containers[1]"),
    (profile(steps=[]), "spec.measurements[0].steps"),
]  # fmt: skip

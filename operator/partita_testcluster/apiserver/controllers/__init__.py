"""The controllers of Kubernetes that workloads need, in the API server's process.

They are small and as true to kube-controller-manager as the demo and the tests need;
`tests/conformance/test_controllers.py` runs the same tests with both. Each controller is a function
that looks at one object and writes what is missing. All objects are read from the store, so a
controller always sees its own writes.

Not supported are adoption of Pods by labels, revisions and their history, `minReadySeconds`, volume
claims of StatefulSets, indexed Jobs, deadlines and times to live of Jobs, rules of Jobs about exit
codes, and pauses between the attempts of a Job.
"""

__all__: list[str] = []

"""An API server for the demo and the tests: strict, in memory, in this process.

It supports kubectl, kopf and the `kubernetes` client. `tests/conformance` compares it with a real
kube-apiserver. It serves Namespaces, Nodes, Pods, Events, ConfigMaps, Secrets, ServiceAccounts,
Leases, PodDisruptionBudgets, ResourceClaims, ResourceClaimTemplates, DeviceClasses, ResourceSlices,
Deployments, ReplicaSets, StatefulSets, Jobs, CustomResourceDefinitions and custom resources.
Kubernetes' controllers run in the same process: for these workloads and claims (`controllers`), and
for the deletion of dependents, of the contents of namespaces and of the objects of a removed CRD.

Not supported are:

- authentication, authorization, TLS, admission webhooks and policies, quotas, API priority;
- persistence: it starts empty;
- other built-in kinds (including ``events.k8s.io``), descriptions of the fields of built-in kinds;
- conversion between versions of a CRD: only one version is served;
- rules on CRDs beyond their schemas, label selectors with ``<`` and ``>``, lists of an exact
  resourceVersion, lists as watches (``sendInitialEvents``), `PartialObjectMetadata`, descriptions
  of columns;
- aggregated discovery, OpenAPI v2, CBOR, protobuf except for `kubectl create namespace`;
- exec, attach, port-forward, ephemeral containers, tokens, `finalize`;
- canonical quantities (``1024Mi`` is not changed), detection of duplicate keys in a body, a Pod's
  QoS class, most of the rules on built-in kinds (there are all on Leases; on workloads those on
  their Pod templates);
- bodies in YAML, the deletion of collections, JSON patches;
- server-side apply and `managedFields`, and the directives ``$patch: replace`` and
  ``$retainKeys`` of strategic merge patches;
- in CRDs: schemas with ``allOf``, ``oneOf`` or ``not``, ``multipleOf``, ``minProperties`` and
  bounds that exclude themselves: they are refused;
- in CEL: cost limits, `optionalOldSelf`, `messageExpression` and `reason`, fields whose names must
  be escaped, rules on unchanged values, the libraries for URLs, IP addresses, semantic versions,
  formats, list arithmetic and regular expressions, and operations on quantities except comparisons.

Kubelets and a scheduler are in `partita_testcluster.nodes`. As in Kubernetes, the deletion of a
bound Pod waits for its kubelet, and a Pod's log is requested from its kubelet.
"""

__all__: list[str] = []

"""The histories of applications: selects the ApplicationProfile that applies to a job."""

from collections.abc import Callable

from partita.models import ApplicationProfile
from partita.models.profile import ApplicationKey, Measurement, application_hash, preferred
from partita.store.shared_runs import ComparedRuns, Neighbour, compared_runs, evidence_of
from partita_policies import types as policy

__all__ = ["ApplicationProfiles", "to_profile"]


def to_profile(
    application: str,
    measurement: Measurement,
    neighbour: Callable[[str], Neighbour | None] = lambda _: None,
) -> policy.Profile:
    """Convert a measurement to a profile for policies.

    Parameters
    ----------
    neighbour
        Returns the application of a hash, beside which it has run; None if it has no profile.
    """
    return evidence_of(_translated(application, measurement), measurement, neighbour)


def _translated(application: str, measurement: Measurement) -> policy.Profile:
    """Convert a measurement without its runs beside other jobs."""
    return policy.Profile(
        application=application,
        duration=measurement.duration,
        runs=measurement.runs,
        product=measurement.environment.product,
        steps=tuple(
            policy.Step(
                gpu=step.gpu_utilization or 0.0,
                memory=step.gpu_memory,
                core=step.sm_occupancy or 0.0,
                pcie=step.pcie_throughput or 0,
                bandwidth=step.memory_utilization or 0.0,
            )
            for step in measurement.steps
        ),
    )


class ApplicationProfiles:
    """All ApplicationProfiles. If several describe one application, one of them applies."""

    def __init__(self) -> None:
        self.objects: dict[str, ApplicationProfile] = {}
        """The objects by UID. Call `changed` after each change."""
        self._of: dict[ApplicationKey, dict[str, ApplicationProfile]] = {}
        """All of each application, by UID."""
        self._preferred: dict[ApplicationKey, ApplicationProfile] = {}
        """Those that apply, as far as they were looked for since the last change."""
        self._profiles: dict[ApplicationKey, dict[int, policy.Profile]] = {}
        """Converted profiles, by the identity of the measurement."""
        self._hashes: dict[str, ApplicationKey] = {}

    def profile(self, namespace: str, application: str, product: str = "") -> policy.Profile | None:
        """Return the history of an application in a namespace; None if there is none.

        All callers get the same object for the same measurement: a profile may have hundreds of
        steps, and thousands of jobs may have one application.

        Parameters
        ----------
        product
            The GPU product of the measurement; empty for the product with the most runs.
        """
        if (measured := self._measurement(namespace, application, product)) is None:
            return None
        translated = self._profiles.setdefault((namespace, application), {})
        if id(measured) not in translated:
            product = measured.environment.product
            translated[id(measured)] = to_profile(
                application, measured, lambda key: self._neighbour(key, product)
            )
        return translated[id(measured)]

    def compared_runs(
        self, namespace: str, application: str, product: str = ""
    ) -> ComparedRuns | None:
        """Return the runs of an application beside other jobs; None if it has no profile.

        Parameters
        ----------
        product
            As of `profile`.
        """
        if (measured := self._measurement(namespace, application, product)) is None:
            return None
        product, own = measured.environment.product, _translated(application, measured)
        return compared_runs(own, measured, lambda key: self._neighbour(key, product))

    def _neighbour(self, key: str, product: str) -> Neighbour | None:
        """Return the application of a hash, with its profile for a product."""
        namespace, application = self._hashes.get(key, ("", ""))
        measured = self._measurement(namespace, application, product)
        return None if measured is None else (application, to_profile(application, measured))

    def _measurement(self, namespace: str, application: str, product: str) -> Measurement | None:
        found = self.preferred(namespace, application)
        return found.spec.measurement(product) if found else None

    def refused(self, namespace: str, application: str) -> int:
        """Return the bytes with which a Pod of an application ran out of memory; 0 if none did."""
        found = self.preferred(namespace, application)
        return (found.spec.refused if found else None) or 0

    def preferred(self, namespace: str, application: str) -> ApplicationProfile | None:
        """Return the profile that applies to an application; None if it has none."""
        key = (namespace, application)
        if key not in self._preferred and (found := preferred(self._of.get(key, {}).values())):
            self._preferred[key] = found
        return self._preferred.get(key)

    def changed(
        self, old: ApplicationProfile | None, new: ApplicationProfile | None
    ) -> set[ApplicationKey]:
        """Replace a profile by another; return the affected applications."""
        concerned = set()
        if new is not None:
            key = _key(new)
            concerned.add(key)
            if key not in self._of:
                self._hashes[application_hash(*key)] = key
                self._profiles.clear()  # any of them may have run beside it
            self._of.setdefault(key, {})[new.metadata.uid] = new
        if old is not None:
            key = _key(old)
            concerned.add(key)
            if new is None or _key(new) != key:
                del self._of[key][old.metadata.uid]
            if not self._of[key]:
                del self._of[key], self._hashes[application_hash(*key)]
                self._profiles.clear()
        for key in concerned:
            self._profiles.pop(key, None)
            self._preferred.pop(key, None)
        return concerned


def _key(profile: ApplicationProfile) -> ApplicationKey:
    return profile.metadata.namespace, profile.spec.application

"""The histories of applications: selects the ApplicationProfile that applies to a job."""

from partita.models import ApplicationProfile
from partita.models.profile import ApplicationKey, Measurement, preferred
from partita_policies import types as policy

__all__ = ["ApplicationProfiles", "to_profile"]


def to_profile(application: str, measurement: Measurement) -> policy.Profile:
    """Convert a measurement to a profile for policies."""
    return policy.Profile(
        application=application,
        duration=measurement.duration,
        runs=measurement.runs,
        product=measurement.environment.product,
        steps=tuple(
            policy.Step(
                gpu=step.gpu_utilization,
                memory=step.gpu_memory,
                core=step.sm_occupancy or 0.0,
                pcie=step.pcie_throughput or 0,
            )
            for step in measurement.steps
        ),
    )


class ApplicationProfiles:
    """All ApplicationProfiles. If several describe one application, one of them applies."""

    def __init__(self) -> None:
        self.objects: dict[str, ApplicationProfile] = {}
        """The objects by UID. Call `changed` after each change."""
        self._of: dict[ApplicationKey, list[ApplicationProfile]] = {}
        self._profiles: dict[ApplicationKey, dict[int, policy.Profile]] = {}
        """Converted profiles, by the identity of the measurement."""

    def __bool__(self) -> bool:
        return bool(self._of)

    def profile(self, namespace: str, application: str, product: str = "") -> policy.Profile | None:
        """Return the history of an application in a namespace; None if there is none.

        All callers get the same object for the same measurement: a profile may have hundreds of
        steps, and thousands of jobs may have one application.

        Parameters
        ----------
        product
            The GPU product of the measurement; empty for the product with the most runs.
        """
        key = (namespace, application)
        found = self.preferred(namespace, application)
        measured = found.spec.measurement(product) if found else None
        if measured is None:
            return None
        translated = self._profiles.setdefault(key, {})
        if id(measured) not in translated:
            translated[id(measured)] = to_profile(application, measured)
        return translated[id(measured)]

    def refused(self, namespace: str, application: str) -> int:
        """Return the bytes with which a Pod of an application ran out of memory; 0 if none did."""
        found = self.preferred(namespace, application)
        return (found.spec.refused if found else None) or 0

    def preferred(self, namespace: str, application: str) -> ApplicationProfile | None:
        """Return the profile that applies to an application; None if it has none."""
        return preferred(self._of.get((namespace, application), ()))

    def changed(
        self, old: ApplicationProfile | None, new: ApplicationProfile | None
    ) -> set[ApplicationKey]:
        """Replace a profile by another; return the affected applications."""
        concerned = set()
        if old is not None:
            key = _key(old)
            concerned.add(key)
            self._of[key].remove(old)
            if not self._of[key]:
                del self._of[key]
        if new is not None:
            concerned.add(_key(new))
            self._of.setdefault(_key(new), []).append(new)
        for key in concerned:
            self._profiles.pop(key, None)
        return concerned


def _key(profile: ApplicationProfile) -> ApplicationKey:
    return profile.metadata.namespace, profile.spec.application

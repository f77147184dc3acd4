"""The histories of applications: which ApplicationProfile counts for a job, as policies see it."""

from partita.models import ApplicationProfile
from partita.models.profile import ApplicationKey, Measurement, preferred
from partita_policies import types as policy

__all__ = ["ApplicationProfiles", "to_profile"]


def to_profile(application: str, measurement: Measurement) -> policy.Profile:
    """Translate a measurement for the policies."""
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
    """All ApplicationProfiles. Several may speak of one application: one of them counts."""

    def __init__(self) -> None:
        self.objects: dict[str, ApplicationProfile] = {}
        """By UID; after a change call `changed`."""
        self._of: dict[ApplicationKey, list[ApplicationProfile]] = {}
        self._profiles: dict[ApplicationKey, dict[int, policy.Profile]] = {}
        """What was translated, by the identity of the measurement."""

    def __bool__(self) -> bool:
        return bool(self._of)

    def profile(self, namespace: str, application: str, product: str = "") -> policy.Profile | None:
        """Return what is known of an application in a namespace.

        All who ask for the same measurement get the same object: a profile may have hundreds of
        steps, and thousands of jobs may have one application.

        Parameters
        ----------
        product
            The GPU product for which it is wanted, empty for the one with the most runs.
        """
        key = (namespace, application)
        found = preferred(self._of.get(key, ()))
        measured = found.spec.measurement(product) if found else None
        if measured is None:
            return None
        translated = self._profiles.setdefault(key, {})
        if id(measured) not in translated:
            translated[id(measured)] = to_profile(application, measured)
        return translated[id(measured)]

    def changed(
        self, old: ApplicationProfile | None, new: ApplicationProfile | None
    ) -> set[ApplicationKey]:
        """Take a profile in another's place; return the applications that are concerned."""
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

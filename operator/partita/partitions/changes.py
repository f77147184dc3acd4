"""Names of what changed, for a loop that looks at each once however often it changed."""

import asyncio

__all__ = ["Changes"]


class Changes:
    """A set of names to wait for."""

    def __init__(self) -> None:
        self._names: set[str] = set()
        self._some = asyncio.Event()

    def add(self, name: str) -> None:
        """Have a name looked at."""
        self._names.add(name)
        self._some.set()

    async def take(self) -> list[str]:
        """Wait until there is a name; return all, sorted, and start anew."""
        await self._some.wait()
        self._some.clear()
        names, self._names = self._names, set()
        return sorted(names)

"""The data of the charts: lanes, steps and means. Pure."""

from collections.abc import Sequence

from partita_research.simulator import Reading, SimulatedAttempt

__all__ = ["lanes", "means", "steps"]

Steps = tuple[list[float], list[float]]
"""Times, and the value from each time on."""


def lanes(attempts: Sequence[SimulatedAttempt]) -> list[tuple[SimulatedAttempt, int]]:
    """Assign each attempt on a GPU to the lowest lane that is free while it runs."""
    until: list[float] = []
    placed = []
    for attempt in sorted(attempts, key=lambda a: (a.start, a.end, a.job)):
        lane = next((i for i, end in enumerate(until) if end <= attempt.start), len(until))
        if lane == len(until):
            until.append(attempt.end)
        else:
            until[lane] = attempt.end
        placed.append((attempt, lane))
    return placed


def steps(readings: Sequence[Reading], capacity: int, end: float) -> tuple[Steps, Steps]:
    """Return the utilisation and memory of one GPU up to the end, both in percent."""
    times = [reading.time for reading in readings] + [end]
    busy = [100 * reading.busy for reading in readings]
    memory = [100 * reading.memory / capacity for reading in readings]
    if not readings:
        return ([end], [0.0]), ([end], [0.0])
    return (times, [*busy, busy[-1]]), (times, [*memory, memory[-1]])


def means(
    times: Sequence[float], values: Sequence[float], start: float, end: float, count: int
) -> list[float]:
    """Return the mean of a step function in each of `count` equal parts of an interval."""
    if not times or end <= start:
        return [0.0] * count
    width = (end - start) / count
    sums = [0.0] * count
    bounds = [*times[1:], max(end, times[-1])]
    for value, begin, until in zip(values, times, bounds, strict=True):
        first = max(0, min(count - 1, int((begin - start) / width)))
        for part in range(first, count):
            low, high = start + part * width, start + (part + 1) * width
            overlap = min(until, high) - max(begin, low)
            if until <= low:
                break
            sums[part] += max(overlap, 0.0) * value
    return [total / width for total in sums]

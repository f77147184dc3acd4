"""Structured logs: one line a decision, JSON for machines, colours for a terminal."""

import logging
import sys

import structlog
from kopf._cogs.clients.errors import APIError

__all__ = ["configure_logs"]


def configure_logs(*, verbose: bool = False) -> None:
    """Send our logs and kopf's to stderr in one form."""
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    renderer: structlog.typing.Processor = (
        structlog.dev.ConsoleRenderer()
        if sys.stderr.isatty()
        else structlog.processors.JSONRenderer()
    )
    level = logging.DEBUG if verbose else logging.INFO
    structlog.configure(
        processors=[*shared, structlog.processors.format_exc_info, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    handler.addFilter(_brief)
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    # kopf says at INFO what each handler did with each event; our own lines say what matters.
    logging.getLogger("kopf").setLevel(logging.DEBUG if verbose else logging.WARNING)


def _brief(record: logging.LogRecord) -> bool:
    """Write no stack of what kopf asked in vain for: the API server's answer says it all."""
    if record.exc_info and isinstance(record.exc_info[1], APIError):
        record.exc_info = None
    return True

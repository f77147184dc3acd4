"""Structured logs: one line for each decision, as JSON or in colour on a terminal."""

import logging
import sys

import structlog

__all__ = ["configure_logs"]


def configure_logs(*, verbose: bool = False) -> None:
    """Write the logs of Partita and of kopf to stderr in one format."""
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
    handler.addFilter(_without_trace)
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    # At INFO kopf logs every call of every handler.
    logging.getLogger("kopf").setLevel(logging.DEBUG if verbose else logging.WARNING)


def _without_trace(record: logging.LogRecord) -> bool:
    """Drop the stack trace of an error of kopf's, such as of a request: its message is enough."""
    if record.exc_info and type(record.exc_info[1]).__module__.startswith("kopf."):
        record.exc_info = None
    return True

"""Structured logs: a JSON object a line on stderr, with the service and what was bound (run, episode, attempt)."""

import logging
import os
import sys

import structlog


def configure_logs(service: str) -> None:
    """Set up this process's logs. LEYDEN_LOG_LEVEL sets the level (default `info`)."""
    level = logging.getLevelNamesMapping().get(os.environ.get("LEYDEN_LOG_LEVEL", "info").upper(), logging.INFO)
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        # Looked up at each line: stderr may have been replaced since, and the old one closed.
        logger_factory=lambda *_: structlog.PrintLogger(sys.stderr),
    )
    structlog.contextvars.bind_contextvars(service=service)
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)

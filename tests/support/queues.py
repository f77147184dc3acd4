"""Programs that keep a GPU until a test says go."""

from __future__ import annotations

__all__ = ["LONG"]

LONG = {"duration": "1000h"}
"""A program that does not end while a test runs."""

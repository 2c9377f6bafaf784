"""All cases, in the order of the table in docs/testing.md."""

from __future__ import annotations

import asyncio_cases
import hosts_cases
import program_cases
import timeout_cases
from case import CASES, Case

__all__ = ("CASES", "Case", "asyncio_cases", "hosts_cases", "program_cases", "timeout_cases")

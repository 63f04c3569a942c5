"""Which rule compiles a kernel, with which knobs: from records, packaged defaults and the rules themselves."""

from __future__ import annotations

from .choose import find, is_current
from .plan import Plan, plan_with

__all__ = ["Plan", "find", "is_current", "plan_with"]

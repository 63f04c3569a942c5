"""Runs kernel libraries of CPUs that this machine is not: slowly, exactly, and with every access checked."""

from .interface import open_library

__all__ = ["open_library"]

"""Runs kernel libraries of CPUs that this machine is not: slowly, exactly, and with every access checked."""

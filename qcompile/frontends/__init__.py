"""Readers of other formats: they turn models into operator descriptions and constants."""

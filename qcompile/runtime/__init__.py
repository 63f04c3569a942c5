"""Loads and runs bundles without compiler code."""

"""Loads and runs bundles without compiler code: file format, manifest, kernel libraries, CPU features."""

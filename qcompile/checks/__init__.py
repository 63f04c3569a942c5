"""Compiled kernels put to the test: results against the reference, and speed."""

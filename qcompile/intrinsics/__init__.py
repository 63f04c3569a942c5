"""Exact instruction descriptions, each with its implementation and the domain in which it is exact."""

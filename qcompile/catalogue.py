"""The table of operators: what computes each, and shapes to try it with. Tests, benchmarks, docs and CLI read it."""

"""The machine at hand: files, the disk cache, worker processes, compilers, packages. Knows nothing of kernels."""

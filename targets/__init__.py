"""WHERE kernels run: facts of the hardware, one TOML file a target. Read by `qcompile.system.resources` alone."""

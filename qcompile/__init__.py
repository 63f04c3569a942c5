"""qcompile."""

"""Emulates x86-64 CPUs with Bochs."""

"""Tests of what belongs to the machine."""

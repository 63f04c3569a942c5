"""Tuning: candidates are built and measured in processes of their own, every one checked, every one recorded."""

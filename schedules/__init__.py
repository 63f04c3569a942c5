"""HOW kernels are scheduled: the rules (code) and, one folder a target, their knobs (numbers).

A rule turns an operator into a scheduled PrimFunc for a class of hardware. Moves are code, numbers are data.
"""

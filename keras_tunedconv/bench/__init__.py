"""Benchmarks: single convolutions, whole models and overheads, tuned and stock in turn in one run."""

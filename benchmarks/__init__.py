"""Timings on one machine: each module runs as ``python -m benchmarks.<name>``."""

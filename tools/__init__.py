"""Checks of the project that are neither tests nor benchmarks."""

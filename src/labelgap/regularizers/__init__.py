"""Penalties that are not smooth: value and proximal operator."""

from labelgap.regularizers.beside_ones import DualStep, Unpriced
from labelgap.regularizers.nuclear import NuclearNorm, Shrunk
from labelgap.regularizers.singular import Decomposer, Triplets, largest_triplet, leading_triplets, nuclear_norm

__all__ = [
    "Decomposer",
    "DualStep",
    "NuclearNorm",
    "Shrunk",
    "Triplets",
    "Unpriced",
    "largest_triplet",
    "leading_triplets",
    "nuclear_norm",
]

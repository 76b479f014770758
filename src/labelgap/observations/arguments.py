"""The types of arguments that public functions take.

Rows and cells come as anything that NumPy reads (lists, arrays, data frames, tensors) or as sparse matrices; texts
and lists of tags are sequences, which NumPy's ``ArrayLike`` includes.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from labelgap.observations.labels import Labels

MatrixLike: TypeAlias = ArrayLike | sp.sparray | sp.spmatrix
LabelsLike: TypeAlias = MatrixLike | Labels
Array: TypeAlias = NDArray | sp.sparray | sp.spmatrix
ScoresLike: TypeAlias = MatrixLike | tuple[NDArray, NDArray]  # of all cells, or (indices, scores) of the best ones
RandomSeed: TypeAlias = int | np.random.RandomState | None

__all__ = ["Array", "LabelsLike", "MatrixLike", "RandomSeed", "ScoresLike"]

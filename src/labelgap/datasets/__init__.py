"""Readers and writers of features and labels, datasets by name, and generated data."""

from labelgap.datasets.arff import read_arff, read_label_names, write_arff
from labelgap.datasets.documents import Documents, read_documents
from labelgap.datasets.formats import read, read_npz, write, write_npz
from labelgap.datasets.interactions import Interactions, load_interactions
from labelgap.datasets.records import Dataset, Table
from labelgap.datasets.registry import DatasetInfo, list_datasets, load_dataset
from labelgap.datasets.shard_folders import read_shards, write_shards
from labelgap.datasets.synthetic import (
    CompletionData,
    PlantedData,
    make_completion,
    make_low_rank,
    make_sparse_multilabel,
)
from labelgap.datasets.tables import read_records, write_records
from labelgap.datasets.xmc import read_svmlight, read_xmc, write_svmlight, write_xmc

__all__ = [
    "CompletionData",
    "Dataset",
    "DatasetInfo",
    "Documents",
    "Interactions",
    "PlantedData",
    "Table",
    "list_datasets",
    "load_dataset",
    "load_interactions",
    "make_completion",
    "make_low_rank",
    "make_sparse_multilabel",
    "read",
    "read_arff",
    "read_documents",
    "read_label_names",
    "read_npz",
    "read_records",
    "read_shards",
    "read_svmlight",
    "read_xmc",
    "write",
    "write_arff",
    "write_npz",
    "write_records",
    "write_shards",
    "write_svmlight",
    "write_xmc",
]

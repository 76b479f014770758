"""Structured inputs from Hypothesis: read as a plain reading says, or refused with an error of one line.

``LABELGAP_FUZZ=10000 python -m pytest tests/test_fuzzing.py`` tries that many examples of each.
"""

from __future__ import annotations

import io
import json
import os
import zipfile

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from labelgap import LEML, Labels, load
from labelgap.datasets import read, read_documents, write
from labelgap.persistence import CHECKSUMS, HEADER, ModelFileError

N_EXAMPLES = int(os.environ.get("LABELGAP_FUZZ", "25"))
fuzz = settings(
    max_examples=N_EXAMPLES,
    deadline=None,
    derandomize="LABELGAP_FUZZ" not in os.environ,
    suppress_health_check=list(HealthCheck),
    database=None,
)
shapes = st.tuples(st.integers(1, 5), st.integers(1, 5))
cells = st.sampled_from([0.0, 1.0, np.nan])


# --- labels ---------------------------------------------------------------------------------------------------------


@fuzz
@given(shapes.flatmap(lambda shape: hnp.arrays(float, shape, elements=cells)))
def test_labels_of_every_form_mean_the_same(dense):
    known = ~np.isnan(dense)
    rows, columns = np.nonzero(known)
    stored = sp.coo_array((np.nan_to_num(dense)[known], (rows, columns)), shape=dense.shape)
    filled = np.where(known, dense, 7)
    forms = [
        Labels(dense),
        Labels(np.nan_to_num(dense), observed=known),
        Labels(filled, observed=sp.csr_array(known)),
        Labels(sp.csr_array(np.nan_to_num(dense)), observed=known),
        Labels(stored, absent="unknown"),
        Labels(stored.tocsc(), absent="unknown"),
        Labels(Labels(dense)),
        Labels([[None if np.isnan(cell) else cell for cell in row] for row in dense.tolist()]),
    ]
    for labels in forms:
        np.testing.assert_array_equal(labels.toarray(), dense)
    np.testing.assert_array_equal(Labels(dense).T.toarray(), dense.T)


anything = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=5),
    st.binary(max_size=5),
    st.just(object()),
)


@fuzz
@given(st.one_of(anything, st.lists(st.one_of(anything, st.lists(anything, max_size=4)), max_size=4)))
def test_what_is_no_label_matrix_is_one_clear_error(value):
    try:
        labels = Labels(value)
    except (ValueError, TypeError):
        pass
    else:
        assert set(np.unique(labels.toarray()[~np.isnan(labels.toarray())])) <= {0.0, 1.0}


# --- tables and sparse files ----------------------------------------------------------------------------------------

letters = st.characters(blacklist_categories=["Cs", "Cc", "Z"], blacklist_characters=';,|"[]{}')
SIGNS = "0123456789:,. \n\"'{}[]@adtrelion%-\\"
words = st.text(letters, min_size=1, max_size=6)


@fuzz
@given(st.lists(st.tuples(words, st.lists(words, max_size=3, unique=True)), min_size=1, max_size=6))
def test_tables_come_back_as_they_were_written(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("fuzz") / "table.jsonl"
    path.write_text("".join(json.dumps({"text": text, "tags": tags}) + "\n" for text, tags in rows))
    if not any(tags for _, tags in rows):
        return
    documents = read_documents(path, ["text"], tags="tags")
    Y = np.asarray(Labels(documents.Y).toarray(), bool)
    assert [set(np.array(documents.label_names, object)[row]) for row in Y] == [set(tags) for _, tags in rows]


@pytest.mark.filterwarnings("ignore:.*is not UTF-8")
@fuzz
@pytest.mark.parametrize("ending", ["csv", "jsonl", "arff", "svm", "txt", "npz"])
@given(
    content=st.one_of(
        st.binary(max_size=200), st.text(alphabet="0123456789:,. \n\"'{}[]@adtrelion%-\\", max_size=200)
    )
)
def test_any_bytes_are_read_or_refused(tmp_path_factory, ending, content):
    path = tmp_path_factory.mktemp("fuzz") / f"file.{ending}"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    try:
        if ending in ("csv", "jsonl"):
            read_documents(path, ["text"], tags="tags")
        else:
            read(path)
    except (ValueError, OSError):
        pass


@fuzz
@pytest.mark.parametrize("ending", ["arff", "svm", "txt"])
@given(
    X=hnp.arrays(float, (3, 4), elements=st.floats(-1e6, 1e6, width=32)),
    Y=hnp.arrays(int, (3, 2), elements=st.integers(0, 1)),
)
def test_sparse_files_come_back_as_they_were_written(tmp_path_factory, ending, X, Y):
    path = tmp_path_factory.mktemp("fuzz") / f"file.{ending}"
    write(path, X, Y)
    again = read(path)
    rows = again.X.toarray() if sp.issparse(again.X) else np.asarray(again.X)
    labels = Labels(again.Y).toarray()
    np.testing.assert_allclose(rows, X[:, : rows.shape[1]])
    np.testing.assert_array_equal(labels, Y[:, : labels.shape[1]])
    assert not np.any(X[:, rows.shape[1] :])
    assert not np.any(Y[:, labels.shape[1] :])


# --- model headers --------------------------------------------------------------------------------------------------

json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(), st.text(max_size=8)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=8), inner, max_size=3)),
    max_leaves=6,
)


@pytest.fixture(scope="module")
def members(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "model"
    LEML(1, random_state=0).fit(np.eye(3), np.eye(3, 2, dtype=int)).save(path)
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@fuzz
@given(data=st.data())
def test_a_changed_header_is_refused_or_gives_a_model_that_works(members, tmp_path_factory, data):
    header = json.loads(members[HEADER])
    value, path = header, []
    while isinstance(value, dict | list) and value and (not path or data.draw(st.booleans())):
        places = sorted(value) if isinstance(value, dict) else range(len(value))
        path.append(data.draw(st.sampled_from(list(places))))
        value = value[path[-1]]
    parent = header
    for place in path[:-1]:
        parent = parent[place]
    parent[path[-1]] = data.draw(json_values)
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, part in members.items():
            if name != CHECKSUMS:
                archive.writestr(name, json.dumps(header) if name == HEADER else part)
    file = tmp_path_factory.mktemp("fuzz") / "model"
    file.write_bytes(content.getvalue())
    try:
        model = load(file, check=False)
    except ModelFileError:
        return
    try:
        scores = model.decision_function(np.eye(3))
    except ValueError:
        return
    assert scores.shape == (3, 2)

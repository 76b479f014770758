"""Data frames and lists of tags in, data frames and names out."""

from __future__ import annotations

import array_api_strict
import numpy as np
import pandas as pd
import pytest

from labelgap import LEML, BinaryRelevance, OneClassMF, Tagger, load
from labelgap.observations import Labels, encode_tags, holds_tags

NAMES = ["meat", "soup"]
STATES = [[1, None], [0, 1], [None, 0], [1, 1]]
FEATURES = np.eye(4)


@pytest.mark.parametrize("dtype", ["Int64", "Int8", "boolean", "Float64", "object", "float64"])
def test_unknown_cells_of_pandas(dtype):
    columns = {
        name: pd.array(values, dtype=dtype) if dtype[0] != "o" else pd.Series(values, dtype=object)
        for name, values in zip(NAMES, zip(*STATES, strict=True), strict=True)
    }
    expected = np.array(STATES, dtype=float)
    np.testing.assert_array_equal(Labels(pd.DataFrame(columns)).toarray(), expected)


def test_pandas_na_in_objects():
    np.testing.assert_array_equal(Labels([[1, pd.NA], [0, None]]).toarray(), [[1, np.nan], [0, np.nan]])
    with pytest.raises(ValueError, match="not numbers"):
        Labels(pd.DataFrame({"a": pd.array(["x", None], dtype="string")}))


@pytest.mark.parametrize(("dtype", "out"), [("Int64", "int64"), ("boolean", "bool"), ("int8", "int8")])
def test_pandas_in_pandas_out(dtype, out, tmp_path):
    frame = pd.DataFrame([[1, 0], [0, 1], [1, 0], [1, 1]], columns=NAMES, index=list("wxyz")).astype(dtype)
    X = pd.DataFrame(FEATURES, index=frame.index, columns=list("abcd"))
    model = LEML(1, random_state=0).fit(X, frame)
    predicted = model.predict(X)
    assert isinstance(predicted, pd.DataFrame)
    assert predicted.columns.tolist() == NAMES
    assert predicted.index.tolist() == list("wxyz")
    assert set(map(str, predicted.dtypes)) == {out}
    np.testing.assert_array_equal(predicted, model.decision_function(X) > 0)
    model.save(tmp_path / "model")
    pd.testing.assert_frame_equal(load(tmp_path / "model").predict(X), predicted)


def test_polars_in_polars_out():
    pl = pytest.importorskip("polars", reason="polars is not installed")
    for kind in (pl.Int64, pl.Boolean, pl.Float64):
        values = zip(*STATES, strict=True)
        frame = pl.DataFrame({name: pl.Series(cells).cast(kind) for name, cells in zip(NAMES, values, strict=True)})
        np.testing.assert_array_equal(Labels(frame).toarray(), np.array(STATES, dtype=float))
        model = LEML(1, random_state=0).fit(FEATURES, frame)
        predicted = model.predict(FEATURES)
        assert isinstance(predicted, pl.DataFrame)
        assert predicted.columns == NAMES
        assert set(predicted.dtypes) == {kind}


def test_arrays_of_the_array_api():
    Y = np.array(STATES, float)
    X, known = array_api_strict.asarray(FEATURES), array_api_strict.asarray(~np.isnan(Y))
    model = LEML(2, alpha=0.01, random_state=0).fit(X, array_api_strict.asarray(np.nan_to_num(Y)), observed=known)
    expected = LEML(2, alpha=0.01, random_state=0).fit(FEATURES, Y)
    assert np.array_equal(model.decision_function(X), expected.decision_function(FEATURES))
    assert model.score(X, array_api_strict.asarray(Y)) == expected.score(FEATURES, Y)


def test_names_of_labels():
    Y = [[1, 0], [0, 1], [1, 0], [1, 1]]
    assert LEML(1).fit(FEATURES, pd.DataFrame(Y, columns=NAMES)).get_label_names_out().tolist() == NAMES
    assert LEML(1).fit(FEATURES, Y).get_label_names_out().tolist() == ["label0", "label1"]
    model = Tagger(label_names=NAMES, min_count=1).fit(["bacon", "broth", "steak", "bacon broth"], Y)
    assert model.get_label_names_out().tolist() == NAMES


def test_one_column_of_texts():
    texts, Y = (
        ["bacon", "broth", "steak", "bacon broth"],
        pd.DataFrame([[1, 0], [0, 1], [1, 0], [1, 1]], columns=NAMES),
    )
    frame = pd.DataFrame({"text": texts}, index=list("wxyz"))
    model = Tagger(min_count=1).fit(frame, Y)
    assert model.get_feature_names_out().tolist() == ["bacon", "broth", "steak"]
    predicted = model.predict(frame)
    assert (predicted.index.tolist(), predicted.columns.tolist()) == (list("wxyz"), NAMES)
    np.testing.assert_array_equal(predicted, model.predict(texts))
    with pytest.raises(ValueError, match="pass a list of texts"):
        model.predict(frame.assign(other="x"))
    hashed = Tagger(words="hashing", buckets=4).fit(texts, Y)
    assert hashed.get_feature_names_out().tolist() == ["bucket0", "bucket1", "bucket2", "bucket3"]


def test_sample_weight_is_scikit_learns_name_of_row_weights():
    X, Y = np.random.default_rng(0).standard_normal((12, 3)), np.eye(3)[np.arange(12) % 3]
    weights = np.arange(1.0, 13.0)
    scores = [
        OneClassMF(2, random_state=0).fit(X, Y, **options).decision_function(X)
        for options in ({"row_weights": weights}, {"sample_weight": weights}, {})
    ]
    np.testing.assert_array_equal(scores[0], scores[1])
    assert np.abs(scores[0] - scores[2]).max() > 1e-3
    with pytest.raises(ValueError, match="two names of the same weights"):
        OneClassMF(2).fit(X, Y, row_weights=weights, sample_weight=weights)


def test_lists_of_tags():
    lists = [["soup", "meat"], (), {"meat"}, None, np.array(["meat", "meat"]), float("nan")]
    assert holds_tags(lists)
    Y, names = encode_tags(lists)
    assert names == NAMES
    assert Y.toarray().tolist() == [[1, 1], [0, 0], [1, 0], [0, 0], [1, 0], [0, 0]]
    assert encode_tags(lists, min_count=2).names == ["meat"]
    assert encode_tags(lists, ["new", "soup"]).Y.toarray()[0].tolist() == [0, 1]
    assert holds_tags(pd.Series([["a"], []]))


def test_lists_of_tags_in_polars():
    pl = pytest.importorskip("polars")
    texts, lists = ["cake oven", "bacon grill"] * 20, [["baking"], ["meat"]] * 20
    model = Tagger(BinaryRelevance()).fit(pl.Series(texts), pl.Series(lists))
    assert model.label_names_in_.tolist() == ["baking", "meat"]
    assert model.predict_tags(["oven"], 1) == [["baking"]]


@pytest.mark.parametrize("Y", [[[1, 0]], np.eye(2), ["a b", "c"], [[], []], [["a", 1]], "a", None, 3, [[["a"]]]])
def test_what_is_no_list_of_tags(Y):
    assert not holds_tags(Y)

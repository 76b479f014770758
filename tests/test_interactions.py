"""Ratings with side information: hand-written files in both formats, everything that can be wrong, the real sets."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from labelgap.datasets import Interactions, list_datasets, load_dataset, load_interactions

# Three users and four items; item 3 is never rated. The second cell and the last are held out.
RATINGS = np.array([[5, 0, 3, 0], [0, 4, 0, 0], [1, 0, 4, 0]])
TEST = np.array([[0, 0, 1, 0], [0, 0, 0, 0], [0, 0, 1, 0]])
USERS, ITEMS = np.nonzero(RATINGS)
ARRAYS = {
    "shape": np.array([3, 4]),
    "user": USERS.astype(np.int32),
    "item": ITEMS.astype(np.int32),
    "rating": RATINGS[USERS, ITEMS].astype(float),
    "is_test": TEST[USERS, ITEMS].astype(bool),
    "W_users_row": np.array([0, 1, 2]),
    "W_users_col": np.array([1, 0, 2]),
    "W_movies_row": np.array([0, 3]),
    "W_movies_col": np.array([3, 0]),
}
U_DATA = "1\t1\t5\t880\n3\t3\t4\t881\n1\t3\t3\t882\n2\t2\t4\t883\n3\t1\t1\t884\n"
U_USER = "1|17|F|writer|10003\n2|18|M|artist|V0R2M\n3|73|M|writer|02138\n"
U_ITEM = (
    "1|Am\xe9lie (2001)|25-Apr-2001||http://a/%E9|0|0|0|0|0|1|0|0|0|0|0|0|0|0|1|0|0|0|0\n"
    "2|unknown||||1|0|0|0|0|0|0|0|0|0|0|0|0|0|0|0|0|0|0\n"
    "3|Good Morning (1971)|4-Feb-1971||http://a|0|0|0|0|0|0|0|0|0|0|0|0|0|0|0|0|0|0|0\n"
    "4|High Noon (1952)|01-Jan-1979|01-Jan-1990|http://a|0|0|0|0|0|0|0|0|0|0|0|0|0|0|0|0|0|0|1\n"
)
TABLES = {"u.data": U_DATA, "u.user": U_USER, "u.item": U_ITEM}


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("LABELGAP_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def data(tmp_path, monkeypatch):
    monkeypatch.setenv("LABELGAP_DATA", str(tmp_path / "data"))
    return tmp_path / "data"


def put(folder, name="flixster", file=None, without=(), **changes):
    path = folder / name / (file or f"{name}.npz")
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, **{key: array for key, array in {**ARRAYS, **changes}.items() if key not in without})
    return path


def put_movielens(folder, **changes):
    put(folder, "ml-100k", "monti_split_1.npz")
    for name, text in {**TABLES, **{f"u.{key}": text for key, text in changes.items()}}.items():
        (folder / "ml-100k" / f"{name}.gz").write_bytes(gzip.compress(text.encode("latin-1")))


def info(name):
    return next(info for info in list_datasets() if info.name == name)


# --- what is read ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["flixster", "douban"])
def test_ratings_split_and_graphs(data, name):
    put(data, name)
    found = load_interactions(name)
    assert found.name == name
    np.testing.assert_array_equal(found.ratings.toarray(), RATINGS)
    np.testing.assert_array_equal(found.test.toarray(), TEST)
    # User 2 is its own neighbour; items 1 and 2 have none.
    assert found.row_graph.toarray().tolist() == [[0, 1, 0], [1, 0, 0], [0, 0, 1]]
    assert found.label_graph.toarray().tolist() == [[0, 0, 0, 1], [0] * 4, [0] * 4, [1, 0, 0, 0]]
    assert found.test.dtype == bool
    for matrix in (found.ratings, found.row_graph, found.label_graph):
        assert matrix.dtype == float
    for matrix in (found.ratings, found.test, found.row_graph, found.label_graph):
        assert matrix.format == "csr"
        assert matrix.has_canonical_format
        assert matrix.indices.dtype == matrix.indptr.dtype == np.int32
    assert found.row_features is found.label_features is None
    assert found.row_feature_names is found.label_feature_names is None
    assert repr(found) == f"Interactions({name!r}, 3 users, 4 items, 5 ratings)"


@pytest.mark.parametrize("side", ["users", "movies"])
def test_a_graph_may_be_missing(data, side):
    put(data, without=(f"W_{side}_row", f"W_{side}_col"))
    found = load_interactions("flixster")
    assert (found.row_graph is None, found.label_graph is None) == (side == "users", side == "movies")


def test_an_edge_that_is_stored_twice_counts_once(data):
    put(data, W_users_row=np.array([0, 1, 0]), W_users_col=np.array([1, 0, 1]))
    assert load_interactions("flixster").row_graph.data.tolist() == [1, 1]


def test_types_of_the_arrays_do_not_matter(data):
    small = {key: ARRAYS[key].astype(np.uint16) for key in ("shape", "user", "item", "rating", "W_users_row")}
    put(data, **small, is_test=np.zeros(5, bool))
    found = load_interactions("flixster")
    np.testing.assert_array_equal(found.ratings.toarray(), RATINGS)
    assert (found.test.nnz, found.test.shape) == (0, (3, 4))


def test_movielens_features(data):
    put_movielens(data)
    found = load_interactions("ml-100k")
    np.testing.assert_array_equal(found.ratings.toarray(), RATINGS)
    np.testing.assert_array_equal(found.test.toarray(), TEST)
    assert found.row_graph.nnz == 3
    ages, rest = found.row_feature_names[:7], found.row_feature_names[7:]
    assert ages == ["age:0-17", "age:18-24", "age:25-34", "age:35-44", "age:45-49", "age:50-55", "age:56+"]
    assert rest == ["gender:F", "gender:M", "occupation:artist", "occupation:writer"]
    assert found.row_features.toarray().tolist() == [
        [1, 0, 0, 0, 0, 0, 0, 1, 0, 0, 1],
        [0, 1, 0, 0, 0, 0, 0, 0, 1, 1, 0],
        [0, 0, 0, 0, 0, 0, 1, 0, 1, 0, 1],
    ]
    assert len(found.label_feature_names) == 19 + 2
    rows = [[found.label_feature_names[j] for j in np.flatnonzero(row)] for row in found.label_features.toarray()]
    assert rows == [
        ["genre:Comedy", "genre:Romance", "decade:2000s"],
        ["genre:unknown"],
        ["decade:1970s"],
        ["genre:Western", "decade:1970s"],
    ]
    assert found.row_features.dtype == found.label_features.dtype == float


@pytest.mark.parametrize(("age", "band"), [(24, 1), (25, 2), (34, 2), (35, 3), (45, 4), (50, 5), (55, 5), (56, 6)])
def test_age_bands(data, age, band):
    put_movielens(data, user=U_USER.replace("|73|", f"|{age}|"))
    assert load_interactions("ml-100k").row_features.indices[6] == band


@pytest.mark.parametrize(("least", "count"), [(None, 3), (4, 3), (4.5, 1), (1, 5), (np.float32(3), 4), (6, 0)])
def test_positives(data, least, count):
    put(data)
    found = load_interactions("flixster")
    positives = found.positives() if least is None else found.positives(least)
    threshold = 4 if least is None else least
    np.testing.assert_array_equal(positives.toarray(), threshold <= RATINGS)
    assert positives.nnz == count
    assert (positives.data == 1.0).all()
    assert positives.dtype == float
    np.testing.assert_array_equal(found.ratings.toarray(), RATINGS)


def test_a_rating_of_zero_is_a_rating():
    rated = sp.csr_array((np.array([0.0, -1.0]), ([0, 1], [1, 0])), shape=(2, 2))
    assert Interactions("signed", rated).positives(0).toarray().tolist() == [[0, 1], [0, 0]]


@pytest.mark.parametrize("least", [np.nan, np.inf, "4", None])
def test_least_is_a_number(least):
    with pytest.raises(ValueError, match=rf"least={least!r} is not a rating; pass a finite number"):
        Interactions("tiny", sp.csr_array(RATINGS)).positives(least)


# --- where it is found ----------------------------------------------------------------------------------------------


def test_folder_before_cache(data, cache):
    assert info("flixster").where == "not available"
    put(cache, rating=np.full(5, 2.0))
    assert info("flixster").where == "cache"
    assert load_interactions("flixster").ratings.max() == 2
    put(data)
    assert info("flixster").where == "folder"
    assert load_interactions("flixster").ratings.max() == 5


def test_without_a_folder_the_cache(cache, monkeypatch):
    monkeypatch.delenv("LABELGAP_DATA", raising=False)
    put(cache)
    assert load_interactions("flixster").ratings.nnz == 5


def test_incomplete_folder_is_passed_over(data, cache):
    put_movielens(data, user="")
    (data / "ml-100k" / "u.item.gz").unlink()
    put_movielens(cache)
    assert load_interactions("ml-100k").row_features.shape == (3, 11)


@pytest.mark.parametrize(
    ("name", "files"), [("douban", "douban.npz"), ("ml-100k", "monti_split_1.npz, u.data.gz, u.user.gz, u.item.gz")]
)
def test_missing_files_name_the_remedy(data, cache, name, files):
    with pytest.raises(FileNotFoundError) as error:
        load_interactions(name)
    for part in (f"{name!r} is not on this machine", f"Put {files} into", "LABELGAP_DATA", str(cache)):
        assert part in str(error.value)


def test_unknown_names():
    with pytest.raises(ValueError, match="name='ml' is not a known dataset; choose from douban, flixster, ml-100k"):
        load_interactions("ml")
    with pytest.raises(ValueError, match=r"name='yeast' is a dataset of another kind; call load_dataset\('yeast'\)"):
        load_interactions("yeast")
    with pytest.raises(ValueError, match=r"name='douban' is a dataset of another kind; call load_interactions"):
        load_dataset("douban")


def test_the_list_shows_them_with_their_kind():
    assert [info.name for info in list_datasets() if info.kind == "ratings"] == ["douban", "flixster", "ml-100k"]
    assert {info.kind for info in list_datasets() if info.name in ("bibtex", "scene")} == {"labels"}


# --- damaged files: the file, what was found, what is expected ------------------------------------------------------

WRONG_ARRAYS = [
    ({"without": ["rating"]}, r"found the arrays W_movies_col, .*user, expected one named rating"),
    ({"without": ["shape"]}, "expected one named shape"),
    ({"without": ["is_test"]}, "expected one named is_test"),
    ({"without": ["W_users_col"]}, "expected one named W_users_col"),
    ({"without": ["W_users_row"]}, "expected one named W_users_row"),
    ({"shape": np.array([3, 4, 5])}, r"found shape of type int64 and shape \(3,\), expected 2 integers"),
    ({"shape": np.array([3.0, 4.0])}, "found shape of type float64 .*expected 2 integers"),
    ({"shape": np.array([0, 4])}, "found shape 0, 4, expected at least one user and one item"),
    ({"shape": np.array([2, 4])}, "found 2 in user, expected indices from 0 to 1"),
    ({"item": np.array([0, 2, 1, 0, 4])}, "found 4 in item, expected indices from 0 to 3"),
    ({"item": np.array([0, 2, 1, 0, -1])}, "found -1 in item, expected indices from 0 to 3"),
    ({"item": np.array([0, 2, 1])}, r"found item of type int64 and shape \(3,\), expected 5 integers"),
    ({"user": np.array([[0], [1]])}, r"found user of .*shape \(2, 1\), expected a list of integers"),
    ({"rating": np.array([5, 3, np.nan, 1, 4])}, "found the rating nan, expected finite numbers"),
    ({"rating": np.array([5, 3, -np.inf, 1, 4])}, "found the rating -inf, expected finite numbers"),
    ({"rating": np.array(list("53414"))}, "found rating of type <U1 .*expected 5 numbers"),
    ({"is_test": np.array([0, 1, 0, 0, 1])}, "found is_test of type int64 .*expected 5 flags"),
    ({"item": np.array([0, 0, 1, 0, 2])}, "found 5 ratings of 4 cells, expected one per cell"),
    ({"W_users_row": np.array([0, 1, 3])}, "found 3 in W_users_row, expected indices from 0 to 2"),
    ({"W_movies_col": np.array([3, 0, 1])}, r"found W_movies_col of .*shape \(3,\), expected 2 integers"),
    ({"W_movies_col": np.array([3, 1])}, "found the edge .* of W_movies in one direction only, expected both"),
]


@pytest.mark.parametrize(("changes", "message"), WRONG_ARRAYS)
def test_wrong_arrays(data, changes, message):
    put(data, **changes)
    with pytest.raises(ValueError, match=rf"flixster\.npz: .*{message}"):
        load_interactions("flixster")


def test_unreadable_files(data):
    path = put(data)
    path.write_bytes(path.read_bytes()[:300])
    with pytest.raises(ValueError, match=r"flixster\.npz is not a readable \.npz file"):
        load_interactions("flixster")
    put_movielens(data)
    table = data / "ml-100k" / "u.user.gz"
    table.write_bytes(table.read_bytes()[:30])
    with pytest.raises(ValueError, match=r"u\.user\.gz: the compressed data are cut off or damaged"):
        load_interactions("ml-100k")


def test_objects_are_not_unpickled(data):
    put(data, user=np.array([{}], object))
    with pytest.raises(ValueError, match=r"flixster\.npz is not a readable"):
        load_interactions("flixster")


WRONG_TABLES = [
    (
        "data",
        U_DATA.replace("\t", " "),
        r"u\.data\.gz, line 1: found '1 1 5 880', expected 4 fields separated by",
    ),
    ("data", U_DATA.replace("2\t2\t4", "4\t2\t4"), "line 4: found '4', expected a user from 1 to 3"),
    ("data", U_DATA.replace("2\t2\t4", "2\t0\t4"), "line 4: found '0', expected an item from 1 to 4"),
    ("data", U_DATA.replace("2\t2\t4", "2\t2\tx"), "line 4: found 'x', expected a rating from 1 to 5"),
    ("data", U_DATA.replace("2\t2\t4", "2\t2\t9"), "line 4: found '9', expected a rating from 1 to 5"),
    ("data", U_DATA.replace("2\t2\t4", "2\t3\t4"), r"u\.data\.gz: 2 ratings differ"),
    ("data", U_DATA.replace("2\t2\t4", "3\t1\t4"), r"u\.data\.gz: found 5 ratings of 4 cells, expected one"),
    ("data", "", "5 ratings differ .*get the files again"),
    (
        "user",
        U_USER.replace("|M|artist", "|artist"),
        r"u\.user\.gz, line 2: found .*, expected 5 fields separated",
    ),
    ("user", U_USER.replace("\n3|", "\n4|"), "line 3: found '4', expected the rows 1 to 3 in order"),
    ("user", U_USER + "4|30|M|none|1\n", "line 4: found '4', expected the rows 1 to 3 in order"),
    ("user", U_USER.split("3|")[0], "found 'the end of the file', expected the rows 1 to 3"),
    ("user", U_USER.replace("|73|", "|old|"), "line 3: found 'old', expected an age from 0 to 130"),
    ("user", U_USER.replace("|73|", "|-3|"), "line 3: found '-3', expected an age"),
    ("item", U_ITEM.replace("|0\n", "\n", 1), r"u\.item\.gz, line 1: found .*, expected 24 fields separated by '\|'"),
    ("item", U_ITEM.replace("|1\n", "|2\n"), "line 4: found '2', expected a flag from 0 to 1"),
    ("item", U_ITEM.replace("4-Feb-1971", "1971"), "line 3: found '1971', expected a date such as 01-Jan-1995"),
    ("item", "", "found 'the end of the file', expected the rows 1 to 4"),
]


@pytest.mark.parametrize(("table", "text", "message"), WRONG_TABLES)
def test_wrong_tables(data, table, text, message):
    put_movielens(data, **{table: text})
    with pytest.raises(ValueError, match=message):
        load_interactions("ml-100k")


# --- the real sets --------------------------------------------------------------------------------------------------

needs_data = pytest.mark.skipif(
    "LABELGAP_DATA" not in os.environ, reason="needs the data sets: set LABELGAP_DATA to their folder"
)

# name: users, items, ratings, train, test, edges of users and of items (both directions; None: no graph)
COUNTED = {
    "ml-100k": (943, 1682, 100000, 80000, 20000, 12594, 28928),
    "flixster": (3000, 3000, 26173, 23556, 2617, 59354, 50918),
    "douban": (3000, 3000, 136891, 123202, 13689, 2690, None),
}


def movielens_table(name, **options):
    path = Path(os.environ["LABELGAP_DATA"]) / "ml-100k" / name
    return np.loadtxt(path, **{"dtype": int, "encoding": "latin-1", "comments": None, **options})


@needs_data
@pytest.mark.parametrize("name", COUNTED)
def test_counts_of_the_real_sets(name):
    n, L, rated, train, test, user_edges, item_edges = COUNTED[name]
    found = load_interactions(name)
    assert found.ratings.shape == found.test.shape == (n, L)
    assert (found.ratings.nnz, found.test.nnz) == (rated, test)
    assert found.ratings.multiply(found.test).nnz == rated - train
    assert (found.ratings.data.min(), found.ratings.data.max()) == (0.5 if name == "flixster" else 1, 5)
    for graph, size, edges in ((found.row_graph, n, user_edges), (found.label_graph, L, item_edges)):
        assert (graph is None) == (edges is None)
        if graph is not None:
            assert (graph.shape, graph.nnz) == ((size, size), edges)
            assert (graph != graph.T).nnz == 0
            assert set(graph.data) == {1.0}
    listed = info(name)
    features = 0 if found.row_features is None else found.row_features.shape[1]
    assert (listed.n_train, listed.n_test, listed.n_features, listed.n_labels) == (n, 0, features, L)
    assert listed.where == "folder"


@needs_data
def test_graphs_of_the_real_sets():
    douban, flixster = load_interactions("douban").row_graph, load_interactions("flixster").row_graph
    assert (douban.trace(), int((np.diff(douban.indptr) == 0).sum())) == (2, 1831)
    assert (flixster.trace(), int((np.diff(flixster.indptr) == 0).sum())) == (0, 0)


@needs_data
def test_movielens_ratings_and_split():
    found = load_interactions("ml-100k")
    assert found.positives().nnz == 55375
    user, item, rating, _ = movielens_table("u.data.gz").T
    np.testing.assert_array_equal(found.ratings[user - 1, item - 1], rating)
    user, item, _, _ = movielens_table("u1.test.gz").T
    assert found.test[user - 1, item - 1].all()
    assert found.test.nnz == len(user) == 20000


@needs_data
def test_movielens_features_of_the_real_set():
    found = load_interactions("ml-100k")
    assert (found.row_features.shape, found.label_features.shape) == ((943, 30), (1682, 27))
    age, gender, occupation = movielens_table("u.user.gz", delimiter="|", dtype=str, usecols=(1, 2, 3)).T
    columns = {name: found.row_features[:, [j]].toarray().ravel() for j, name in enumerate(found.row_feature_names)}
    np.testing.assert_array_equal(columns["age:35-44"], (age.astype(int) > 34) & (age.astype(int) < 45))
    np.testing.assert_array_equal(columns["gender:F"], gender == "F")
    np.testing.assert_array_equal(columns["occupation:librarian"], occupation == "librarian")
    assert (found.row_features.sum(1) == 3).all()
    genres = movielens_table("u.item.gz", delimiter="|", usecols=range(5, 24))
    np.testing.assert_array_equal(found.label_features[:, :19].toarray(), genres)
    assert np.flatnonzero(found.label_features[:, 19:].sum(1) == 0).tolist() == [267 - 1]
    named = movielens_table("u.genre.gz", delimiter="|", dtype=str, usecols=0, max_rows=19)
    assert found.label_feature_names[:19] == [f"genre:{name}" for name in named]
    assert found.label_feature_names[19:] == [f"decade:{year}s" for year in range(1920, 2000, 10)]

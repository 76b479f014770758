"""Model files: what is saved comes back whole, and what is damaged does not come back at all."""

from __future__ import annotations

import hashlib
import io
import json
import os
import pickle
import stat
import struct
import subprocess
import sys
import threading
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import NotFittedError

import labelgap
from labelgap import LEML, SLEEC, LabelKNN, Labels, LocalLEML, OneClassMF, load, persistence
from labelgap.estimators import MultiLabelEstimator
from labelgap.losses import Logistic, Squared
from labelgap.persistence import CHECKSUMS, FORMAT, HEADER, ModelFileError

SETTINGS = [
    {"loss": "squared"},
    {"loss": "logistic"},
    {"loss": "squared_hinge"},
    {"loss": Logistic()},
    {"fit_intercept": False},
    {"kernel": "rbf", "gamma": 0.3},
    {"kernel": "precomputed"},
    {"dtype": np.float64, "alpha": np.float32(0.25), "n_components": np.int64(2)},
    {"warm_start": True, "absent": "unknown", "n_jobs": 1, "max_iter": 40, "tol": 1e-4},
]
ONE_CLASS_SETTINGS = [
    {"loss": Logistic(), "loss_unlabelled": Squared(), "keep_rows": True},
    {"loss": "squared", "fit_intercept": False, "graph_alpha": np.float32(0.5)},
    {"weight_unlabelled": (np.full(40, 0.25), 0.5), "alpha": np.full(6, 0.5), "alpha_labels": [0.25] * 5},
    {"negatives": "subsampled", "negative_ratio": 2.0},
]
LOCAL = {"n_learners": 2, "n_clusters": 3}
LOCAL_SETTINGS = [
    (SLEEC, LOCAL),
    (SLEEC, LOCAL | {"n_clusters": None, "threshold": 0.2, "metric": "euclidean", "label_norm": None}),
    (SLEEC, LOCAL | {"regressor": "admm", "l1": 0.1, "dtype": np.float64, "weights": "uniform"}),
    (LabelKNN, LOCAL | {"n_neighbors": 3}),
    (LocalLEML, LOCAL | {"alpha_labels": 0.5}),
    (LocalLEML, LOCAL | {"loss": Logistic(), "fit_intercept": False}),
]
MODELS = [
    *((LEML, setting) for setting in SETTINGS),
    *((OneClassMF, setting) for setting in ONE_CLASS_SETTINGS),
    *LOCAL_SETTINGS,
]


def plain(value):
    """A parameter as JSON has it."""
    if isinstance(value, Logistic | Squared):
        return value.name
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    return "float64" if value is np.float64 else value


def same(left, right):
    """Two values are equal and of the same type, and so are those in them."""
    assert type(left) is type(right)
    if isinstance(left, dict):
        assert left.keys() == right.keys()
        left, right = list(left.values()), list(right.values())
    if isinstance(left, list):
        for each in zip(left, right, strict=True):
            same(*each)
        return
    if sp.issparse(left):
        assert left.shape == right.shape
        left, right = left.toarray(), right.toarray()
    if isinstance(left, np.ndarray):
        assert left.dtype == right.dtype
        np.testing.assert_array_equal(left, right)
    else:
        assert left == right


def same_state(a, b):
    """Two estimators have equal fitted attributes of equal types."""
    states = [{name: value for name, value in vars(model).items() if name.endswith("_")} for model in (a, b)]
    same(*({name: states[i][name] for name in sorted(states[i])} for i in range(2)))


def make(cls, **parameters):
    """An estimator with parameters that make a small fit, as far as it has them."""
    own = cls().get_params()
    small = {"n_components": 2, "alpha": 0.1, "random_state": 0, "tol": 1e-2}
    return cls(**{name: value for name, value in small.items() if name in own} | parameters)


@pytest.fixture
def fitted(planted):
    X, Y, _ = planted()
    return LEML(2, alpha=0.1, random_state=0, n_jobs=1).fit(X, Y)


@pytest.fixture
def file(fitted, tmp_path):
    path = tmp_path / "model.labelgap"
    fitted.save(path)
    return path


# --- there and back ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("cls", "setting"), MODELS, ids=str)
@pytest.mark.parametrize("wrap", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
def test_what_is_saved_comes_back(cls, setting, wrap, planted, tmp_path):
    X, Y, observed = planted()
    if setting.get("kernel") == "precomputed":
        X = X @ X.T
    X = wrap(X)
    model = make(cls, **setting).fit(X, Labels(Y, observed=observed))
    model.save(tmp_path / "model")
    again = load(tmp_path / "model")
    same_state(model, again)
    assert type(again) is cls
    np.testing.assert_array_equal(again.decision_function(X), model.decision_function(X))
    for found, expected in zip(again.predict_topk(X, 3), model.predict_topk(X, 3)):
        np.testing.assert_array_equal(found, expected)
    assert again.score(X, Y, observed) == model.score(X, Y, observed)
    parameters = again.get_params()
    for name, value in setting.items():
        assert parameters[name] == plain(value)
        assert type(parameters[name]) in (str, int, float, bool, list, type(None))


@pytest.mark.parametrize(
    "container",
    [
        lambda Y: Y.astype(bool),
        lambda Y: (2 * Y - 1).astype(np.int8),
        lambda Y: sp.csr_matrix(Y.astype(np.float32)),
        lambda Y: np.where(Y == 1, 1.0, np.nan),
    ],
    ids=["bool", "signed", "csr", "nan"],
)
def test_the_container_comes_back(container, planted, tmp_path):
    X, Y, _ = planted()
    model = LEML(2, random_state=0).fit(X, container(Y))
    model.save(tmp_path / "model")
    found, expected = load(tmp_path / "model").predict(X), model.predict(X)
    assert type(found) is type(expected)
    assert found.dtype == expected.dtype
    dense = [part.toarray() if sp.issparse(part) else part for part in (found, expected)]
    np.testing.assert_array_equal(*dense)


def test_feature_names_come_back(planted, tmp_path):
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    X, Y, _ = planted()
    frame = pandas.DataFrame(X, columns=[f"größe {i}" for i in range(X.shape[1])])
    model = LEML(2, random_state=0).fit(frame, Y)
    model.save(tmp_path / "model")
    again = load(tmp_path / "model")
    same_state(model, again)
    np.testing.assert_array_equal(again.predict(frame), model.predict(frame))
    assert again.score(frame, Y) == model.score(frame, Y)
    with pytest.raises(ValueError, match="feature names"):
        again.predict(frame.rename(columns={"größe 0": "other"}))


def test_a_loaded_model_goes_on_learning(planted, tmp_path):
    X, Y, observed = planted()
    model = LEML(2, alpha=0.1, warm_start=True, max_iter=1, n_jobs=1)
    with pytest.warns(UserWarning, match="max_iter"):
        model.fit(X, Y, observed)
    model.save(tmp_path / "model")
    again = load(tmp_path / "model").set_params(max_iter=30).fit(X, Y, observed)
    model.set_params(max_iter=30).fit(X, Y, observed)
    assert again.objective_ == model.objective_
    np.testing.assert_array_equal(again.label_factors_, model.label_factors_)


def test_callbacks_and_generators_are_not_kept(planted, tmp_path):
    X, Y, _ = planted()
    model = LEML(2, callbacks=[print], random_state=np.random.RandomState(0), max_iter=1, tol=0)
    model.fit(X, Y)
    model.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert again.callbacks is None
    assert again.random_state is None


def test_values_of_every_kind(tmp_path):
    values = {
        "wide_": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        "strided_": np.arange(10)[::3],
        "empty_": np.zeros((0, 3), np.float32),
        "number_": np.float32(0.5),
        "words_": np.array(["a", "ß"], dtype=object),
        "sparse_": sp.csc_array(np.eye(3)),
        "list_": [1.5, float("inf")],
        "none_": None,
        "lists_": [[1.0, 2.0], [], [3.0]],
        "numbers_": [np.float32(0.5), [np.int64(3)]],
        "ragged_": [np.arange(3), np.zeros((2, 0), np.float32), sp.csr_array(np.eye(2))],
        "parts_": [[{"rows": np.arange(2), "matrix": sp.csr_array(np.eye(2)), "name": "a"}], []],
        "deep_": {"a": {"b": [np.float32(0.25), np.ones(1)]}, "plain": {"c": [1]}, "none": None},
    }
    persistence.write_model(tmp_path / "m", {"estimator": "X"}, values)
    header, found = persistence.read_model(tmp_path / "m")
    assert header["estimator"] == "X"
    assert found.keys() == values.keys()
    for name in ("wide_", "strided_", "empty_"):
        assert found[name].dtype == values[name].dtype
        np.testing.assert_array_equal(found[name], values[name])
    np.testing.assert_array_equal(found["sparse_"].toarray(), np.eye(3))
    assert found["words_"].tolist() == ["a", "ß"]
    assert (found["number_"], found["list_"], found["none_"]) == (0.5, [1.5, float("inf")], None)
    same(found["numbers_"], [0.5, [3]])
    for name in ("lists_", "ragged_", "parts_"):
        same(found[name], values[name])
    same(found["deep_"], {"a": {"b": [0.25, np.ones(1)]}, "plain": {"c": [1]}, "none": None})


# --- no pickle -----------------------------------------------------------------------------------------------------


def test_a_file_holds_json_and_arrays_only(planted, tmp_path, monkeypatch):
    X, Y, _ = planted()
    model = LEML(2, kernel="rbf").fit(sp.csr_array(X), Y)

    def refuse(*args, **kwargs):
        raise AssertionError("pickle on the path")

    for name in ("load", "loads", "dump", "dumps", "Pickler", "Unpickler"):
        monkeypatch.setattr(pickle, name, refuse)
    model.save(tmp_path / "model")
    load(tmp_path / "model")
    with zipfile.ZipFile(tmp_path / "model") as archive:
        names = archive.namelist()
        assert names[0] == HEADER
        assert len(names) == len(set(names)) > 5
        assert names[-1] == CHECKSUMS
        for name in names[1:-1]:
            assert name.endswith(".npy")
            np.load(io.BytesIO(archive.read(name)), allow_pickle=False)
        header = json.loads(archive.read(HEADER))
    assert header["format"] == FORMAT
    assert header["library"] == "labelgap"
    assert header["estimator"] == "LEML"


def test_an_array_of_objects_in_a_file_is_refused(file):
    payload = io.BytesIO()
    np.save(payload, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(ModelFileError, match="Save the model again"):
        load(rewritten(file, {"label_factors_.npy": payload.getvalue()}))


def test_a_callable_kernel_cannot_be_saved(planted, tmp_path):
    X, Y, _ = planted()
    model = LEML(2, kernel=lambda a, b: a @ b.T).fit(X, Y)
    with pytest.raises(TypeError, match=r"kernel=.* holds no code; use a named option \(or kernel='precomputed'\)"):
        model.save(tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


def test_a_loss_of_ones_own_cannot_be_saved(planted, tmp_path):
    class Mine(Squared):
        pass

    X, Y, _ = planted()
    with pytest.raises(TypeError, match=r"loss=Mine.* holds no code"):
        LEML(2, loss=Mine()).fit(X, Y).save(tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


def test_an_unfitted_model_cannot_be_saved(tmp_path):
    with pytest.raises(NotFittedError):
        LEML().save(tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


# --- damaged files -------------------------------------------------------------------------------------------------


def rewritten(path, members, *, honest=True):
    """Write the zip anew with some members replaced, None leaves one out; an honest one has the right checksums."""
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    parts.update({name: part.encode() if isinstance(part, str) else part for name, part in members.items()})
    if honest:
        known = {name: hashlib.sha256(part).hexdigest() for name, part in parts.items() if part and name != CHECKSUMS}
        parts[CHECKSUMS] = json.dumps(known)
    other = path.with_name("rewritten")
    with zipfile.ZipFile(other, "w") as archive:
        for name, content in parts.items():
            if content is not None:
                archive.writestr(name, content)
    return other


def with_header(path, change):
    with zipfile.ZipFile(path) as archive:
        header = json.loads(archive.read(HEADER))
    return rewritten(path, {HEADER: json.dumps(change(header))})


def test_a_file_cut_short_anywhere(file, tmp_path):
    whole = file.read_bytes()
    cut = tmp_path / "cut"
    for length in {*range(0, len(whole), 61), *range(len(whole) - 40, len(whole))}:
        cut.write_bytes(whole[:length])
        with pytest.raises(ModelFileError, match=r"is not a complete labelgap model .* Save the model again"):
            load(cut)


def test_a_changed_byte_is_found_or_does_not_matter(file, fitted, tmp_path):
    whole = bytearray(file.read_bytes())
    changed = tmp_path / "changed"
    found = 0
    for position in range(0, len(whole), 13):
        damaged = whole.copy()
        damaged[position] ^= 0xFF
        changed.write_bytes(damaged)
        try:
            again = load(changed)
        except ModelFileError:
            found += 1
        else:
            same_state(again, fitted)
    assert found > len(range(0, len(whole), 13)) / 2


def mutate(content, rng):
    """Change a file as disks, transfers and editors do."""
    at, length = int(rng.integers(len(content))), int(rng.integers(1, 200))
    return [
        lambda: content[:at] + bytes([content[at] ^ 1 << int(rng.integers(8))]) + content[at + 1 :],
        lambda: content[:at],
        lambda: content[:at] + bytes(length) + content[at + length :],
        lambda: content[:at] + content[at + length :],
        lambda: content[:at] + rng.bytes(length) + content[at:],
        lambda: content[:at] + content[at : at + length] + content[at:],
    ][int(rng.integers(6))]()


@pytest.mark.parametrize("mmap", [False, True])
def test_a_thousand_mutated_files_load_right_or_fail_with_our_error(mmap, file, fitted, tmp_path):
    whole, rng, refused = file.read_bytes(), np.random.default_rng(0), 0
    changed = tmp_path / "changed"
    for _ in range(1000):
        changed.write_bytes(mutate(whole, rng))
        try:
            again = load(changed, mmap=mmap)
        except ModelFileError:
            refused += 1
        else:
            same_state(again, fitted)
    assert refused > 700


@pytest.mark.parametrize("name", [HEADER, "label_factors_.npy"])
def test_an_edited_member_is_refused(name, file):
    with zipfile.ZipFile(file) as archive:
        content = bytearray(archive.read(name))
    content[content.index(b"LEML") if name == HEADER else -2] ^= 1
    changed = rewritten(file, {name: bytes(content)}, honest=False)
    with pytest.raises(ModelFileError, match=rf"was changed after it was written: {name} .* Save the model again"):
        load(changed)


def test_a_member_that_was_not_written_is_refused(file):
    with pytest.raises(ModelFileError, match=r"holds more\.npy, which labelgap did not write"):
        load(rewritten(file, {"more.npy": b"x"}, honest=False))


def test_without_a_check_an_edit_that_fits_is_not_noticed(file, fitted):
    changed = rewritten(file, {"label_factors_.npy": member(fitted.label_factors_ + 1)}, honest=False)
    again = load(changed, check=False)
    np.testing.assert_array_equal(again.label_factors_, fitted.label_factors_ + 1)
    with pytest.raises(ModelFileError, match="was changed"):
        load(changed)


# --- folders, mapped arrays, names, old formats ---------------------------------------------------------------------


def member_folder(path):
    """Return the folder of the members of a model folder."""
    return path / (path / "CURRENT").read_text()


def test_a_folder(fitted, planted, tmp_path):
    fitted.save(tmp_path / "model", folder=True)
    assert (member_folder(tmp_path / "model") / HEADER).is_file()
    same_state(load(tmp_path / "model"), fitted)
    refitted = LEML(1, random_state=0).fit(planted().X, planted().Y)
    refitted.save(tmp_path / "model", folder=True)
    same_state(load(tmp_path / "model"), refitted)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_a_folder_that_cannot_take_its_name_leaves_the_older_one(error, fitted, planted, tmp_path, monkeypatch):
    fitted.save(tmp_path / "model", folder=True)
    replace = os.replace

    def fail(source, target):
        if Path(source).name.endswith(".part"):
            raise error
        replace(source, target)

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(error):
        LEML(1, random_state=0).fit(planted().X, planted().Y).save(tmp_path / "model", folder=True)
    same_state(load(tmp_path / "model"), fitted)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_folder_that_is_no_model_is_left_alone(fitted, tmp_path):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter").write_text("one")
    with pytest.raises(FileExistsError, match="is not a model folder"):
        fitted.save(tmp_path / "thesis", folder=True)
    assert (tmp_path / "thesis" / "chapter").read_text() == "one"
    with pytest.raises(FileNotFoundError, match=r"There is no model .*thesis; check the path"):
        load(tmp_path / "thesis")


def test_a_folder_that_lacks_a_member_or_has_an_edited_one(fitted, tmp_path):
    fitted.save(tmp_path / "model", folder=True)
    array = member_folder(tmp_path / "model") / "label_factors_.npy"
    content = array.read_bytes()
    array.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(ModelFileError, match="was changed after it was written: label_factors_"):
        load(tmp_path / "model")
    array.unlink()
    with pytest.raises(ModelFileError, match="not a complete labelgap model"):
        load(tmp_path / "model")


@pytest.mark.parametrize("folder", [False, True])
def test_a_model_that_is_replaced_while_it_is_read_is_the_old_or_the_new_one(folder, fitted, planted, tmp_path):
    other = LEML(1, random_state=0).fit(planted().X, planted().Y)
    factors = [np.asarray(model.label_factors_).tobytes() for model in (fitted, other)]
    fitted.save(tmp_path / "model", folder=folder)
    stop, loaded, errors = threading.Event(), [], []

    def read():
        while not stop.is_set():
            try:
                loaded.append(
                    np.asarray(load(tmp_path / "model", mmap=len(loaded) % 2 == 0).label_factors_).tobytes()
                )
            except Exception as error:
                errors.append(error)

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for number in range(30):
        (other, fitted)[number % 2].save(tmp_path / "model", folder=folder)
    stop.set()
    for reader in readers:
        reader.join()
    assert errors == []
    assert set(loaded) <= set(factors)
    assert len(loaded) > 3
    assert len(list((tmp_path / "model").iterdir() if folder else [1, 2])) == 2


SAVE_FOREVER = """
import sys, labelgap
models = [labelgap.load(path) for path in sys.argv[2:]]
print("ready", flush=True)
while True:
    for model in models:
        model.save(sys.argv[1], folder=True)
"""


def test_a_killed_writer_leaves_the_old_or_the_new_model(fitted, planted, tmp_path):
    other = LEML(1, random_state=0).fit(planted().X, planted().Y)
    other.save(tmp_path / "a")
    fitted.save(tmp_path / "b")
    fitted.save(tmp_path / "model", folder=True)
    ranks = {1, fitted.n_components}
    for number in range(3):
        process = subprocess.Popen(
            [sys.executable, "-c", SAVE_FOREVER, *(str(tmp_path / name) for name in ("model", "a", "b"))],
            stdout=subprocess.PIPE,
        )
        process.stdout.readline()
        time.sleep(0.01 + 0.013 * number)
        process.kill()
        process.communicate()
        assert load(tmp_path / "model").n_components in ranks
    stale = [path for path in (tmp_path / "model").iterdir() if path.name.startswith(("g-", ".CURRENT"))]
    for path in stale:
        os.utime(path, (0, 0))
    other.save(tmp_path / "model", folder=True)
    assert len(list((tmp_path / "model").iterdir())) == 2
    assert load(tmp_path / "model").n_components == 1


def test_a_folder_of_an_earlier_version_is_read_and_replaced(fitted, planted, tmp_path):
    fitted.save(tmp_path / "new", folder=True)
    os.rename(member_folder(tmp_path / "new"), tmp_path / "model")
    same_state(load(tmp_path / "model"), fitted)
    other = LEML(1, random_state=0).fit(planted().X, planted().Y)
    other.save(tmp_path / "model", folder=True)
    same_state(load(tmp_path / "model"), other)
    assert len(list((tmp_path / "model").iterdir())) == 2


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
@pytest.mark.parametrize("name", ["label_factors_.npy", HEADER])
@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_members_that_are_no_files_are_refused_at_once(name, kind, fitted, tmp_path):
    fitted.save(tmp_path / "model", folder=True)
    member = member_folder(tmp_path / "model") / name
    member.unlink()
    os.mkfifo(member) if kind == "pipe" else member.symlink_to("/dev/zero")
    for check in (True, False):
        with pytest.raises(ModelFileError, match="not a regular file"):
            load(tmp_path / "model", check=check)


def test_compressed_overlapping_and_endless_members_are_refused(file, tmp_path, monkeypatch):
    with zipfile.ZipFile(file) as archive, zipfile.ZipFile(tmp_path / "m", "w", zipfile.ZIP_DEFLATED) as packed:
        for name in archive.namelist():
            packed.writestr(name, archive.read(name))
    with pytest.raises(ModelFileError, match="is compressed"):
        load(tmp_path / "m")
    content = bytearray(file.read_bytes())
    place = content.index(b"PK\x01\x02")  # the first entry of the directory, with its sizes
    struct.pack_into("<II", content, place + 20, 1 << 30, 1 << 30)
    (tmp_path / "m").write_bytes(content)
    with pytest.raises(ModelFileError, match="overlap"):
        load(tmp_path / "m")
    monkeypatch.setattr(persistence, "MAX_HEADER_ITEMS", 5)
    with pytest.raises(ModelFileError, match="more than 5 values"):
        load(file)
    monkeypatch.setattr(persistence, "MAX_HEADER_BYTES", 5)
    with pytest.raises(ModelFileError, match=r"model\.json has \d+ bytes"):
        load(file)


@pytest.mark.parametrize("folder", [False, True])
@pytest.mark.parametrize(("cls", "setting"), MODELS[-6:], ids=str)
def test_mapped_arrays_lie_in_the_file(folder, cls, setting, planted, tmp_path):
    X, Y, observed = planted()
    model = make(cls, **setting).fit(X, Labels(Y, observed=observed))
    model.save(tmp_path / "model", folder=folder)
    again = load(tmp_path / "model", mmap=True)
    same_state(again, model)
    np.testing.assert_array_equal(again.decision_function(X), model.decision_function(X))
    mapped = again.centers_[0]
    assert mapped.flags.aligned
    assert isinstance(mapped.base, np.memmap)
    holder = member_folder(tmp_path / "model") / "centers_.0.npy" if folder else tmp_path / "model"
    before = holder.read_bytes()
    mapped[:] = 7
    assert holder.read_bytes() == before


def test_a_mapped_array_that_is_longer_than_its_file(file, tmp_path):
    with zipfile.ZipFile(file) as archive:
        content = archive.read("label_factors_.npy")
    cut = rewritten(file, {"label_factors_.npy": content[:-8]})
    with pytest.raises(ModelFileError, match=r"an array of \d+ bytes is stored in"):
        load(cut, mmap=True)


def test_label_names_come_back(planted, tmp_path):
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    X, Y, _ = planted()
    model = LEML(2, random_state=0).fit(X, pandas.DataFrame(Y, columns=[f"süß {j}" for j in range(Y.shape[1])]))
    model.save(tmp_path / "model")
    assert load(tmp_path / "model").label_names_in_.tolist() == [f"süß {j}" for j in range(Y.shape[1])]
    assert not hasattr(model.fit(X, Y), "label_names_in_")


def test_the_header_names_the_libraries(file):
    with zipfile.ZipFile(file) as archive:
        assert json.loads(archive.read(HEADER))["versions"]["numpy"] == np.__version__


EXAMPLES = sorted((Path(__file__).parent / "models").glob("*.labelgap"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
@pytest.mark.parametrize("mmap", [False, True])
def test_files_of_every_format_are_read(path, mmap):
    known = json.loads(path.with_suffix(".json").read_text())
    model, X = load(path, mmap=mmap), np.array(known["X"])
    np.testing.assert_allclose(model.decision_function(X), known["decisions"], rtol=1e-10)
    if "probabilities" in known:
        np.testing.assert_allclose(model.predict_proba(X), known["probabilities"], rtol=1e-10)
    else:
        assert not hasattr(model, "calibration_")


def test_there_is_an_example_of_every_format():
    assert {path.name.split("-")[1] for path in EXAMPLES} == {str(number) for number in range(1, FORMAT + 1)}


def drop(*names):
    def change(header):
        inner = header if len(names) == 1 else header[names[0]]
        del inner[names[-1]]
        return header

    return change


HEADERS = [
    (lambda h: h | {"format": FORMAT + 1}, f"format {FORMAT + 1} .* reads up to {FORMAT}; upgrade labelgap"),
    (lambda h: h | {"format": "1"}, "does not say its model format"),
    (drop("format"), "does not say its model format"),
    (lambda h: h | {"library": "other"}, "was not written by labelgap"),
    (drop("library"), "was not written by labelgap"),
    (lambda h: [h], "was not written by labelgap"),
    (lambda h: h | {"estimator": "Oracle"}, "'Oracle', which this version of labelgap does not have"),
    (lambda h: h | {"estimator": "MultiLabelEstimator"}, "'MultiLabelEstimator', which"),
    (drop("estimator"), "'None', which this version of labelgap does not have"),
    (drop("attributes"), "not a complete labelgap model"),
    (lambda h: h | {"attributes": []}, "not a complete labelgap model"),
    (drop("attributes", "label_factors_"), "lacks label_factors_; save the model again"),
    (drop("attributes", "container_"), "lacks container_"),
    (drop("attributes", "feature_factors_"), "lacks feature_factors_"),
    (drop("parameters"), "does not fit LEML .*'parameters'.*; save the model again"),
    (lambda h: h | {"parameters": {"magic": 1}}, "does not fit LEML .*magic"),
    (lambda h: h | {"parameters": [1]}, "does not fit LEML"),
    (lambda h: h | {"attributes": h["attributes"] | {"label_factors_": {"kind": "array?"}}}, "not a complete"),
    (lambda h: h | {"attributes": h["attributes"] | {"label_factors_": 3}}, "not a complete"),
    (lambda h: h | {"attributes": h["attributes"] | {"more_": {"kind": "array"}}}, "not a complete"),
    (lambda h: h | {"attributes": h["attributes"] | {"predict": {"kind": "json", "value": 1}}}, "sets 'predict'"),
    (lambda h: h | {"attributes": h["attributes"] | {"__class__": {"kind": "json", "value": 1}}}, "'__class__'"),
    (
        lambda h: h | {"attributes": h["attributes"] | {"container_": {"kind": "json", "value": {"colour": "red"}}}},
        "does not fit LEML .*colour",
    ),
]


@pytest.mark.parametrize(("change", "message"), HEADERS)
def test_an_edited_header(change, message, file):
    with pytest.raises(ModelFileError, match=message):
        load(with_header(file, change))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (drop("attributes", "row_factors_"), "is inconsistent .*row_factors_"),
        (drop("attributes", "seen_"), "is inconsistent .*seen_"),
        (drop("attributes", "unlabelled_share_"), "lacks unlabelled_share_"),
        (drop("attributes", "feature_factors_"), "lacks feature_factors_"),
        (
            lambda h: h | {"attributes": h["attributes"] | {"n_labels_": {"kind": "json", "value": 3}}},
            "label_factors_",
        ),
    ],
)
def test_an_edited_header_of_a_recommender(change, message, planted, tmp_path):
    OneClassMF(2, tol=1e-2, random_state=0).fit(None, planted().Y).save(tmp_path / "model")
    with pytest.raises(ModelFileError, match=message):
        load(with_header(tmp_path / "model", change))


def stored(value):
    return {"kind": "json", "value": value}


def changed_part(name, note):
    """Change what a header says of the first part; None leaves it out."""

    def change(header):
        part = header["attributes"]["parts_"]["items"][0]["items"][0]["items"]
        part[name] = note
        if note is None:
            del part[name]
        return header

    return change


def changed_attribute(name, note):
    return lambda h: h | {"attributes": h["attributes"] | {name: note}}


def first_learner_only(header):
    del header["attributes"]["parts_"]["items"][1:]
    return header


LOCAL_HEADERS = [
    ((SLEEC, LabelKNN, LocalLEML), drop("attributes", "parts_"), "lacks parts_"),
    ((SLEEC, LabelKNN, LocalLEML), drop("attributes", "centers_"), "lacks centers_"),
    ((SLEEC, LabelKNN, LocalLEML), first_learner_only, "is inconsistent"),
    ((SLEEC, LabelKNN, LocalLEML), changed_attribute("parts_", stored([])), "is inconsistent .*no learner"),
    ((SLEEC, LabelKNN, LocalLEML), changed_attribute("parts_", stored([[1, 2, 3], [4, 5, 6]])), "is incomplete"),
    ((SLEEC, LabelKNN, LocalLEML), changed_attribute("parts_", stored(7)), "is inconsistent|is incomplete"),
    ((SLEEC, LabelKNN, LocalLEML), changed_attribute("centers_", stored([1.0, 2.0])), "is inconsistent"),
    ((SLEEC, LabelKNN, LocalLEML), changed_attribute("n_features_in_", stored(5)), "clusters do not match"),
    ((SLEEC, LabelKNN), drop("attributes", "positives_"), "lacks positives_"),
    ((SLEEC, LabelKNN), drop("attributes", "rates_"), "lacks rates_"),
    ((SLEEC, LabelKNN), changed_attribute("rates_", stored(0.5)), "differ in the number of labels"),
    ((SLEEC, LabelKNN), changed_attribute("n_labels_", stored(4)), "differ in the number of labels"),
    ((SLEEC, LabelKNN), changed_part("rows", None), "is incomplete: KeyError.*rows"),
    ((SLEEC, LabelKNN), changed_part("rows", stored([])), "rows that the model does not have"),
    ((SLEEC, LabelKNN), changed_part("rows", stored([0])), "rows that the model does not have"),
    ((SLEEC, LabelKNN), changed_part("embedded", None), "is incomplete: KeyError.*embedded"),
    ((SLEEC, LabelKNN), changed_part("embedded", stored("x")), "is inconsistent"),
    ((SLEEC,), changed_part("regressors", None), "is incomplete: KeyError.*regressors"),
    ((LocalLEML,), changed_part("factors", None), "is incomplete: KeyError.*factors"),
    ((LocalLEML,), changed_part("labels", stored([0] * 9)), "factors of different ranks"),
    ((LocalLEML,), drop("attributes", "threshold_"), "lacks threshold_"),
]


@pytest.fixture
def local_file(planted, tmp_path):
    """Return a function that saves an ensemble and returns where."""

    def save(cls, **parameters):
        X, Y, observed = planted()
        make(cls, **LOCAL, **parameters).fit(X, np.where(observed, Y, np.nan)).save(tmp_path / "model")
        return tmp_path / "model"

    return save


@pytest.mark.parametrize(
    ("cls", "change", "message"), [(cls, *case) for classes, *case in LOCAL_HEADERS for cls in classes]
)
def test_an_edited_header_of_an_ensemble(cls, change, message, local_file):
    with pytest.raises(ModelFileError, match=message):
        load(with_header(local_file(cls), change))


def member(array):
    content = io.BytesIO()
    np.save(content, array)
    return content.getvalue()


@pytest.mark.parametrize(
    ("cls", "name", "change", "message"),
    [
        (SLEEC, "parts_.1.2.rows", lambda rows: rows + 40, "rows that the model does not have"),
        (LabelKNN, "parts_.0.0.rows", lambda rows: rows - 40, "rows that the model does not have"),
        (LabelKNN, "parts_.0.0.rows", lambda rows: rows * 1.0, "rows that the model does not have"),
        (SLEEC, "parts_.0.1.rows", lambda rows: rows[:-1], "rows that the model does not have"),
        (SLEEC, "parts_.0.1.embedded", lambda Z: Z[:, :1], "regressors that do not match its embeddings"),
        (SLEEC, "parts_.0.1.regressors", lambda V: V[:-1], "regressors that do not match its embeddings"),
        (LabelKNN, "parts_.0.1.embedded", lambda Z: Z[:, :1], "differ in the number of features"),
        (LabelKNN, "centers_.1", lambda centers: centers[:-1], "clusters do not match"),
        (LabelKNN, "centers_.1", lambda centers: centers[0], "clusters do not match"),
        (LabelKNN, "rates_", lambda rates: rates[:-1], "differ in the number of labels"),
        (LocalLEML, "parts_.0.0.labels", lambda labels: labels + 5, "labels that the model does not have"),
        (LocalLEML, "parts_.0.0.labels", lambda labels: labels - 5, "labels that the model does not have"),
        (LocalLEML, "parts_.0.0.features", lambda W: W[:-1], "factors of different ranks"),
        (LocalLEML, "parts_.0.0.factors", lambda H: H[:, :-1], "factors of different ranks"),
        (LocalLEML, "parts_.0.0.labels", lambda labels: labels * 1.0, "labels that the model does not have"),
    ],
)
def test_arrays_of_an_ensemble_that_do_not_go_together(cls, name, change, message, local_file):
    path = local_file(cls)
    with zipfile.ZipFile(path) as archive:
        array = np.load(io.BytesIO(archive.read(f"{name}.npy")))
    with pytest.raises(ModelFileError, match=message):
        load(rewritten(path, {f"{name}.npy": member(change(array))}))
    with pytest.raises(ModelFileError, match=rf"not a complete labelgap model .*{name}\.npy"):
        load(rewritten(path, {f"{name}.npy": None}))


@pytest.mark.parametrize("cls", [SLEEC, LabelKNN, LocalLEML])
def test_an_ensemble_cut_short(cls, local_file, tmp_path):
    whole = local_file(cls).read_bytes()
    for length in range(0, len(whole), len(whole) // 20):
        (tmp_path / "cut").write_bytes(whole[:length])
        with pytest.raises(ModelFileError, match="Save the model again"):
            load(tmp_path / "cut")


def test_a_missing_array(file):
    with pytest.raises(ModelFileError, match=r"not a complete labelgap model .*label_factors_\.npy"):
        load(rewritten(file, {"label_factors_.npy": None}))


def test_sparse_indices_that_point_outside(planted, tmp_path):
    X, Y, _ = planted()
    path = tmp_path / "model"
    LEML(2, kernel="rbf").fit(sp.csr_array(X), Y).save(path)
    wrong = io.BytesIO()
    np.save(wrong, np.full(X.size, 10_000, np.int32))
    with pytest.raises(ModelFileError, match="not a complete"):
        load(rewritten(path, {"training_rows_.indices.npy": wrong.getvalue()}))


@pytest.mark.parametrize("content", [b"", b"PK", b"hello", b"\x00" * 1000, b"\x80\x04K\x01."], ids=repr)
def test_something_else(content, tmp_path):
    (tmp_path / "other").write_bytes(content)
    with pytest.raises(ModelFileError, match="not a complete labelgap model"):
        load(tmp_path / "other")


@pytest.mark.parametrize(
    "members", [{}, {"readme.txt": b"x"}, {HEADER: b"{"}, {HEADER: b"\xff\xfe"}, {HEADER: b"{}"}]
)
def test_a_foreign_zip(members, tmp_path):
    with zipfile.ZipFile(tmp_path / "foreign", "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    with pytest.raises(ModelFileError, match=r"not a complete labelgap model|not written by labelgap"):
        load(tmp_path / "foreign")


@pytest.mark.parametrize("name", ["absent", "."])
def test_no_such_file(name, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"There is no model .*; check the path"):
        load(tmp_path / name)


# --- writing is whole or nothing -----------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()], ids=repr)
@pytest.mark.parametrize("after", [0, 2])
def test_a_failed_write_leaves_the_old_file(error, after, fitted, file, monkeypatch):
    old, write, calls = file.read_bytes(), np.lib.format.write_array, []

    def failing(stream, array, **options):
        if len(calls) == after:
            write(stream, array[:1], **options)
            raise error
        calls.append(array)
        write(stream, array, **options)

    monkeypatch.setattr(np.lib.format, "write_array", failing)
    with pytest.raises(type(error)):
        fitted.save(file)
    with pytest.raises(type(error)):
        fitted.save(file.with_name("new"))
    assert file.read_bytes() == old
    assert [path.name for path in file.parent.iterdir()] == [file.name]


def test_values_that_json_cannot_hold_leave_no_file(fitted, tmp_path):
    fitted.strange_ = {1, 2}
    with pytest.raises(TypeError):
        fitted.save(tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


def test_a_missing_folder(fitted, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"There is no folder .*nowhere to write model into; create it"):
        fitted.save(tmp_path / "nowhere" / "model")


def test_saving_over_a_model_replaces_it(fitted, file, planted):
    X, Y, _ = planted(seed=1)
    other = LEML(1, random_state=0).fit(X, Y)
    other.save(str(file))
    again = load(file)
    same_state(again, other)
    assert again.n_components != fitted.n_components


def test_others_may_read_what_the_umask_lets_them(file, tmp_path):
    (tmp_path / "plain").write_bytes(b"")
    assert stat.S_IMODE(file.stat().st_mode) == stat.S_IMODE((tmp_path / "plain").stat().st_mode)


def test_an_estimator_of_ones_own_comes_back(planted, tmp_path):
    class Elsewhere(LEML):
        pass

    X, Y, _ = planted()
    model = Elsewhere(2, random_state=0).fit(X, Y)
    model.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert isinstance(again, MultiLabelEstimator)
    assert type(again).__name__ == "Elsewhere"
    same_state(again, model)


@pytest.mark.parametrize("name", ["PLST", "NaiveBayes"])
def test_a_baseline_is_loaded_by_a_process_that_has_not_imported_it(name, tmp_path):
    X, Y = np.eye(4), np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0]])
    getattr(labelgap, name)().fit(X, Y).save(tmp_path / "model")
    code = "import sys; from labelgap import load; print(type(load(sys.argv[1])).__name__)"
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "model"], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.stdout.strip() == name, done.stderr

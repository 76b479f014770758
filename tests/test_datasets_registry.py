"""Where data sets come from: folder before cache before OpenML, with a local server in OpenML's place."""

import gzip
import hashlib
import json
import os
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from labelgap.datasets import list_datasets, load_dataset, registry

XML = gzip.compress(b'<labels><label name="t"/><label name="u"/></labels>')
WHOLE = (
    b"@relation r\n@attribute x numeric\n@attribute t {TRUE,FALSE}\n@attribute u {TRUE,FALSE}\n@data\n9,TRUE,FALSE\n"
)


def split_file(value):
    text = f"@relation r\n@attribute x numeric\n@attribute t {{0,1}}\n@attribute u {{0,1}}\n@data\n{value},1,0\n"
    return gzip.compress(text.encode())


def put_split(folder, value, name="emotions"):
    (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / name / f"{name}-train.arff.gz").write_bytes(split_file(value))
    (folder / name / f"{name}-test.arff.gz").write_bytes(split_file(value + 1))
    (folder / name / f"{name}.xml.gz").write_bytes(XML)


@pytest.fixture
def data(tmp_path, monkeypatch):
    monkeypatch.setenv("LABELGAP_DATA", str(tmp_path / "data"))
    return tmp_path / "data"


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("LABELGAP_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def server(monkeypatch):
    """OpenML on this machine: change ``description`` and ``arff`` to make it lie; ``asked`` lists the requests."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            site.asked.append(self.path)
            known = {
                "/data/40589": json.dumps({"data_set_description": site.description}).encode(),
                "/file.arff": site.arff,
            }
            content = known.get(self.path)
            self.send_response(404 if content is None else 200)
            self.end_headers()
            self.wfile.write(content or b"")

        def log_message(self, *arguments):
            pass

    site = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    base = f"http://127.0.0.1:{site.server_address[1]}"
    site.asked, site.arff = [], WHOLE
    site.description = {
        "name": "Emotions",
        "url": f"{base}/file.arff",
        "md5_checksum": hashlib.md5(WHOLE).hexdigest(),
        "default_target_attribute": "t,u",
    }
    monkeypatch.setattr(registry, "OPENML_DESCRIPTIONS", f"{base}/data")
    thread = threading.Thread(target=site.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield site
    site.shutdown()
    thread.join()
    site.server_close()


def where(name="emotions"):
    return next(info.where for info in list_datasets() if info.name == name)


def test_folder_before_cache_before_openml(data, cache, server):
    assert where() == "OpenML"
    fetched = load_dataset("emotions")
    assert fetched.X_train.tolist() == [[9]]
    assert fetched.Y_train.toarray().tolist() == [[1, 0]]
    assert fetched.X_test is None
    assert fetched.Y_test is None
    assert fetched.label_names == ["t", "u"]
    assert where() == "cache"
    assert server.asked == ["/data/40589", "/file.arff"]

    put_split(cache, 5)
    assert where() == "cache"
    assert load_dataset("emotions").X_train.tolist() == [[5]]

    put_split(data, 1)
    assert where() == "folder"
    loaded = load_dataset("emotions")
    assert (loaded.X_train.tolist(), loaded.X_test.tolist()) == ([[1]], [[2]])
    assert len(server.asked) == 2


def test_fetched_once(data, cache, server):
    first = load_dataset("emotions")
    server.arff = b"gone"
    assert load_dataset("emotions").X_train.tolist() == first.X_train.tolist()
    assert len(server.asked) == 2
    assert next(info for info in list_datasets() if info.name == "emotions").n_test == 0


def test_changed_source_is_parsed_again(data, cache):
    put_split(data, 1)
    assert load_dataset("emotions").X_train.tolist() == [[1]]
    put_split(data, 3)
    path = data / "emotions" / "emotions-train.arff.gz"
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 1_000_000))
    assert load_dataset("emotions").X_train.tolist() == [[3]]


def test_second_load_does_not_parse(data, cache):
    put_split(data, 1)
    load_dataset("emotions")
    path = data / "emotions" / "emotions-train.arff.gz"
    stamp = path.stat()
    path.write_bytes(b"x" * stamp.st_size)
    os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    assert load_dataset("emotions").X_train.tolist() == [[1]]


def test_damaged_parsed_file_is_replaced(data, cache):
    put_split(data, 1)
    load_dataset("emotions")
    (parsed,) = (cache / "parsed").iterdir()
    parsed.write_bytes(parsed.read_bytes()[:100])
    assert load_dataset("emotions").X_train.tolist() == [[1]]
    with np.load(parsed) as archive:
        assert archive["X_train"].tolist() == [[1]]


def test_cache_that_cannot_be_written_only_costs_time(data, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("LABELGAP_CACHE", str(tmp_path / "file"))
    put_split(data, 1)
    assert load_dataset("emotions").X_train.tolist() == [[1]]
    assert (tmp_path / "file").read_text() == "in the way"


def test_incomplete_folder_is_passed_over(data, cache):
    put_split(data, 1)
    put_split(cache, 5)
    (data / "emotions" / "emotions-test.arff.gz").unlink()
    assert load_dataset("emotions").X_train.tolist() == [[5]]


def test_wrong_checksum_is_refused_and_not_kept(data, cache, server):
    server.arff = WHOLE + b"8,TRUE,TRUE\n"
    with pytest.raises(ValueError, match=r"file\.arff: found MD5 .*, expected .*try again"):
        load_dataset("emotions")
    assert not [path for path in cache.rglob("*") if path.is_file()]
    assert where() == "OpenML"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": "iris"}, "found dataset 'iris', expected 'emotions'"),
        ({"url": "file:///etc/hostname"}, "only http and https"),
        ({"default_target_attribute": None, "md5_checksum": None, "name": None}, "is not the description"),
    ],
)
def test_wrong_descriptions(data, cache, server, changes, message):
    server.description = {k: v for k, v in {**server.description, **changes}.items() if v is not None}
    with pytest.raises(ValueError, match=message):
        load_dataset("emotions")
    assert not [path for path in cache.rglob("*") if path.is_file()]


@pytest.mark.parametrize("name", ["emotions", "scene"])
def test_no_network_names_the_remedies(data, cache, monkeypatch, name):
    monkeypatch.setattr(registry, "OPENML_DESCRIPTIONS", "http://127.0.0.1:1/data")
    with pytest.raises(ConnectionError, match="Cannot download OpenML dataset") as error:
        load_dataset(name)
    for remedy in ("LABELGAP_DATA", "LABELGAP_CACHE", str(cache)):
        assert remedy in str(error.value)


def test_server_without_the_set(data, cache, server):
    with pytest.raises(ConnectionError, match=r"40595.*404.*LABELGAP_DATA"):
        load_dataset("scene")


def test_set_that_is_nowhere(data, cache):
    assert where("bibtex") == "not available"
    with pytest.raises(FileNotFoundError, match=r"'bibtex'.*bibtex-train\.arff\.gz.*LABELGAP_DATA.*cache"):
        load_dataset("bibtex")


def test_without_the_variables_the_cache_is_in_the_home_folder(tmp_path, monkeypatch):
    monkeypatch.delenv("LABELGAP_DATA", raising=False)
    monkeypatch.delenv("LABELGAP_CACHE", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    put_split(tmp_path / ".cache" / "labelgap", 4)
    assert where() == "cache"
    assert load_dataset("emotions").X_train.tolist() == [[4]]


def test_unknown_name():
    with pytest.raises(ValueError, match=r"name='emotion' is not a known dataset; choose from bibtex, .*yeast"):
        load_dataset("emotion")

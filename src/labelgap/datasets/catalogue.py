"""The data sets that the registry knows."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Files:
    """A split that lies in the folder ``name`` as two files, with the XML file of label names where there is one."""

    train: str
    test: str
    n_train: int
    n_test: int
    labels: str | None = None
    dense: bool = False

    @property
    def all(self) -> tuple[str, ...]:
        """The names of all files."""
        return tuple(name for name in (self.train, self.test, self.labels) if name is not None)


@dataclass(frozen=True)
class OpenMLSource:
    """A data set on OpenML. It holds the whole set in one file, without the official split."""

    data_id: int
    n_rows: int


@dataclass(frozen=True)
class Entry:
    """One data set and where it can come from."""

    name: str
    description: str
    n_features: int
    n_labels: int
    files: Files | None = None
    openml: OpenMLSource | None = None


@dataclass(frozen=True)
class Ratings:
    """One set of ratings: a .npz file of cells, split and graphs, and MovieLens's tables where there are some.

    ``n_features`` counts the features of users.
    """

    name: str
    description: str
    n_users: int
    n_items: int
    cells: str
    n_features: int = 0
    tables: tuple[str, ...] = ()

    @property
    def all(self) -> tuple[str, ...]:
        """The names of all files."""
        return (self.cells, *self.tables)


def _mulan(name: str, n_train: int, n_test: int, dense: bool = False) -> Files:
    return Files(f"{name}-train.arff.gz", f"{name}-test.arff.gz", n_train, n_test, f"{name}.xml.gz", dense)


# The OpenML sets are those of Probst et al., "Multilabel Classification with R Package mlr", The R Journal 9 (2017);
# each is Mulan's full set, so that X_test is None.
ENTRIES = {
    entry.name: entry
    for entry in (
        Entry("bibtex", "BibSonomy entries with their tags", 1836, 159, _mulan("bibtex", 4880, 2515)),
        Entry("birds", "recordings with the species heard", 260, 19, openml=OpenMLSource(40588, 645)),
        Entry("delicious", "web pages with their bookmarks' tags", 500, 983, _mulan("delicious", 12920, 3185)),
        Entry(
            "emotions",
            "music with the emotions it evokes",
            72,
            6,
            _mulan("emotions", 391, 202, dense=True),
            OpenMLSource(40589, 593),
        ),
        Entry("enron", "e-mails with their topics", 1001, 53, _mulan("enron", 1123, 579), OpenMLSource(40590, 1702)),
        Entry(
            "eurlex",
            "European law with EUROVOC descriptors (Eurlex-4K)",
            5000,
            3993,
            Files("eurlex_train.txt.xz", "eurlex_test.txt.xz", 15539, 3809),
        ),
        Entry(
            "mediamill",
            "video shots with the concepts seen",
            120,
            101,
            Files("mediamill_train.txt.xz", "mediamill_test.txt.xz", 30993, 12914, "mediamill.xml.gz", dense=True),
        ),
        Entry("reuters", "news with their topics, reduced", 243, 7, openml=OpenMLSource(40594, 2000)),
        Entry("scene", "photographs with the scenes shown", 294, 6, openml=OpenMLSource(40595, 2407)),
        Entry(
            "yeast",
            "genes with their functional classes",
            103,
            14,
            _mulan("yeast", 1500, 917, dense=True),
            OpenMLSource(40597, 2417),
        ),
    )
}

INTERACTIONS = {
    ratings.name: ratings
    for ratings in (
        Ratings("douban", "ratings, with the users' social graph", 3000, 3000, "douban.npz"),
        Ratings("flixster", "film ratings, with graphs of users and films", 3000, 3000, "flixster.npz"),
        Ratings(
            "ml-100k",
            "film ratings, with graphs and features (MovieLens 100k)",
            943,
            1682,
            "monti_split_1.npz",
            30,
            ("u.data.gz", "u.user.gz", "u.item.gz"),
        ),
    )
}

"""The list of methods."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

import labelgap
from labelgap import baselines, estimators
from labelgap.cli import app
from labelgap.estimators import MultiLabelEstimator
from labelgap.methods import list_methods


def methods(*arguments):
    return CliRunner().invoke(app, ["methods", *arguments], env={"COLUMNS": "200"})


def exported():
    values = (getattr(labelgap, name) for name in labelgap.__all__)
    return [value for value in values if isinstance(value, type) and issubclass(value, MultiLabelEstimator)]


def test_every_exported_estimator_is_listed():
    assert {cls.__name__ for cls in exported()} == list_methods().keys()


@pytest.mark.parametrize("name", baselines.__all__)
def test_a_baseline_is_still_found_among_the_estimators(name):
    with pytest.warns(DeprecationWarning, match=f"use `from labelgap import {name}`"):
        assert getattr(estimators, name) is getattr(labelgap, name)
    with pytest.raises(AttributeError, match=r"module 'labelgap.estimators' has no attribute 'magic'"):
        _ = estimators.magic


@pytest.mark.parametrize("name", list_methods())
def test_the_facts_are_there(name):
    about = list_methods()[name]
    assert about.summary.endswith(".")
    assert all([about.paper, about.fit, about.predict])


def test_no_two_methods_are_described_alike():
    whats = [about.summary for about in list_methods().values()]
    assert len(set(whats)) == len(whats)


def test_the_table_names_each_and_what_it_takes():
    shown = methods()
    assert shown.exit_code == 0
    assert all(name in shown.output for name in list_methods())
    assert "missing features" in shown.output


def test_as_json():
    found = json.loads(methods("--json").output)
    assert found.keys() == list_methods().keys()
    assert found["LEML"]["missing_labels"] is True
    assert found["LEML"]["what"] == list_methods()["LEML"].summary
    assert found["OneClassMF"]["graph"] is True


def test_only_what_takes_something():
    found = json.loads(methods("--json", "--handles", "missing features").output)
    assert all(about["missing_features"] for about in found.values())
    assert found.keys() == {"MC1", "MC1CV", "MCb", "MCbCV"}


def test_an_unknown_thing_to_take():
    shown = methods("--handles", "magic")
    assert shown.exit_code == 1
    assert "choose from missing labels" in shown.output

"""A whole run goes to another place by the command line and comes back."""

import shutil
from pathlib import Path

import pytest
from run_helpers import Run

from instella.artifacts.foresee import foresee
from instella.artifacts.identity import Toolchain, identity_key
from instella.artifacts.manifest import Manifest
from instella.artifacts.store import Store
from instella.artifacts.store_verify import verify
from instella.prove.processes import instella

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]


def test_results_go_elsewhere_and_come_back(nano_copy: Run, tmp_path: Path) -> None:
    there = tmp_path / "a place"
    url = there.as_uri()
    graph, count = nano_copy.graph(), len(nano_copy.graph())
    done = instella(nano_copy.folder, "store", "push", url)
    assert done.code == 0 and f"pushed: {count} stages" in done.out, done.err
    records = nano_copy.manifests()

    shutil.rmtree(nano_copy.store)
    done = instella(nano_copy.folder, "store", "pull", url, "sft")
    assert done.code == 0 and "no root is recorded" not in done.err, done.err
    done = instella(nano_copy.folder, "store", "pull", url)
    assert done.code == 0 and f"pulled: {count} stages" in done.out, done.err
    store = Store(nano_copy.store)
    assert verify(store)[0] == []
    tools = Toolchain.here("portable-x86")
    found = {name: item.manifest for name, item in foresee(graph, store, tools, {}).items()}
    assert found == records

    # The recorded root says what a content has to be, so another one is not believed.
    shutil.rmtree(nano_copy.store)
    old = records["results"]
    forged = Manifest("results", "results", "computed", old.identity, records["baseline"].files)
    key = identity_key(old.identity)
    (there / "actions" / key).write_bytes(forged.to_bytes())
    done = instella(nano_copy.folder, "store", "pull", url)
    assert done.code == 4 and "recorded beside the recipe" in done.out, done.out + done.err
    assert f"pulled: {count - 1} stages" in done.out
    assert not (nano_copy.store / "actions" / key).exists()


def test_a_place_without_results_and_wrong_places(nano_copy: Run, tmp_path: Path) -> None:
    def fails(code: int, word: str, *arguments: str) -> None:
        done = instella(nano_copy.folder, "store", *arguments)
        assert done.code == code and word in done.err, done.err

    (tmp_path / "empty").mkdir()
    fails(2, "is the store itself", "push", nano_copy.store.absolute().as_uri())
    fails(2, "not a place", "pull", "ftp://me:never-seen@host/x")
    fails(2, "no such folder; give that of a store", "pull", f"file://{tmp_path}/none")
    fails(2, "no stage of recipe nano has this name", "pull", f"file://{tmp_path}", "sftt")
    shutil.rmtree(nano_copy.store)
    fails(3, "has no result of source_olmo", "pull", f"file://{tmp_path}/empty")
    fails(4, "nothing was sent", "push", f"file://{tmp_path}/empty")

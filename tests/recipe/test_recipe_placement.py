"""The placement: defaults, overrides of any form, faults with their place."""

from pathlib import Path

import pytest

from instella.errors import BadUse
from instella.recipe.reader import read_placement
from instella.recipe.settings import Container, Placement

ROOT = Path(__file__).resolve().parents[2]


def config(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "config.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_the_shipped_placement_points_at_a_recipe() -> None:
    placement = read_placement(ROOT / "config.yaml")
    assert placement == Placement(recipe="recipes/tiny.yaml")
    assert (ROOT / placement.recipe).is_file()


def test_options_win_over_the_file_and_are_read_by_type(tmp_path: Path) -> None:
    path = config(tmp_path, "recipe: a.yaml\nranks: 1\nstore: /data/store\n")
    placement = read_placement(
        path,
        recipe=Path("b.yaml"),
        ranks="4",
        results="12",
        store=None,
        container={"engine": "none"},
    )
    assert placement == Placement(
        recipe="b.yaml", results="12", store="/data/store", ranks=4, container=Container()
    )
    assert read_placement(path, ranks=2).ranks == 2


def test_an_option_can_give_what_the_file_lacks(tmp_path: Path) -> None:
    path = config(tmp_path, "ranks: 2\n")
    with pytest.raises(BadUse, match=r"config\.yaml:1: 'recipe' is missing; add it"):
        read_placement(path)
    assert read_placement(path, recipe="a.yaml") == Placement(recipe="a.yaml", ranks=2)


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        (
            "recipe: a\nrank: 2\n",
            {},
            "config.yaml:2: unknown setting 'rank'; did you mean 'ranks'?",
        ),
        ("recipe: a\nranks: 0\n", {}, "config.yaml:2: ranks is 0, too small; write 1 or more"),
        ("recipe: ''\n", {}, "config.yaml:1: recipe is not a path; name a file or folder"),
        ("recipe: a\nranks: 6\n", {}, "config.yaml:2: ranks is 6, not a power of two"),
        ("recipe: a\n", {"results": "a\nb"}, "option for CONFIG: results is not a path"),
        ("recipe: a\nstore: ~/store\n", {}, "config.yaml:2: store begins with ~"),
        ("recipe: a\nranks: 2048\n", {}, "config.yaml:2: ranks is 2048, too large"),
        ("recipe: a\nworkers: 9999\n", {}, "config.yaml:2: workers is 9999, too large"),
        ("recipe: a\n", {"results": f"{ROOT}/docs/x"}, "docs/x, within the project's own docs"),
        ("recipe: a\nresults: r{x}\n", {}, "config.yaml:2: results holds a brace"),
        ("recipe: a\n", {"store": "/dev/null/x"}, "store /dev/null is not a folder"),
        ("recipe: a\n", {"ranks": "two"}, "option for CONFIG: ranks must be a whole number"),
        ("recipe: a\n", {"ranks": True}, "option for CONFIG: ranks must be a whole number"),
        ("recipe: a\n", {"rank": 2}, "option for CONFIG: unknown setting 'rank'"),
        ("recipe: a\n", {"container": {"engine": "moby"}}, "option for CONFIG: container.engine"),
        ("recipe: a\ncontainer: none\n", {}, "config.yaml:2: container must be a mapping"),
        (
            "recipe: a\nsharding:\n  kind: hybrid\n  ranks: 3\n",
            {},
            "config.yaml:4: sharding.ranks is 3, and hybrid sharding needs a power of two",
        ),
        (
            "recipe: a\nsharding:\n  kind: hybrid\n",
            {},
            "sharding.ranks is None, and hybrid sharding needs a power of two",
        ),
    ],
)
def test_a_fault_names_line_or_option(
    tmp_path: Path, text: str, options: dict[str, object], message: str
) -> None:
    path = config(tmp_path, text)
    with pytest.raises(BadUse) as caught:
        read_placement(path, **options)
    assert message.replace("CONFIG", str(path)) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_link_that_leads_nowhere_is_no_folder(tmp_path: Path) -> None:
    path = config(tmp_path, "recipe: a\n")
    (tmp_path / "results").symlink_to("nowhere")
    with pytest.raises(BadUse, match="results is not a folder"):
        read_placement(path, results=str(tmp_path / "results"))

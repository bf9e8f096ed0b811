"""What a launched program is given."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdp_migrate.prove.launch import Home, in_copy


@pytest.mark.parametrize(
    ("word", "moved"),
    [
        ("{tree}/train.py", "{copy}/train.py"),
        ("--config={tree}/train.py", "--config={copy}/train.py"),
        ("{link}/train.py", "{copy}/train.py"),  # as where a home folder, or /tmp on a Mac, is a link
        ("{tree}/data/link", "{copy}/data/link"),
        ("{tree}/ignored", "{tree}/ignored"),
        ("{tree}2/train.py", "{tree}2/train.py"),
        ("train.py", "train.py"),
        ("--lr=1", "--lr=1"),
    ],
)
def test_a_path_in_the_tree_is_that_of_the_copy(word: str, moved: str, tmp_path: Path) -> None:
    tree, link, home = tmp_path.resolve() / "tree", tmp_path / "link", Home(tmp_path / "run")
    for folder in (tree, home.copy):
        (folder / "data").mkdir(parents=True)
        (folder / "data" / "link").symlink_to("/nowhere")
        (folder / "train.py").write_text("")
    (tree / "ignored").write_text("")
    link.symlink_to(tree)
    places = {"tree": tree, "copy": home.copy, "link": link}
    assert in_copy(word.format_map(places), home, tree) == moved.format_map(places)

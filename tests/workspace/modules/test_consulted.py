from __future__ import annotations

from pathlib import Path

import pytest

from fsdp_migrate.torch_api import TorchRange
from fsdp_migrate.workspace.modules import project, texts
from tests.workspace.modules.trees import PUBLIC, SAVE, grow, modules_of, report_of


def test_a_report_names_every_file_that_it_depends_on(tmp_path: Path) -> None:
    grow(
        tmp_path,
        {"a.py": f"from b import FSDP\n{SAVE}", "b.py": "from c import FSDP\n", "c.py": PUBLIC, "d.py": PUBLIC},
    )
    report = report_of(tmp_path, "a.py")
    assert [one.path for one in report.consulted] == [str(tmp_path / "b.py"), str(tmp_path / "c.py")]


def test_a_digest_changes_with_the_bytes_of_the_file(tmp_path: Path) -> None:
    grow(tmp_path, {"a.py": f"from b import FSDP\n{SAVE}", "b.py": PUBLIC})
    before = report_of(tmp_path, "a.py").consulted
    assert report_of(tmp_path, "a.py").consulted == before
    (tmp_path / "b.py").write_text(f"{PUBLIC}x = 1\n")
    assert report_of(tmp_path, "a.py").consulted != before


def test_the_second_question_depends_on_the_same_files(tmp_path: Path) -> None:
    tree = {"a.py": f"from b import FSDP\n{SAVE}", "a2.py": f"from b import FSDP\n{SAVE}"}
    grow(tmp_path, {**tree, "b.py": "from c import FSDP\n", "c.py": PUBLIC})
    modules = modules_of(tmp_path)
    first = report_of(tmp_path, "a.py", modules=modules)
    assert report_of(tmp_path, "a2.py", modules=modules).consulted == first.consulted


def test_what_a_report_depends_on_is_not_sought_where_nobody_wants_to_know(tmp_path: Path) -> None:
    grow(tmp_path, {"a.py": f"from b import FSDP\n{SAVE}", "b.py": PUBLIC})
    report = report_of(tmp_path, "a.py", modules=project.Modules(noting=False))
    assert [finding.code for finding in report.findings] == ["FSDP101"]
    assert report.consulted == ()


def test_a_file_that_imports_nothing_of_its_project_depends_on_no_other(tmp_path: Path) -> None:
    grow(tmp_path, {"a.py": f"import os\nimport numpy as np\n{PUBLIC}{SAVE}", "os.py": PUBLIC})
    assert report_of(tmp_path, "a.py").consulted == ()


def test_parsed_modules_are_let_go_when_they_are_many_and_answers_stay_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = (
        "import torch\nfrom packaging import version\nNEW = version.parse(torch.__version__) >= version.parse('2.1')\n"
    )
    text = f"from b import NEW\n{PUBLIC}\nif not NEW:\n    FSDP.full_optim_state_dict(model, optim)\n"
    grow(tmp_path, {"a.py": text, "a2.py": text, "b.py": gate})
    modules = modules_of(tmp_path)
    first = report_of(tmp_path, "a.py", modules=modules)
    assert [finding.code for finding in first.findings] == ["FSDP690"]
    facts = modules.facts(str(tmp_path / "b.py"), TorchRange.parse(">=2.1"))
    modules.trim()
    assert modules.facts(str(tmp_path / "b.py"), TorchRange.parse(">=2.1")) is facts
    monkeypatch.setattr(project, "_MOST_PARSED", 1)
    modules.trim()
    assert modules.facts(str(tmp_path / "b.py"), TorchRange.parse(">=2.1")) is not facts
    modules.trim()
    assert report_of(tmp_path, "a2.py", modules=modules).findings == tuple(
        one._replace(path="a2.py") for one in first.findings
    )


def test_a_long_file_that_is_next_takes_the_room_of_parsed_modules(tmp_path: Path) -> None:
    grow(tmp_path, {"b.py": "NEW = True\n"})
    modules, path, torch = modules_of(tmp_path), str(tmp_path / "b.py"), TorchRange.default()
    facts = modules.facts(path, torch)
    modules.trim(room=1000)
    assert modules.facts(path, torch) is facts
    modules.trim(room=1_000_000)
    assert modules.facts(path, torch) is not facts


def test_a_glance_at_a_file_keeps_nothing_of_it(tmp_path: Path) -> None:
    grow(tmp_path, {"b.py": "NEW = True\n"})
    modules, path = modules_of(tmp_path), str(tmp_path / "b.py")
    assert modules.texts.glance(path) == b"NEW = True\n"
    (tmp_path / "b.py").write_text("NEW = False\n")
    assert modules.texts.raw(path) == modules.texts.glance(path) == b"NEW = False\n"
    (tmp_path / "b.py").unlink()
    assert modules.texts.glance(path) == b"NEW = False\n"
    assert modules.texts.glance(str(tmp_path / "c.py")) == b""


def test_the_files_that_write_a_name_are_looked_for_once(tmp_path: Path) -> None:
    grow(
        tmp_path, {"a.py": "def _load(): ...\n", "b.py": "from a import _load\n", "c.py": "x = '_loader'\n", "d.py": ""}
    )
    modules, path = modules_of(tmp_path), str(tmp_path / "a.py")
    found = {str(tmp_path / "b.py"), str(tmp_path / "c.py")}
    assert modules.texts.writers(path, "_load") == found
    (tmp_path / "d.py").write_text("_load")
    assert modules.texts.writers(path, "_load") == found
    assert modules.texts.writers(str(tmp_path / "b.py"), "_load") == {path, str(tmp_path / "c.py")}


def test_texts_are_let_go_when_they_are_many_and_reports_depend_on_what_was_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = f"from b import Wrapper\n{PUBLIC}\nWrapper.full_optim_state_dict(model, optim)\n"
    grow(tmp_path, {"a.py": text, "a2.py": text, "b.py": f"{PUBLIC}Wrapper = FSDP\n"})
    modules = modules_of(tmp_path)
    first = report_of(tmp_path, "a.py", modules=modules)
    assert [finding.code for finding in first.findings] == ["FSDP101"]
    sketch = modules.texts.sketch(str(tmp_path / "b.py"))
    modules.trim()
    assert modules.texts.sketch(str(tmp_path / "b.py")) is sketch
    monkeypatch.setattr(texts, "_MOST_READ", 1)
    modules.trim()
    assert modules.texts.sketch(str(tmp_path / "b.py")) is not sketch
    modules.trim()
    (tmp_path / "b.py").write_text("")
    second = report_of(tmp_path, "a2.py", modules=modules)
    assert [finding.code for finding in second.findings] == ["FSDP101"]
    assert second.consulted == first.consulted

from __future__ import annotations

import json

import pytest

from fsdp_migrate.commands import api_answer
from fsdp_migrate.commands.api_answer import ReleaseSpan, UnknownName, answers, document, lines
from fsdp_migrate.torch_api import PUBLISHED, TorchRange

PACKAGE = "torch.distributed.fsdp"
FSDP = f"{PACKAGE}.FullyShardedDataParallel"


def test_answer_has_everything_about_a_method() -> None:
    (found,) = answers("optim_state_dict_to_load")
    assert found.name == f"{FSDP}.optim_state_dict_to_load"
    assert found.kind == "staticmethod"
    assert found.spans == (ReleaseSpan("2.0", None),)
    assert found.signatures == (
        (ReleaseSpan("2.0", "2.0"), "optim_state_dict, model, optim, is_named_optimizer=False, group=None"),
        (
            ReleaseSpan("2.1", None),
            "model, optim, optim_state_dict, is_named_optimizer=False, load_directly=False, group=None",
        ),
    )
    assert found.deprecations == ()
    assert [place.name for place in found.places][:2] == [
        f"{FSDP}.optim_state_dict_to_load",
        f"{PACKAGE}.fully_sharded_data_parallel.FullyShardedDataParallel.optim_state_dict_to_load",
    ]
    assert "FSDP107" in [code for code, _ in found.rules]


@pytest.mark.parametrize(
    ("name", "codes"),
    [
        ("torch.load", ["FSDP841"]),
        ("torch.save", ["FSDP906"]),
        ("dcp.load", ["FSDP702", "FSDP714", "FSDP715"]),
        ("torch.utils.checkpoint.checkpoint", ["FSDP834"]),
        ("FSDP.full_optim_state_dict", ["FSDP101"]),
        ("summon_full_params", ["FSDP505"]),
        ("torch.distributed.fsdp.ShardingStrategy.NO_SHARD", ["FSDP506"]),
        ("torch.distributed.fsdp.FlatParameter", ["FSDP301", "FSDP302", "FSDP303"]),
        ("torch.distributed._tensor", ["FSDP601", "FSDP603"]),
        ("torch.nn", []),
        ("FSDP", ["FSDP900"]),
    ],
)
def test_rules_of_another_thing_with_that_name_are_not_listed(name: str, codes: list[str]) -> None:
    (found,) = answers(name)
    assert [code for code, _ in found.rules] == codes


def test_lines_of_a_single_answer() -> None:
    text = list(lines(answers("FSDP.rekey_optim_state_dict")))
    assert text[:4] == [
        f"{FSDP}.rekey_optim_state_dict (staticmethod)",
        "  In torch 1.12 and newer",
        "  Parameters",
        "    1.12            (optim_state_dict, optim_state_key_type, model, optim_input=None)",
    ]
    assert "  Parameter optim_input deprecated" in text
    assert text[text.index("  Found as") + 1] == f"    1.12 and newer  {FSDP}.rekey_optim_state_dict"


def test_deprecations_are_listed_by_release() -> None:
    (found,) = answers("torch.distributed.all_gather_into_tensor")
    ((span, warning),) = found.deprecations
    assert (str(span), warning.category) == ("2.13 to 2.14", "FutureWarning")
    (found,) = answers("FSDP.full_optim_state_dict")
    assert [(str(span), warning.category) for span, warning in found.deprecations] == [
        ("2.0 to 2.3", "UserWarning"),
        ("2.4 and newer", "FutureWarning"),
    ]
    assert "    2.0 to 2.3     UserWarning: ``FullyShardedDataParallel.full_optim_state_dict``is being deprecated" in [
        line.partition(" and is replaced")[0] for line in lines((found,))
    ]


@pytest.mark.parametrize(
    ("query", "name"),
    [
        ("FlatParameter", f"{PACKAGE}.FlatParameter"),
        ("FSDP.full_optim_state_dict()", f"{FSDP}.full_optim_state_dict"),
        ("fsdp.FullyShardedDataParallel.optim_state_dict", f"{FSDP}.optim_state_dict"),
        (f"{FSDP}.optim_state_dict", f"{FSDP}.optim_state_dict"),
        ("dist.all_reduce", "torch.distributed.all_reduce"),
        ("dcp.save", "torch.distributed.checkpoint.save"),
        ("torch.distributed.fsdp.flat_param", f"{PACKAGE}.flat_param"),
        ("torch.load", "torch.load"),
    ],
)
def test_names_are_found_by_any_part_of_their_path_and_by_what_people_call_them(query: str, name: str) -> None:
    (found,) = answers(query)
    assert found.name == name


def test_a_thing_that_moved_is_one_answer_with_all_its_places() -> None:
    (found,) = answers("FlatParameter")
    places = {place.name: [str(span) for span in place.spans] for place in found.places}
    assert places[f"{PACKAGE}.flatten_params_wrapper.FlatParameter"] == ["1.12"]
    assert places[f"{PACKAGE}.flat_param.FlatParameter"] == ["1.13 to 2.1"]
    assert places[f"{PACKAGE}._flat_param.FlatParameter"] == ["2.2 and newer"]


def test_a_place_that_came_and_went_and_came_back_has_several_spans() -> None:
    (found,) = answers(f"{PACKAGE}.fully_sharded_data_parallel.HandleTrainingState")
    place = next(p for p in found.places if p.name == f"{PACKAGE}.fully_sharded_data_parallel.HandleTrainingState")
    assert [str(span) for span in place.spans] == ["1.13", "2.4 and newer"]


def test_several_things_of_one_name_are_listed() -> None:
    found = answers("fully_shard")
    assert [answer.name for answer in found] == [f"{PACKAGE}.fully_shard", "torch.distributed._composable.fully_shard"]
    assert list(lines(found)) == [
        "torch.distributed.fsdp.fully_shard         function, torch 2.3 and newer",
        "torch.distributed._composable.fully_shard  function, torch 2.0 to 2.5",
        "Give more of its path for signatures and deprecations.",
    ]


def test_a_long_list_ends_with_how_many_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_answer, "_MOST_LISTED", 2)
    found = answers("forward")
    assert len(found) > 3
    assert list(lines(found))[2:] == [
        f"... and {len(found) - 2} more",
        "Give more of its path for signatures and deprecations.",
    ]


def test_the_range_limits_the_answer() -> None:
    (found,) = answers("FSDP.full_optim_state_dict", TorchRange.parse("<2.0"))
    assert found.spans == (ReleaseSpan("1.12", "1.13"),)
    assert found.deprecations == ()
    assert [str(span) for span, _ in found.signatures] == ["1.12", "1.13"]
    with pytest.raises(UnknownName, match=r"^torch>=2\.2 has no 'flat_param'; it is in torch 1\.13 to 2\.1$"):
        answers("flat_param", TorchRange.parse(">=2.2"))


def test_what_changed_inside_a_minor_is_told_by_release() -> None:
    (found,) = answers("dcp.load_sharded_optimizer_state_dict")
    assert [str(span) for span, _ in found.signatures] == ["2.0 to 2.1.0", "2.1.1 and newer"]


def test_names_that_some_builds_lack_say_so() -> None:
    (found,) = answers("torch.distributed.ProcessGroupMPI")
    assert found.spans == ()
    assert found.optional == (ReleaseSpan("1.11", None),)
    assert "  In some builds of torch 1.11 and newer" in list(lines((found,)))


def test_an_unknown_name_is_told_in_one_line_with_a_near_one() -> None:
    with pytest.raises(UnknownName) as caught:
        answers("optim_state_dict_to_lod")
    known = f"{PUBLISHED[0]} to {PUBLISHED[-1]}"
    assert str(caught.value) == (
        f"no torch from {known} has 'optim_state_dict_to_lod' in a module that is covered "
        "(did you mean optim_state_dict_to_load?)"
    )


def test_the_answer_as_json() -> None:
    found = json.loads(document(answers(f"{FSDP}.sharded_optim_state_dict", TorchRange.parse("<2.1"))))
    assert found["schema_version"] == 1
    (answer,) = found["answers"]
    assert answer["signatures"] == [
        {"first": "1.13", "last": "1.13", "parameters": "model, optim, optim_input=None, group=None"},
        {"first": "2.0", "last": "2.0", "parameters": "model, optim, group=None"},
    ]
    assert [(row["first"], row["last"], row["category"]) for row in answer["deprecations"]] == [
        ("2.0", "2.0", "UserWarning")
    ]
    assert answer["in"] == [{"first": "1.13", "last": "2.0"}]
    assert list(answer["deprecated_parameters"]) == ["optim_input"]


def test_a_place_that_was_two_things_in_turn_joins_only_one_of_them() -> None:
    (old,) = answers("torch.cuda.amp.GradScaler")
    (new,) = answers("torch.amp.GradScaler")
    assert "torch.amp.GradScaler" not in {place.name for place in old.places}
    assert [text.split(",")[0] for _, text in old.signatures if text] == ["init_scale=2.0 ** 16"]
    assert new.deprecations == ()


def test_the_private_place_of_a_name_that_only_some_releases_export_is_shown() -> None:
    text = "\n".join(lines(answers("torch.distributed.checkpoint.FsspecWriter")))
    places = text.partition("Found as\n")[2].splitlines()
    assert "2.3, 2.15 and newer  torch.distributed.checkpoint.FsspecWriter" in places[0]
    assert "2.1 and newer        torch.distributed.checkpoint._fsspec_filesystem.FsspecWriter" in places[-2]
    assert places[-1] == "    and 2 in private modules"


def test_private_places_are_not_shown_where_public_ones_do() -> None:
    assert "._" not in "\n".join(lines(answers("torch.distributed.checkpoint.async_save"))).partition("Found as")[2]

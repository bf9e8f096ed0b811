"""What becomes of the keys of an `fsdp_config` when a framework moves to FSDP2, and the edits in YAML for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fsdp_migrate.code.frameworks import KEYS, OTHER_STRATEGIES, STRATEGIES, truth
from fsdp_migrate.edits import Replace
from fsdp_migrate.records import NamedTuple
from fsdp_migrate.source import Replacement, Span
from fsdp_migrate.splicing import splice
from fsdp_migrate.workspace.beside.yaml_text import Item, YamlText
from fsdp_migrate.workspace.beside.yaml_text import Mapping as YamlMapping

PREFIX = "fsdp_"
STRATEGY = "sharding_strategy"
RESHARD = "reshard_after_forward"
STATE = "state_dict_type"


class StoppedError(Exception):
    """A configuration cannot be switched; the message says why and what to do."""


class Switch(NamedTuple):
    """What becomes of an `fsdp_config`: whether parameters are resharded, the keys that go, and those nobody knows."""

    reshard: bool
    gone: tuple[str, ...]
    unknown: tuple[str, ...]

    @property
    def note(self) -> str | None:
        """What a message says about keys that are not known."""
        return f"unknown keys stay: {', '.join(self.unknown)}" if self.unknown else None


def short(key: str) -> str:
    """A key without `fsdp_` in front."""
    return key.removeprefix(PREFIX)


def switch(framework: str, given: Mapping[str, str | None], strategy: str = "FULL_SHARD") -> Switch:
    """Decide about the keys that are `given`, with their words; without one the `strategy` holds.

    Raises:
        StoppedError: it has to be done by hand.
    """
    keys = KEYS[framework]
    by_name = {short(key): key for key in given}
    if len(by_name) < len(given):
        raise StoppedError("a key is given twice: leave the one that counts, then switch")
    words = [(name, given[by_name[name]]) for name in (STRATEGY, RESHARD, STATE) if name in by_name]
    found = []
    for name, word in words:
        if word is None:
            raise StoppedError(
                f"`{by_name[name]}` is not written as a plain word: set `reshard_after_forward` yourself"
            )
        if name == STATE:
            if word.upper() == "LOCAL_STATE_DICT":
                raise StoppedError("FSDP2 has no LOCAL_STATE_DICT: choose SHARDED_STATE_DICT or FULL_STATE_DICT")
            continue
        found.append(_reshard(word))
    if len(set(found)) > 1:
        raise StoppedError(f"`{STRATEGY}` and `{RESHARD}` disagree: leave one of them")
    gone = tuple(key for name, key in by_name.items() if name in keys.gone)
    unknown = tuple(key for name, key in by_name.items() if name not in keys.gone | keys.kept)
    return Switch(found[0] if found else _reshard(strategy), gone, unknown)


def _reshard(word: str) -> bool:
    upper = word.upper()
    if (why := OTHER_STRATEGIES.get(upper)) is not None:
        raise StoppedError(f"{word} is no strategy of FSDP2: {why}")
    found = STRATEGIES.get(upper, truth(word))
    if found is None:
        raise StoppedError(f"{word} is no known strategy: set `{RESHARD}` yourself")
    return found


def yaml_edits(source: YamlText, config: YamlMapping, switch: Switch) -> tuple[Replace, ...]:
    """The edits that switch an `fsdp_config` in YAML, on lines of its own keys only.

    Raises:
        StoppedError: it is written so that other lines would change, or mean something else.
    """
    if not config.in_lines:
        raise StoppedError("it is written with anchors or in braces: set `fsdp_version: 2` and the other keys yourself")
    given = {short(item.key): item for item in config.items}
    edits, expected = list[Replace](), {item.key: item.text for item in config.items}
    value = "true" if switch.reshard else "false"

    def put(name: str, key: str, word: str) -> None:
        item = given.get(name)
        if item is None:
            added.append(f"{key}: {word}")
        elif item.text != word:
            edits.append(Replace(item.span, word))
        expected[key if item is None else item.key] = word

    def remove(item: Item) -> None:
        edits.append(Replace(_lines_of(source, item), ""))
        removed.add(item.key)
        del expected[item.key]

    added, removed = list[str](), set[str]()
    for key in switch.gone:
        remove(given[short(key)])
    strategy, reshard = given.get(STRATEGY), given.get(RESHARD)
    if strategy is not None and reshard is None:
        key = strategy.key.replace(STRATEGY, RESHARD)
        edits += [Replace(strategy.key_span, key), Replace(strategy.span, value)]
        del expected[strategy.key]
        expected[key] = value
    else:
        if strategy is not None:
            remove(strategy)
        put(RESHARD, PREFIX + RESHARD, value)
    put("version", f"{PREFIX}version", "2")
    if STATE not in given:  # FSDP1 has it so where nobody says anything, and FSDP2 has SHARDED_STATE_DICT
        put(STATE, PREFIX + STATE, "FULL_STATE_DICT")
    if added:
        edits.append(_added(source, (item for item in config.items if item.key not in removed), added))
    _check(source, config, edits, expected)
    return tuple(edits)


def _lines_of(source: YamlText, item: Item) -> Span:
    """The line of a key that goes; a comment behind it stays, in its place."""
    start, end = source.line_start(item.key_span.start), item.span.end
    if item.text is None or source.line_number(item.key_span.start) != source.line_number(
        max(item.span.start, end - 1)
    ):
        raise StoppedError(f"`{item.key}` is written in several lines: take it out yourself")
    stop = _line_end(source, end)
    comment = next((span for span in source.comment_spans if end <= span.start < stop), None)
    if comment is not None:
        return Span(item.key_span.start, comment.start)
    following = stop + len(source.newline_at(start).encode())
    return Span(start, min(following, len(source.data)))


def _line_end(source: YamlText, offset: int) -> int:
    """Where the line of an offset ends, without its newline."""
    number = source.line_number(offset)
    return source.line_starts[number - 1] + len(source.text_lines[number - 1].rstrip("\r\n").encode())


def _added(source: YamlText, staying: Iterable[Item], added: list[str]) -> Replace:
    """New keys behind the first key that stays and ends its line."""
    for item in staying:
        start, end = source.line_start(item.key_span.start), _line_end(source, item.key_span.start)
        if item.text is not None and item.span.end <= end:
            indent = source.data[start : item.key_span.start].decode()
            return Replace(Span(end, end), "".join(f"\n{indent}{line}" for line in added))
    raise StoppedError("there is no key to put new ones behind: set `fsdp_version: 2` yourself")


def _check(source: YamlText, config: YamlMapping, edits: list[Replace], expected: Mapping[str, str | None]) -> None:
    """Read the new text: the keys are the expected ones, and nothing else means something else.

    Raises:
        StoppedError: that is not so.
    """
    changes = [Replacement(edit.span, edit.text.replace("\n", source.newline)) for edit in edits]
    try:
        new = YamlText(source.encode(splice(source.data, changes), changes))
        number = source.mappings.index(config)
        after = new.mappings[number]
        same = _others(source, number) == _others(new, number)
    except (SyntaxError, IndexError):
        same, after = False, config
    if not same or {item.key: item.text for item in after.items} != dict(expected):
        raise StoppedError("the new text would mean something else: set `fsdp_version: 2` yourself")


def _others(source: YamlText, number: int) -> list[list[tuple[str, str | None]]]:
    """What the other mappings of a text say."""
    mappings = (one for index, one in enumerate(source.mappings) if index != number)
    return [[(item.key, item.text) for item in one.items] for one in mappings]

"""Editor sessions with the real process, as messages of the Language Server Protocol."""

from __future__ import annotations

import asyncio
import gc
import json
import signal
import subprocess
import sys
import weakref
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_lsp
from lsprotocol import types
from pygls.exceptions import JsonRpcRequestCancelled
from pytest_lsp import ClientServerConfig, LanguageClient, client_capabilities

from fsdp_migrate.server.documents import Documents
from fsdp_migrate.server.server import made
from fsdp_migrate.workspace.settings import Layer
from tests.test_process import ENVIRONMENT

COMMAND = [sys.executable, "-m", "fsdp_migrate", "server", "--torch", ">=2.6"]
IMPORT = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n"
OLD = "    return FSDP.full_optim_state_dict(model, optim)\n"
TEXT = f"# \U0001f525 é\n{IMPORT}\n\ndef save(model, optim):\n{OLD}\n\ndef again(model, optim):\n{OLD}"
WARNS = types.Range(types.Position(5, 11), types.Position(5, 15))
pytestmark = pytest.mark.asyncio


@pytest_lsp.fixture(config=ClientServerConfig(server_command=COMMAND, server_env=ENVIRONMENT))
async def client(lsp_client: LanguageClient, tmp_path: Path) -> AsyncIterator[None]:
    folders = [types.WorkspaceFolder((tmp_path / name).as_uri(), name) for name in ("one", "two")]
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    watched: list[types.Registration] = []

    @lsp_client.feature(types.CLIENT_REGISTER_CAPABILITY)
    def _registered(parameters: types.RegistrationParams) -> None:
        watched.extend(parameters.registrations)

    parameters = types.InitializeParams(client_capabilities("visual-studio-code"), workspace_folders=folders)
    await lsp_client.initialize_session(parameters)
    yield
    assert [one.method for one in watched] == [types.WORKSPACE_DID_CHANGE_WATCHED_FILES]
    await lsp_client.shutdown_session()


def opened(client: LanguageClient, path: Path, text: str, language: str = "python") -> str:
    document = types.TextDocumentItem(path.as_uri(), language, 1, text)
    client.text_document_did_open(types.DidOpenTextDocumentParams(document))
    return path.as_uri()


def typed(client: LanguageClient, uri: str, version: int, where: types.Range, text: str) -> None:
    document = types.VersionedTextDocumentIdentifier(uri=uri, version=version)
    change = types.TextDocumentContentChangePartial(where, text)
    client.text_document_did_change(types.DidChangeTextDocumentParams(document, [change]))


async def found(client: LanguageClient, uri: str) -> list[types.Diagnostic]:
    """The findings that the next check of a text shows."""
    while uri not in client.diagnostics:
        await asyncio.wait_for(client.wait_for_notification(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS), 30)
    return list(client.diagnostics.pop(uri))


async def actions(client: LanguageClient, uri: str, where: types.Range, *kinds: str) -> dict[str, types.CodeAction]:
    context = types.CodeActionContext([], only=list(kinds) or None)
    parameters = types.CodeActionParams(types.TextDocumentIdentifier(uri), where, context)
    answer = await client.text_document_code_action_async(parameters)
    return {one.title: one for one in answer or () if isinstance(one, types.CodeAction)}


def applied(text: str, edit: types.WorkspaceEdit | None) -> str:
    """A text of the Basic Multilingual Plane below its first line after an edit."""
    assert edit is not None
    (change,) = edit.document_changes or ()
    assert isinstance(change, types.TextDocumentEdit)
    lines = text.splitlines(keepends=True)
    starts = [sum(map(len, lines[:number])) for number in range(len(lines) + 1)]
    for one in reversed(change.edits):
        assert isinstance(one, types.TextEdit)
        start, end = (starts[at.line] + at.character for at in (one.range.start, one.range.end))
        text = text[:start] + one.new_text + text[end:]
    return text


async def test_what_is_typed_is_checked_without_being_saved(client: LanguageClient, tmp_path: Path) -> None:
    uri = opened(client, tmp_path / "one/a.py", TEXT)
    first, _ = await found(client, uri)
    assert (first.code, first.range.start, first.source) == ("FSDP101", types.Position(5, 11), "fsdp-migrate")
    assert (first.severity, first.tags) == (types.DiagnosticSeverity.Warning, (types.DiagnosticTag.Deprecated,))
    typed(
        client,
        uri,
        2,
        types.Range(types.Position(9, 0), types.Position(10, 0)),
        "    return '\U0001f525', FSDP.full_optim_state_dict(model, optim)\n",
    )
    _, moved = await found(client, uri)
    assert moved.range.start == types.Position(9, 17)  # two units of UTF-16 for one character
    typed(client, uri, 3, types.Range(types.Position(9, 0), types.Position(9, 4)), "    return (")
    typed(client, uri, 4, types.Range(types.Position(4, 0), types.Position(10, 0)), "")
    assert await found(client, uri) == []
    assert not (tmp_path / "one/a.py").exists()


async def test_fixes_of_one_place_one_rule_and_the_whole_file(client: LanguageClient, tmp_path: Path) -> None:
    uri = opened(client, tmp_path / "one/a.py", TEXT)
    await found(client, uri)
    offered = await actions(client, uri, WARNS)
    assert list(offered) == [
        "Fix FSDP101",
        "Silence FSDP101 here with a comment",
        "Fix all FSDP101 in this file that are safe to fix",
        "Fix everything of fsdp-migrate in this file that is safe to fix",
    ]
    one, silence, rule, everything = offered.values()
    assert one.is_preferred
    new = applied(TEXT, one.edit)
    assert (new.count("full_optim_state_dict"), new.count("StateDictType.FULL_STATE_DICT")) == (1, 1)
    assert "    StateDictType,\n" in new
    assert applied(TEXT, silence.edit) == TEXT.replace(OLD, OLD[:-1] + "  # noqa: FSDP101\n", 1)
    for action in (rule, everything):
        assert action.edit is None
        resolved = await client.code_action_resolve_async(action)
        assert "full_optim_state_dict" not in applied(TEXT, resolved.edit)
    only = await actions(client, uri, WARNS, "source.fixAll")
    assert list(only) == ["Fix everything of fsdp-migrate in this file that is safe to fix"]
    assert await actions(client, uri, types.Range(types.Position(0, 0), types.Position(0, 0)), "quickfix") == {}


async def test_hovering_tells_the_rule_and_the_history_of_a_name(client: LanguageClient, tmp_path: Path) -> None:
    uri = opened(client, tmp_path / "one/a.py", TEXT)
    await found(client, uri)

    async def hover(line: int, character: int) -> str:
        parameters = types.HoverParams(types.TextDocumentIdentifier(uri), types.Position(line, character))
        answer = await client.text_document_hover_async(parameters)
        return "" if answer is None else answer.contents.value  # type: ignore[union-attr]

    told = await hover(5, 20)
    assert "**FSDP101 full-optim-state-dict**" in told
    assert "torch.distributed.fsdp.FullyShardedDataParallel.full_optim_state_dict" in told
    assert "class" in await hover(1, 40)
    assert await hover(4, 6) == ""


async def test_settings_are_read_again_when_they_change(client: LanguageClient, tmp_path: Path) -> None:
    uri = opened(client, tmp_path / "one/a.py", TEXT)
    other = opened(client, tmp_path / "two/a.py", TEXT)
    await found(client, uri)
    await found(client, other)
    settings = tmp_path / "one/pyproject.toml"
    for text, codes in (
        ('[tool.fsdp-migrate]\nignore = ["FSDP1"]\n', []),
        ("[tool.fsdp-migrate]\nignored = 1\n", [None]),
        ("", ["FSDP101", "FSDP101"]),
    ):
        settings.write_text(text)
        event = types.FileEvent(settings.as_uri(), types.FileChangeType.Changed)
        client.workspace_did_change_watched_files(types.DidChangeWatchedFilesParams([event]))
        shown = await found(client, uri)
        assert [one.code for one in shown] == codes
        assert [one.code for one in await found(client, other)] == ["FSDP101", "FSDP101"]
        if codes == [None]:
            assert "'ignored' is not a setting" in shown[0].message
            assert await actions(client, uri, WARNS) == {}
            everything = types.CodeAction("all", data={"uri": uri, "code": None})
            assert (await client.code_action_resolve_async(everything)).edit is None


async def test_texts_that_are_not_saved_count_for_those_that_import_them(
    client: LanguageClient, tmp_path: Path
) -> None:
    (tmp_path / "one/dist.py").write_text("FSDP = None\n")
    user = opened(
        client, tmp_path / "one/a.py", f"import torch\nfrom dist import FSDP\n\n\ndef save(model, optim):\n{OLD}"
    )
    assert await found(client, user) == []
    facade = opened(client, tmp_path / "one/dist.py", IMPORT)
    assert await found(client, facade) == []
    saved = types.DidSaveTextDocumentParams(types.TextDocumentIdentifier(facade))
    client.text_document_did_save(saved)
    assert [one.code for one in await found(client, user)] == ["FSDP101"]


async def test_a_closed_text_shows_nothing_and_odd_texts_do_no_harm(client: LanguageClient, tmp_path: Path) -> None:
    uri = opened(client, tmp_path / "one/a.py", TEXT)
    await found(client, uri)
    client.text_document_did_close(types.DidCloseTextDocumentParams(types.TextDocumentIdentifier(uri)))
    assert await found(client, uri) == []
    broken = opened(client, tmp_path / "one/b.py", f"{IMPORT}def (:\n")
    assert await found(client, broken) == []
    latin = opened(client, tmp_path / "one/c.py", "# coding: latin-1\n# \u20ac\n" + TEXT)
    assert len(await found(client, latin)) in (1, 2)
    half = opened(client, tmp_path / "one/d.py", f"'\ud800'\n{TEXT}")
    assert [one.code for one in await found(client, half)] == [None]
    assert list(await actions(client, (tmp_path / "never.py").as_uri(), WARNS)) == []


async def test_a_request_can_be_cancelled(client: LanguageClient, tmp_path: Path) -> None:
    uri = opened(client, tmp_path / "one/a.py", TEXT * 20)
    await found(client, uri)
    *_, everything = (await actions(client, uri, WARNS)).values()
    long = asyncio.ensure_future(client.code_action_resolve_async(everything))
    await asyncio.sleep(0)  # it is sent first
    hover = types.HoverParams(types.TextDocumentIdentifier(uri), types.Position(5, 20))
    waiting = client.protocol.send_request(types.TEXT_DOCUMENT_HOVER, hover, msg_id="hover")
    client.cancel_request(types.CancelParams("hover"))
    with pytest.raises(JsonRpcRequestCancelled):
        await asyncio.wait_for(asyncio.wrap_future(waiting), 30)
    assert (await long).edit is not None


YAML = """\
# é
distributed_type: FSDP
fsdp_config:  # here
  fsdp_sharding_strategy: SHARD_GRAD_OP
"""


async def test_yaml_and_scripts_are_checked_and_fixed_too(client: LanguageClient, tmp_path: Path) -> None:
    (tmp_path / "one/fsdp-migrate.toml").write_text('target = "fsdp2"\n')
    uri = opened(client, tmp_path / "one/config.yaml", YAML, "yaml")
    (one,) = await found(client, uri)
    assert (one.code, one.range.start) == ("FSDP851", types.Position(2, 0))
    offered = await actions(client, uri, one.range)
    fix, silence = offered.values()
    assert fix.title.startswith("Fix FSDP851 (unsafe: ")
    new = applied(YAML, fix.edit)
    assert "  fsdp_reshard_after_forward: false\n" in new
    assert "fsdp_config:  # here\n" in new
    assert "# noqa: FSDP851" in applied(YAML, silence.edit)
    hover = types.HoverParams(types.TextDocumentIdentifier(uri), one.range.start)
    assert "FSDP851" in str(await client.text_document_hover_async(hover))
    typed(client, uri, 2, types.Range(types.Position(1, 18), types.Position(1, 22)), "NO")
    assert await found(client, uri) == []
    for name, text in (
        ("tabs.yaml", "fsdp_config:\n\tx: 1\n"),
        ("other.yml", "a: 1\n"),
        ("x.yaml", "{{ x }}: fsdp_config"),
    ):
        assert await found(client, opened(client, tmp_path / "one" / name, text, "yaml")) == []
    script = opened(client, tmp_path / "one/run.sh", "python -m torch.distributed.launch t.py\n", "shellscript")
    assert [one.code for one in await found(client, script)] == ["FSDP822"]


async def bare_client(actions: types.CodeActionClientCapabilities | None) -> LanguageClient:
    bare = LanguageClient()
    await bare.start_io(*COMMAND, env=ENVIRONMENT)
    document = types.TextDocumentClientCapabilities(code_action=actions)
    await bare.initialize_session(types.InitializeParams(types.ClientCapabilities(text_document=document)))
    return bare


async def test_a_client_that_takes_commands_only_gets_no_action(tmp_path: Path) -> None:
    bare = await bare_client(types.CodeActionClientCapabilities())
    uri = opened(bare, tmp_path / "one/a.py", TEXT)
    assert await actions(bare, uri, WARNS) == {}
    await bare.shutdown_session()


async def test_a_client_that_resolves_no_edits_gets_them_at_once(tmp_path: Path) -> None:
    kinds = types.ClientCodeActionKindOptions([types.CodeActionKind.QuickFix])
    literals = types.ClientCodeActionLiteralOptions(kinds)
    bare = await bare_client(types.CodeActionClientCapabilities(code_action_literal_support=literals))
    uri = opened(bare, tmp_path / "one/a.py", TEXT)
    await asyncio.sleep(0)
    offered = await actions(bare, uri, WARNS)
    assert all(one.edit is not None and uri in (one.edit.changes or {}) for one in offered.values())
    assert len(offered) == 4
    await bare.shutdown_session()


async def test_what_a_check_leaves_is_collected() -> None:
    server = made(Documents(Layer()))

    class Garbage:
        own: Garbage

    def check() -> weakref.ref[Garbage]:
        found = Garbage()
        found.own = found
        return weakref.ref(found)

    gc.disable()
    try:
        left = await server.apart(check)
        await server.apart(str)
        assert not isinstance(left, str)
        assert left() is None
    finally:
        gc.enable()
    server.shutdown()


def message(method: str, **more: object) -> bytes:
    body = json.dumps({"jsonrpc": "2.0", "method": method, **more}).encode()
    return b"Content-Length: %d\r\n\r\n%s" % (len(body), body)


@pytest.mark.parametrize("way", ["end of input", "killed client", "killed while a text is checked"])
async def test_the_server_ends_with_its_client(way: str, tmp_path: Path) -> None:
    process = subprocess.Popen(COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=ENVIRONMENT)
    assert process.stdin is not None
    assert process.stdout is not None
    if way == "killed client":
        process.stdin.write(b"Content-Length: 999\r\n\r\n{")
    elif way == "killed while a text is checked":
        asked = {"processId": None, "rootUri": None, "capabilities": {}}
        process.stdin.write(message("initialize", id=1, params=asked) + message("initialized", params={}))
        text = {"uri": (tmp_path / "a.py").as_uri(), "languageId": "python", "version": 1, "text": TEXT * 500}
        process.stdin.write(message("textDocument/didOpen", params={"textDocument": text}))
        process.stdin.flush()
        await asyncio.sleep(1)
        process.stdout.close()
    process.stdin.close()
    assert process.wait(30) != -signal.SIGKILL
    process.stdout.close()

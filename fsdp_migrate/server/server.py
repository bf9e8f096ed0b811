"""The server: what it answers to an editor. All checks run in one thread, so that messages are always read."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from lsprotocol import types
from pygls import uris
from pygls.lsp.server import LanguageServer

from fsdp_migrate._version import __version__
from fsdp_migrate.commands import api_answer
from fsdp_migrate.findings import Applicability, Finding
from fsdp_migrate.report.cards import card_markdown
from fsdp_migrate.report.output import FileOptionError
from fsdp_migrate.rules import find
from fsdp_migrate.server import texts
from fsdp_migrate.server.documents import Checked, Documents
from fsdp_migrate.server.texts import Positions
from fsdp_migrate.source import SUFFIXES, Replacement, Source, SourceError, is_beside, is_notebook
from fsdp_migrate.torch_api import TorchRange
from fsdp_migrate.workspace.settings import ConfigFileError

# Seconds without a change after which a text is checked.
PAUSE = 0.15
FIX_ALL = f"{types.CodeActionKind.SourceFixAll.value}.{texts.NAME}"
# What decides about settings and torch ranges.
_WATCHED = "**/{pyproject.toml,fsdp-migrate.toml,setup.py,setup.cfg,*requirements*,environment.y*ml,Pipfile}"

Answer = TypeVar("Answer")


class Server(LanguageServer):
    """A language server with the texts that the editor has open."""

    def __init__(self, documents: Documents) -> None:
        super().__init__(texts.NAME, __version__, types.TextDocumentSyncKind.Incremental)
        self.documents = documents
        self.checked: dict[str, tuple[int | None, Checked]] = {}
        self.waiting: dict[str, asyncio.Task[None]] = {}
        self._thread = ThreadPoolExecutor(1)

    async def apart(self, function: Callable[..., Answer], *arguments: Any) -> Answer | str:
        """What a function returns in the thread for checks, or why it cannot, in one line."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, function, *arguments)
        except ConfigFileError as error:
            return f"{error.path}: {error}"
        except (FileOptionError, SourceError) as error:
            return str(error)
        finally:
            # Once and afterwards: while a text is checked nothing of it is garbage, and looking for some takes as long.
            self._thread.submit(gc.collect)

    def positions(self, source: Source) -> Positions:
        """The positions of a text in the units of the client."""
        return Positions(source, self.workspace.position_codec)

    def text_changed(self, uri: str) -> None:
        """Check a text once nobody has typed for a moment."""
        document = self.workspace.get_text_document(uri)
        path = path_of(uri)
        if path is None or not (is_beside(path) or document.language_id in (None, "python")):
            return
        self.documents.open(path, document.source)
        if (before := self.waiting.get(uri)) is not None:
            before.cancel()
        self.waiting[uri] = asyncio.ensure_future(self._checked_soon(uri, path, document.version))

    async def _checked_soon(self, uri: str, path: str, version: int | None) -> None:
        await asyncio.sleep(PAUSE)
        found = await self.apart(self.documents.check, path)
        if isinstance(found, str):
            self.checked.pop(uri, None)
            shown = [texts.error(found)]
        else:
            positions = self.positions(found.source)
            shown = [positions.diagnostic(finding) for finding in found.findings]
            shown += [texts.error(found.error)] if found.error is not None else []
            self.checked[uri] = version, found
        self.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri, shown, version))

    def closed(self, uri: str) -> None:
        """Forget a text, and take its findings off the screen."""
        if (before := self.waiting.pop(uri, None)) is not None:
            before.cancel()
        self.checked.pop(uri, None)
        if (path := path_of(uri)) is not None:
            self.documents.close(path)
        self.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri, []))

    async def current(self, uri: str) -> Checked | None:
        """The findings of a text as it is now; None if it cannot be checked, or changed meanwhile."""
        version = self.version_of(uri)
        if uri in self.checked and self.checked[uri][0] == version:
            return self.checked[uri][1]
        path = path_of(uri)
        if path is None or path not in self.documents.texts:
            return None
        found = await self.apart(self.documents.check, path)
        return None if isinstance(found, str) or self.version_of(uri) != version else found

    def version_of(self, uri: str) -> int | None:
        """The version of a text as it is now."""
        return self.workspace.get_text_document(uri).version

    async def complete(self, action: types.CodeAction) -> types.CodeAction:
        """An action for all of a text with its edit; without one where `current` gives nothing."""
        asked: dict[str, Any] = action.data or {}
        uri = str(asked.get("uri"))
        version = self.version_of(uri)
        path = path_of(uri)
        found = await self.current(uri)
        if path is not None and found is not None:
            changes = await self.apart(self.documents.fixes, path, asked.get("code"))
            if not isinstance(changes, str) and self.version_of(uri) == version:
                action.edit = self.change(uri, found.source, changes)
        return action

    def change(self, uri: str, source: Source, changes: list[Replacement]) -> types.WorkspaceEdit:
        """The edit of one text, which the client refuses if it has another version by then."""
        edits = self.positions(source).edits(changes)
        document = types.OptionalVersionedTextDocumentIdentifier(uri, self.version_of(uri))
        workspace = self.client_capabilities.workspace
        takes = workspace.workspace_edit if workspace is not None else None
        if takes is not None and takes.document_changes:
            return types.WorkspaceEdit(document_changes=[types.TextDocumentEdit(document, list(edits))])
        return types.WorkspaceEdit(changes={uri: edits})


def path_of(uri: str) -> str | None:
    """The path of Python, YAML or a script; None for anything else, and for a text without a file."""
    path = uris.to_fs_path(uri) if uri.startswith("file:") else None
    is_ours = path is not None and (is_beside(path) or (path.endswith(SUFFIXES) and not is_notebook(path)))
    return path if is_ours else None


def made(documents: Documents) -> Server:
    """The server with everything that it answers."""
    server = Server(documents)

    @server.feature(types.TEXT_DOCUMENT_DID_OPEN)
    async def _opened(parameters: types.DidOpenTextDocumentParams) -> None:
        server.text_changed(parameters.text_document.uri)

    @server.feature(types.TEXT_DOCUMENT_DID_CHANGE)
    async def _changed(parameters: types.DidChangeTextDocumentParams) -> None:
        server.text_changed(parameters.text_document.uri)

    @server.feature(types.TEXT_DOCUMENT_DID_SAVE)
    async def _saved(parameters: types.DidSaveTextDocumentParams) -> None:
        for uri in list(server.workspace.text_documents):  # what imports this file may have other findings now
            server.text_changed(uri)

    @server.feature(types.TEXT_DOCUMENT_DID_CLOSE)
    async def _closed(parameters: types.DidCloseTextDocumentParams) -> None:
        server.closed(parameters.text_document.uri)

    @server.feature(types.WORKSPACE_DID_CHANGE_WATCHED_FILES)
    async def _settings_changed(parameters: types.DidChangeWatchedFilesParams) -> None:
        for uri in list(server.workspace.text_documents):
            server.text_changed(uri)

    @server.feature(types.INITIALIZED)
    async def _started(parameters: types.InitializedParams) -> None:
        workspace = server.client_capabilities.workspace
        watched = workspace.did_change_watched_files if workspace is not None else None
        if watched is None or not watched.dynamic_registration:
            return
        options = types.DidChangeWatchedFilesRegistrationOptions([types.FileSystemWatcher(_WATCHED)])
        wanted = types.Registration("settings", types.WORKSPACE_DID_CHANGE_WATCHED_FILES, options)
        await server.client_register_capability_async(types.RegistrationParams([wanted]))

    @server.feature(
        types.TEXT_DOCUMENT_CODE_ACTION,
        types.CodeActionOptions([types.CodeActionKind.QuickFix, FIX_ALL], resolve_provider=True),
    )
    async def _actions(parameters: types.CodeActionParams) -> list[types.CodeAction]:
        uri, kinds = parameters.text_document.uri, parameters.context.only
        found = await server.current(uri) if _takes_actions(server.client_capabilities) else None
        if found is None:
            return []
        offered = [one for one in actions(server, uri, found, parameters.range) if _wanted(one, kinds)]
        if not _resolves_edits(server.client_capabilities):
            offered = [one if one.data is None else await server.complete(one) for one in offered]
        return offered

    @server.feature(types.CODE_ACTION_RESOLVE)
    async def _resolved(action: types.CodeAction) -> types.CodeAction:
        return await server.complete(action)

    @server.feature(types.TEXT_DOCUMENT_HOVER)
    async def _hover(parameters: types.HoverParams) -> types.Hover | None:
        uri = parameters.text_document.uri
        found = await server.current(uri)
        path = path_of(uri)
        if found is None or path is None:
            return None
        offset = server.positions(found.source).offset(parameters.position)
        parts = [explained(finding) for finding in found.findings if _touches(finding, offset)]
        name = await server.apart(server.documents.name_at, path, offset)
        parts += [] if name is None else history(name)  # nor has the reason why there is none
        return types.Hover(types.MarkupContent(types.MarkupKind.Markdown, "\n\n---\n\n".join(parts))) if parts else None

    return server


def actions(server: Server, uri: str, found: Checked, around: types.Range) -> Iterator[types.CodeAction]:
    """What can be done about the findings in a range, and about all of a text."""
    positions = server.positions(found.source)
    start, end = positions.offset(around.start), positions.offset(around.end)
    here = [finding for finding in found.findings if finding.span.start <= end and start <= finding.span.end]
    for finding in here:
        yield from _of_finding(server, uri, found.source, finding)
    for code in dict.fromkeys(finding.code for finding in here if finding.applicability is Applicability.SAFE):
        title = f"Fix all {code} in this file that are safe to fix"
        yield types.CodeAction(title, types.CodeActionKind.QuickFix, data={"uri": uri, "code": code})
    if any(finding.applicability is Applicability.SAFE for finding in found.findings):
        title = "Fix everything of fsdp-migrate in this file that is safe to fix"
        yield types.CodeAction(title, FIX_ALL, data={"uri": uri, "code": None})


def _of_finding(server: Server, uri: str, source: Source, finding: Finding) -> Iterator[types.CodeAction]:
    diagnostics = [server.positions(source).diagnostic(finding)]
    if changes := server.documents.fix(finding, source):
        is_safe = finding.applicability is Applicability.SAFE
        yield types.CodeAction(
            f"Fix {finding.code}" if is_safe else f"Fix {finding.code} (unsafe: {finding.reason})",
            types.CodeActionKind.QuickFix,
            diagnostics,
            is_preferred=is_safe,
            edit=server.change(uri, source, changes),
        )
    if comment := server.documents.silence(finding, source):
        yield types.CodeAction(
            f"Silence {finding.code} here with a comment",
            types.CodeActionKind.QuickFix,
            diagnostics,
            edit=server.change(uri, source, comment),
        )


def _wanted(action: types.CodeAction, kinds: Sequence[types.CodeActionKind | str] | None) -> bool:
    """Whether a client wants actions of this kind: it names kinds, or what they begin with."""
    if kinds is None:
        return True
    kind, names = str(getattr(action.kind, "value", action.kind)), [str(getattr(one, "value", one)) for one in kinds]
    return any(kind == name or kind.startswith(f"{name}.") for name in names)


def _takes_actions(client: types.ClientCapabilities) -> bool:
    """Whether a client takes actions with edits, and not only commands, of which this server has none."""
    actions = client.text_document.code_action if client.text_document is not None else None
    return actions is not None and actions.code_action_literal_support is not None


def _resolves_edits(client: types.ClientCapabilities) -> bool:
    """Whether a client asks for the edit of an action once somebody chooses it."""
    actions = client.text_document.code_action if client.text_document is not None else None
    resolved = actions.resolve_support if actions is not None else None
    return resolved is not None and "edit" in resolved.properties


def _touches(finding: Finding, offset: int) -> bool:
    return finding.span.start <= offset <= finding.span.end


def explained(finding: Finding) -> str:
    """The card of a finding's rule, in Markdown."""
    card = find(finding.code)
    assert card is not None
    return "\n\n".join((f"**{card.code} {card.name}**", *card_markdown(card, card.severity_on(TorchRange.default()))))


def history(name: str) -> list[str]:
    """What the releases of torch have under a name, in Markdown; nothing if none is known to have it."""
    try:
        lines = api_answer.lines(api_answer.answers(name))
    except api_answer.UnknownName:
        return []
    return ["```text\n" + "\n".join(lines) + "\n```"]

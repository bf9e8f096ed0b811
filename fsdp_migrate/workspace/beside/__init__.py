"""Texts that stand beside the code: YAML that configures frameworks, and scripts that start programs."""

from fsdp_migrate.workspace.beside.script_text import ScriptText
from fsdp_migrate.workspace.beside.yaml_text import YamlText

__all__ = ["ScriptText", "YamlText"]

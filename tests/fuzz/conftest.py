"""How long the fuzzing takes: without a profile a glance, with `--hypothesis-profile=minute` about a minute."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# Rewriting a file of the standard library takes as long as it takes, and a program that does not parse is none.
_PATIENT = settings(
    deadline=None, database=None, print_blob=False, report_multiple_bugs=False, suppress_health_check=list(HealthCheck)
)

settings.register_profile("glance", _PATIENT, max_examples=12, derandomize=True)
# The same programs every time: who changes something is told of what it breaks, and of nothing else.
settings.register_profile("minute", _PATIENT, max_examples=150, derandomize=True)
settings.register_profile("round", _PATIENT, max_examples=150)  # of `python -m tests.fuzz`, before the next test's turn
settings.load_profile("glance")

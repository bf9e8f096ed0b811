"""Tests of the rules; the helpers in `checks` show their values when an assertion fails."""

import pytest

pytest.register_assert_rewrite("tests.rules.checks")

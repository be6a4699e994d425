"""From an exception to an exit code, on stdout and on stderr."""

import json
import sys
import types
from typing import Any

import pytest

from zaia_cli.cli import app as root
from zaia_cli.cli.app import Entry
from zaia_cli.cli.command import Options, command
from zaia_cli.core import errors
from zaia_cli.core.config import Config


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch, zaia: Any) -> Any:
    """Run a command that raises the given exception."""

    def run(error: BaseException, *arguments: str) -> Any:
        @command(examples=("zaia fail", "zaia fail -v"))
        async def fail(options: Options) -> None:
            raise error

        module = types.ModuleType("zaia_cli.cli.fail")
        module.fail = fail  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "zaia_cli.cli.fail", module)
        monkeypatch.setitem(root.COMMANDS, "fail", Entry("fail:fail", "Fail."))
        return zaia("fail", *arguments)

    return run


@pytest.mark.parametrize(
    ("error", "code", "kind"),
    [
        (errors.ZaiaError("x"), 1, "internal"),
        (errors.ConfigError("x"), 2, "configuration"),
        (errors.CheckFailedError("x"), 3, "check_failed"),
        (errors.NotFoundError("x"), 4, "not_found"),
        (errors.UnavailableError("x"), 5, "unavailable"),
        (errors.RefusedError("x", code="not_migrated"), 6, "not_migrated"),
        (errors.InconclusiveError("x"), 7, "inconclusive"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (ZeroDivisionError("x"), 1, "internal"),
        (ExceptionGroup("group", [ValueError("y"), errors.RefusedError("x")]), 6, "refused"),
    ],
)
def test_each_error_has_its_exit_code_and_document(failing: Any, error: BaseException, code: int, kind: str) -> None:
    done = failing(error, "--json")
    assert done.exit_code == code
    document = json.loads(done.stdout)
    assert document["schema_version"] == 1
    assert document["error"].keys() == {"kind", "message", "hint"}
    assert document["error"]["kind"] == kind
    assert "error: " in done.stderr


def test_without_json_nothing_is_on_stdout(failing: Any) -> None:
    done = failing(errors.NotFoundError("no such thing", hint="zaia queue list"))
    assert done.stdout == ""
    assert done.stderr == "error: no such thing\nhint: zaia queue list\n"


def test_a_wrong_configuration_object_is_a_configuration_error(failing: Any) -> None:
    with pytest.raises(ValueError, match="max_steps") as caught:
        Config.model_validate({"turn": {"max_steps": 0}})
    assert failing(caught.value).exit_code == 2


def test_an_internal_error_is_one_line_and_points_to_the_traceback(failing: Any) -> None:
    done = failing(RuntimeError("first\nsecond"))
    assert done.stderr == "error: RuntimeError: first\nhint: run with -v for the traceback\n"


@pytest.mark.parametrize("flag", ["-v", "--verbose"])
def test_verbose_shows_the_traceback_without_locals(failing: Any, flag: str) -> None:
    done = failing(RuntimeError("broken"), flag)
    assert "Traceback" in done.stderr
    assert "hint: run with -v" not in done.stderr
    assert done.exit_code == 1


def test_an_expected_error_shows_no_traceback_even_when_verbose(failing: Any) -> None:
    assert "Traceback" not in failing(errors.RefusedError("x"), "-v").stderr

"""Answers: JSON documents, tables on terminals and in pipes."""

import io
import json
from datetime import UTC, datetime
from decimal import Decimal
from uuid import UUID

import pytest

from zaia_cli.cli.output import Output


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_document_has_its_version_and_plain_values(capsys: pytest.CaptureFixture[str]) -> None:
    Output(as_json=True).json(
        {
            "at": datetime(2026, 1, 2, tzinfo=UTC),
            "cost": Decimal("0.10"),
            "id": UUID(int=1),
            "text": "não",
            "none": None,
        }
    )
    assert json.loads(capsys.readouterr().out) == {
        "schema_version": 1,
        "at": "2026-01-02T00:00:00+00:00",
        "cost": "0.10",
        "id": "00000000-0000-0000-0000-000000000001",
        "text": "não",
        "none": None,
    }


def test_json_silences_tables_and_lines_and_their_absence_silences_json(capsys: pytest.CaptureFixture[str]) -> None:
    answer = Output(as_json=True)
    answer.table(("a",), [("b",)])
    answer.line("c")
    Output().json({"a": 1})
    assert capsys.readouterr().out == ""


def test_a_piped_table_is_tab_separated_and_never_cut(capsys: pytest.CaptureFixture[str]) -> None:
    Output().table(("name", "text", "ok"), [("a", "x" * 5000, True), (None, "tab\there\nline", False)])
    lines = capsys.readouterr().out.splitlines()
    assert lines == ["name\ttext\tok", "a\t" + "x" * 5000 + "\tyes", "\ttab here line\tno"]


def test_a_table_on_a_terminal_is_drawn_and_markup_is_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    terminal = Terminal()
    monkeypatch.setattr("sys.stdout", terminal)
    Output(no_color=True).table(("name", "text"), [("[red]a[/red]", "b")])
    assert "[red]a[/red]" in terminal.getvalue()
    assert "\t" not in terminal.getvalue()


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_the_environment_can_refuse_colour(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    for each in ("NO_COLOR", "TERM"):
        monkeypatch.delenv(each, raising=False)
    assert not Output().no_color
    monkeypatch.setenv(name, value)
    assert Output().no_color


def test_a_note_goes_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    Output(as_json=True).note("three files")
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err == "three files\n"


def test_a_value_without_a_json_form_is_an_error() -> None:
    with pytest.raises(TypeError, match="object has no JSON form"):
        Output(as_json=True).json({"x": object()})

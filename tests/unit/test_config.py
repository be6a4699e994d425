"""Configuration: defaults, overrides from the environment, and errors that name file, key, value and what to do."""

from pathlib import Path

import pytest

from zaia_cli.core.config import Config
from zaia_cli.core.errors import ConfigError, NotFoundError
from zaia_cli.core.loading import load_config, parse_config

ROOT = Path(__file__).parents[2]


def refusal(text: str, **environment: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        parse_config(text, "zaia.toml", environment)
    return caught.value


def test_an_empty_file_gives_the_defaults() -> None:
    assert parse_config("", "zaia.toml", {}) == Config()


def test_the_packaged_file_changes_no_default_but_its_endpoint() -> None:
    config = load_config(ROOT / "zaia.toml", {})
    assert config.model_copy(update={"models": Config().models}) == Config()
    assert config.models.endpoints["openai/*"].api_key_env == "OPENAI_API_KEY"


def test_every_commented_default_of_the_packaged_file_is_the_true_default() -> None:
    lines = (ROOT / "zaia.toml").read_text("utf-8").splitlines()
    shown = "\n".join(line.removeprefix("# ") if " = " in line else line for line in lines if not line.endswith("."))
    shown = shown.replace("# [[", "[[").replace("# [", "[")
    config = parse_config(shown, "zaia.toml", {})
    for section in ("database", "turn", "lease", "recovery", "delivery", "queue", "intake"):
        assert getattr(config, section) == getattr(Config(), section)


def test_the_environment_overrides_nested_keys() -> None:
    config = parse_config(
        "[turn.guard]\nmax_calls = 5\n",
        "zaia.toml",
        {
            "ZAIA_TURN__GUARD__MAX_CALLS": "7",
            "ZAIA_QUEUE__REPLY_WITHIN_S__URGENT": "30",
            "ZAIA_DELIVERY__RESEND_UNKNOWN": "true",
            "ZAIA_ALERTS__SINKS": '[{ kind = "command", command = ["notify"] }]',
        },
    )
    assert config.turn.guard.max_calls == 7
    assert config.queue.reply_within_s.urgent == 30
    assert config.delivery.resend_unknown is True
    assert config.alerts.sinks[0].command == ("notify",)


def test_the_database_url_variable_wins_over_the_key_and_its_variable() -> None:
    environment = {"ZAIA_DATABASE_URL": "postgresql://a/x", "ZAIA_DATABASE__URL": "postgresql://b/x"}
    assert parse_config('[database]\nurl = "postgresql://c/x"', "z", environment).database.url == "postgresql://a/x"
    del environment["ZAIA_DATABASE_URL"]
    assert parse_config('[database]\nurl = "postgresql://c/x"', "z", environment).database.url == "postgresql://b/x"


def test_variables_without_two_underscores_are_not_keys() -> None:
    assert parse_config("", "zaia.toml", {"ZAIA_WORKSPACE": "/somewhere", "OTHER__THING": "1"}) == Config()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[turn]\ndeadline = 3", "zaia.toml: turn.deadline: unknown key; the nearest known one is 'deadline_s'"),
        ("[turns]", "zaia.toml: turns: unknown key; the nearest known one is 'turn'"),
        ("[turn.guard]\nmax_call = 3", "turn.guard.max_call: unknown key; the nearest known one is 'max_calls'"),
        ('[models.endpoints."openai/*"]\nkey_env = "X"', 'models.endpoints."openai/*".key_env: unknown key'),
        ('[[alerts.sinks]]\nkind = "webhook"\nurll = "x"', "alerts.sinks[1].urll: unknown key; the nearest known"),
        ('[turn]\nmax_steps = "many"', "turn.max_steps: 'many' cannot be used: input should be a valid integer"),
        ("[queue]\nconcurrency = 0", "queue.concurrency: 0 cannot be used: input should be greater than 0"),
        ("[turn]\nmax_steps = ", "zaia.toml: not valid TOML"),
        ("[lease]\nttl_s = 90", "lease.ttl_s is 90 s, but a turn may take"),
        ('[lease]\nbackend = "redis"', 'lease.backend = "redis" is not in this version yet'),
        ("[database]\ndistributed = true", "database.distributed is not in this version yet"),
        ('[[alerts.sinks]]\nkind = "webhook"', 'alerts.sinks[1]: a webhook sink needs "url"'),
    ],
)
def test_an_error_names_file_key_value_and_what_to_do(text: str, said: str) -> None:
    error = refusal(text)
    assert said in error.message
    assert error.message.startswith("zaia.toml: ")
    assert error.hint
    assert error.exit_code == 2


def test_an_error_of_a_variable_names_the_variable() -> None:
    error = refusal("", ZAIA_TURN__MAX_STPS="3")
    assert error.message == (
        "environment variable ZAIA_TURN__MAX_STPS: turn.max_stps: unknown key; the nearest known one is 'max_steps'"
    )


def test_all_errors_are_told_at_once() -> None:
    assert len(refusal("[turn]\ndeadline = 3\n[queue]\npoll = 1\n[other]\n").message.splitlines()) == 3


def test_a_value_that_may_be_a_secret_is_not_repeated() -> None:
    error = refusal('[[alerts.sinks]]\nkind = "webhook"\nurl = 77123\n[lease]\nredis_url = 77123\n')
    assert "redis_url" in error.message
    assert "77123" not in error.message


def test_a_missing_file_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="there is no file"):
        load_config(tmp_path / "zaia.toml", {})


def test_a_file_that_is_not_text_is_a_configuration_error(tmp_path: Path) -> None:
    (tmp_path / "zaia.toml").write_bytes(b"[turn]\n# \xff\n")
    with pytest.raises(ConfigError, match="not UTF-8"):
        load_config(tmp_path / "zaia.toml", {})

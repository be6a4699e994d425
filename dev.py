"""Two commands for a machine that has only Python: ``python3 dev.py demo`` and ``python3 dev.py test``.

Idea: ``.venv`` is made from ``requirements.lock``, with hashes, and made anew only when the lock changes. Invariant:
this file needs nothing outside the standard library and parses on old Pythons, so that the version check can speak.
Tested in ``tests/repo/test_dev_script.py``.
"""

import hashlib
import os
import subprocess
import sys

__all__ = ["main"]

ROOT = os.path.dirname(os.path.abspath(__file__))
VENV = os.path.join(ROOT, ".venv")
BIN = os.path.join(VENV, "Scripts" if os.name == "nt" else "bin")
PYTHON = os.path.join(BIN, "python.exe" if os.name == "nt" else "python")
LOCK = os.path.join(ROOT, "requirements.lock")
STAMP = os.path.join(VENV, "requirements.sha256")

USAGE = """usage: python3 dev.py COMMAND

  demo        a burst of messages through the whole engine, no keys, no services
  test ARGS   the whole check: ruff, mypy, floors, pytest (ARGS go to pytest)
  lint        ruff, mypy, floors
  lock        resolve the dependencies of pyproject.toml again into requirements.lock
  run ARGS    zaia ARGS
"""


def say(text):
    print("dev.py: " + text, file=sys.stderr, flush=True)


def run(*command, cwd=ROOT):
    """Run a program; stop with its exit code when it fails."""
    code = subprocess.call(list(command), cwd=cwd)
    if code != 0:
        sys.exit(code if code > 0 else 128 - code)


def tool(name):
    return os.path.join(BIN, name)


def lock_digest():
    with open(LOCK, "rb") as file:
        return hashlib.sha256(file.read() + sys.version.encode()).hexdigest()


def installed_digest():
    try:
        with open(STAMP, encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def prepare():
    """Make ``.venv`` from the lock, unless the one that is there came from this very lock and this Python."""
    digest = lock_digest()
    if installed_digest() == digest and os.path.exists(PYTHON):
        return
    say("installing requirements.lock into .venv (once; skipped until the lock changes)")
    run(sys.executable, "-m", "venv", "--clear", VENV)
    pip = (PYTHON, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    run(*pip, "--require-hashes", "-r", LOCK)
    run(*pip, "--no-deps", "--no-build-isolation", "-e", ROOT)
    with open(STAMP, "w", encoding="ascii") as file:
        file.write(digest)


def lint():
    run(tool("ruff"), "check", ".")
    run(tool("ruff"), "format", "--check", ".")
    run(tool("mypy"), "--strict")
    run(tool("lint-imports"))


def lock():
    """Resolve again. No index address and no path of this machine is written into the lock."""
    run(
        tool("uv"), "pip", "compile", "pyproject.toml", "--extra", "dev", "--universal", "--python-version", "3.11",
        "--generate-hashes", "--no-annotate", "--no-emit-index-url", "--no-emit-find-links", "--upgrade", "--quiet",
        "--custom-compile-command", "python3 dev.py lock", "--output-file", "requirements.lock",
    )  # fmt: skip


def main(arguments):
    if sys.version_info < (3, 11):
        say("Zaia needs Python 3.11 or later; this is {}.{} ({})".format(*sys.version_info[:2], sys.executable))
        say("try: python3.11 dev.py " + " ".join(arguments))
        return 2
    command, rest = (arguments[0], arguments[1:]) if arguments else ("help", [])
    if command not in ("demo", "test", "lint", "lock", "run"):
        print(USAGE, end="")
        return 0 if command in ("help", "-h", "--help") else 2
    prepare()
    if command == "test":
        lint()
        if rest:
            run(PYTHON, "-m", "pytest", *rest)
        else:
            run(PYTHON, "-m", "pytest", "-n", "2", "-m", "not slow")
            run(PYTHON, "-m", "pytest", "-m", "slow")  # alone: they load the machine themselves
    elif command == "lint":
        lint()
    elif command == "lock":
        lock()
    elif command == "demo":
        run(tool("zaia"), "demo", *rest)
    else:
        run(tool("zaia"), *rest, cwd=None)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""``python -m zaia_cli`` is ``zaia``. Tested in ``tests/cli/test_app.py``."""

from zaia_cli.cli.app import main

if __name__ == "__main__":
    main()

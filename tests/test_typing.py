"""The documented calls type-check as a user's code would."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import promptguard

FILE = Path(__file__).parent / "typing" / "documented_calls.py"


def test_documented_calls_pass_mypy_strict(tmp_path: Path) -> None:
    """Without our plugins and settings: a user has neither."""
    settings = tmp_path / "mypy.ini"
    settings.write_text("[mypy]\nstrict = true\nfollow_imports = silent\n")
    command = [sys.executable, "-m", "mypy", "--config-file", str(settings), str(FILE)]
    command += ["--cache-dir", str(tmp_path / "cache")]
    env = {**os.environ, "MYPYPATH": str(Path(promptguard.__file__).parents[1])}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout

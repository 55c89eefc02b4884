"""The file for `spark-submit` imports what it needs when Python runs it as a script."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from spillway.cli.submit import job


def test_file_runs_as_a_script_from_any_folder(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(job.__file__)],
        cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    # Its own message, and not that of an import which finds a neighbour of the file.
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("usage: spark-submit")


def test_wrong_job_is_an_error_for_people(tmp_path: Path, capsys) -> None:
    assert job.main([str(tmp_path / "none.yaml")]) == 2
    assert "cannot be read" in capsys.readouterr().err

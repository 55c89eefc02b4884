"""The file for `spark-submit`: `spark-submit "$(spillway-submit-file)" job.yaml`.

It runs a job in the session that spark-submit describes: master, memory and packages are its options.
"""

from __future__ import annotations

import sys

from spillway.cli.output import USER_ERROR, print_error
from spillway.errors import SpillwayError


def main(arguments: list[str]) -> int:
    """Runs the job file that is the one argument; returns the exit code of `spillway run`."""
    from spillway.cli.run import FAILED, run_job
    from spillway.jobs.reading import read_job

    if len(arguments) != 1:
        print("usage: spark-submit", __file__, "job.yaml", file=sys.stderr)
        return USER_ERROR
    try:
        seen = run_job(read_job(arguments[0]), submitted=True)
    except SpillwayError as problem:
        print_error(problem)
        return USER_ERROR
    if seen.problem is not None:
        print_error(seen.problem)
        return FAILED
    return 0


def print_path() -> None:
    """Prints where this file is."""
    print(__file__)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

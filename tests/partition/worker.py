"""A worker process of the crash tests, inside of a network namespace."""

from __future__ import annotations

import json
import sys

from tests.crash.worker import WorkerOptions, run
from tests.partition.hosts import enter

if __name__ == "__main__":
    enter(sys.argv[1])
    run(WorkerOptions(**json.loads(sys.argv[2])))

"""Repeat seeds of the simulation: `python -m tests.simulation SEED [--seeds N] [--processes N]`."""

from __future__ import annotations

import argparse
import sys

from tests.simulation.run import simulate


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("seed", type=int)
    parser.add_argument("--seeds", type=int, default=1, help="number of seeds from this one on")
    parser.add_argument("--processes", type=int, help="instead of the number that the seed draws")
    options = parser.parse_args()
    failed = 0
    for seed in range(options.seed, options.seed + options.seeds):
        result = simulate(seed, options.processes)
        if result.violations:
            failed += 1
            print(f"seed {seed} failed\n{result.report}\n{result.command}")
        elif options.seeds == 1:
            print(result.summary)
    print(f"{options.seeds - failed} of {options.seeds} seeds hold")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

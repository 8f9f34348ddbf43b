"""The former name of rlhf_lab.cli.main, for scripts of before 0.2; it goes with 0.3."""

import sys

from rlhf_lab.cli.main import main

if __name__ == "__main__":
    print("python -m rlhf_lab.main is now python -m rlhf_lab.cli.main", file=sys.stderr)  # noqa: T201
    sys.exit(main())

"""Former name of `python -m analysis.publication_tables`, until the next release."""

import sys

from analysis.publication_tables.__main__ import main

if __name__ == "__main__":
    print(  # noqa: T201
        "analysis.written is now analysis.publication_tables: run "
        "`python -m analysis.publication_tables`; this name goes with the next release",
        file=sys.stderr,
    )
    sys.exit(main())

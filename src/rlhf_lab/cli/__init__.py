"""One file for each command that a person types."""

import os
import signal
import sys

# Ctrl-C while a command's modules are imported ends it at once: an exception would pass through
# them. From then on it is handled (rlhf_lab.runs.signals).
if (
    "rlhf_lab.cli.main" in sys.orig_argv or os.path.basename(sys.argv[0]) == "rlhf-lab"
) and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)

"""From tracked runs to figures. Imports rlhf_lab.runs and what it needs, nothing that trains."""

"""Imported by the server that jobs are forked from: the schemas that each would make for itself."""

from __future__ import annotations

from rlhf_lab.experiment.config_schema import register

register()

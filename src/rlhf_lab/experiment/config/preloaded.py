"""Imported by the server that jobs are forked from: the schemas that each would make for itself."""

from __future__ import annotations

from rlhf_lab.experiment.config.groups import CLASSES, class_of
from rlhf_lab.experiment.config.schema import register, schema_of

register()
for parts in CLASSES.values():
    for path in parts.values():
        schema_of(class_of(path))

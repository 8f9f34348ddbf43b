"""Folders that every config may choose files from: those of the sweeps that this package ships."""

from __future__ import annotations

from hydra.core.config_search_path import ConfigSearchPath
from hydra.plugins.search_path_plugin import SearchPathPlugin

from rlhf_lab.sweeps.options import sweeps_folder


class ShippedSweeps(SearchPathPlugin):  # type: ignore[misc]
    """Lets a sweep of one's own name `base: nano`, wherever its file is."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        search_path.append("rlhf_lab", f"file://{sweeps_folder()}")

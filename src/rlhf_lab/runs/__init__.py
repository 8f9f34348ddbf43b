"""What a run leaves on disk and reports to trackers; files, locks and processes behind it."""

"""Records as data frames: rounds, evaluated versions and runs, with a finding for each fault."""

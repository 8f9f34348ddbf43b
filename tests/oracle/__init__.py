"""Losses against those of TRL; run by `make test-oracle`."""

"""The round loop and what learns: engines, the ledger of time, checkpoints and stages."""

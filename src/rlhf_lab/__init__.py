"""rlhf_lab: synchronous and asynchronous RLHF with exact off-policy accounting."""

__version__ = "0.1.0"

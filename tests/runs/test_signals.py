"""What the signal handler of a command raises, and when."""

from __future__ import annotations

import signal
from collections.abc import Sequence

import pytest

from rlhf_lab.runs.signals import PASSED_ON, SIGNALS, SignalHandler, begun, listening
from rlhf_lab.types.errors import StopRequested


def test_a_request_is_raised_once_and_each_further_ctrl_c_again() -> None:
    stop = SignalHandler()
    with pytest.raises(StopRequested):
        stop(signal.SIGHUP, None)
    stop(signal.SIGTERM, None)  # a scheduler signals twice, while what was raised is handled
    with pytest.raises(KeyboardInterrupt):
        stop(signal.SIGINT, None)
    with pytest.raises(KeyboardInterrupt):
        stop(signal.SIGINT, None)


@pytest.mark.parametrize("first", [signal.SIGINT, PASSED_ON])
def test_ctrl_c_of_the_terminal_and_of_the_parent_are_one(first: int) -> None:
    stop, second = SignalHandler(), PASSED_ON if first == signal.SIGINT else signal.SIGINT
    with stop.deferred():
        stop(first, None)
        stop(second, None)
        assert stop.is_interrupt
        with pytest.raises(KeyboardInterrupt):
            stop(second, None)


def test_a_call_that_changes_nothing_ends_at_once() -> None:
    stop = SignalHandler()
    with stop.deferred():
        stop(signal.SIGTERM, None)
        with pytest.raises(StopRequested), stop.immediate():
            pytest.fail("it begins after the request")
    stop = SignalHandler()
    with stop.deferred(), pytest.raises(StopRequested), stop.immediate():
        stop(signal.SIGINT, None)
    assert stop.is_interrupt


def test_a_lost_exception_is_raised_again_by_the_next_block() -> None:
    with listening() as stop:
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt), listening():
            pytest.fail("it begins after the request")
        assert stop.is_interrupt
    assert signal.getsignal(signal.SIGTERM) is not stop


def test_what_a_process_was_started_to_ignore_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with listening():
            signal.raise_signal(signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize(
    "ignored", [SIGNALS, (signal.SIGUSR1, signal.SIGUSR2)], ids=["step", "step_under_torchrun"]
)
def test_a_run_heeds_what_its_step_ignores_while_it_starts(
    ignored: Sequence[signal.Signals],
) -> None:
    """torchrun leaves its ranks the default of SIGTERM, and what else it was started to ignore."""
    steps = [number for number in ignored if number is not signal.SIGHUP]
    before = {number: signal.signal(number, signal.SIG_IGN) for number in steps}
    try:
        with listening(starting="train"):
            for number in steps:
                signal.raise_signal(number)
            begun()
            for each in SIGNALS:
                with pytest.raises(StopRequested), listening() as stop:
                    stop.is_requested = False
                    signal.raise_signal(each)
                stop.is_requested = False
            assert all(signal.getsignal(number) is signal.SIG_IGN for number in steps)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

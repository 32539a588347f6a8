"""What a panel asks the app for: to go somewhere, or to read something else."""

from textual.message import Message


class OpenRequest(Message):
    """Show the request of this id in the request panel."""

    def __init__(self, request: str) -> None:
        super().__init__()
        self.request = request


class OpenPass(Message):
    """Show the pass of this number, opened, beside the batches."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


class NextEvent(Message):
    """Jump to the next pass that this gate closed, after the moment shown; from the newest one on, the first one."""

    def __init__(self, gate: str) -> None:
        super().__init__()
        self.gate = gate


class SearchRequest(Message):
    """Look for a request by this text: `Ask.request` from here on."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text


class FilterWaiting(Message):
    """Show the waiting requests that this fits, from this row on: `Ask.waiting_filter` and `Ask.waiting_offset`."""

    def __init__(self, text: str, offset: int = 0) -> None:
        super().__init__()
        self.text = text
        self.offset = offset


class FilterLog(Message):
    """Show the lines of the log that this fits: `Ask.log_filter` and `Ask.faults_only`."""

    def __init__(self, text: str, *, faults_only: bool) -> None:
        super().__init__()
        self.text = text
        self.faults_only = faults_only

"""Helpers that the tests of several ranks share: they find the rank processes that the program started."""
from pathlib import Path

from support import wait_until

SECONDS_TO_END = 10  # longest time between the failure of one rank and the end of all ranks


def lives(process_id):
    try:
        return Path(f'/proc/{process_id}/stat').read_text().rpartition(')')[2].split()[0] != 'Z'
    except OSError:
        return False


def children_of(process):
    """Returns {process id: arguments} of the living ranks that the process started. A child counts only after exec: before exec, a signal that stops the child would
    stop its parent, too."""
    return children_of_id(process.pid)


def wait_for_children(process, count):
    """Waits until the process has `count` children, and returns children_of(). Raises AssertionError if the process ends before."""
    children = wait_until(lambda: found if len(found := children_of(process)) >= count else None, process)
    assert children is not None, f'it ended with {process.returncode}'
    return children


def wait_for_the_end_of(children):
    wait_until(lambda: not any(map(lives, children)), seconds=SECONDS_TO_END)


def children_of_id(process_id):
    found = {}
    for status in Path('/proc').glob('[0-9]*/stat'):
        try:
            text = status.read_text()
            if int(text.rpartition(')')[2].split()[1]) == process_id and text.rpartition(')')[2].split()[0] != 'Z':
                if b'SPARSEREEL_RANK_PARENT=%d' % process_id in (status.parent / 'environ').read_bytes().split(b'\0'):
                    found[int(status.parent.name)] = (status.parent / 'cmdline').read_bytes().split(b'\0')[1:]
        except (OSError, IndexError):
            pass  # this process has ended meanwhile
    return found

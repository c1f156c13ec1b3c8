"""Runs the program by forking a process that has already loaded it (fork_server.cpp). The result is that of subprocess.run(), but the run need not load libraries."""
import array
import atexit
import contextlib
import os
import selectors
import socket
import struct
import subprocess
import threading
import time

LIBRARY = os.environ.get('SPARSEREEL_FORK_SERVER_LIBRARY')
LONGEST_REQUEST = 1 << 16  # in bytes; fork_server.cpp has a buffer of this size
MOST_SERVERS = 2  # each holds a loaded program in memory
# If one of these variables is missing, the program restarts itself (app/before_libraries.cpp) and loads its libraries again.
SETTINGS = {'OMP_WAIT_POLICY': 'passive', 'PYTORCH_ALLOC_CONF': 'expandable_segments:True'}

servers, lock = {}, threading.Lock()


def run_forked(command, folder, options):
    """Returns the CompletedProcess of a run, with its output captured as text. Returns None if the program cannot be forked for this run and must be started."""
    if LIBRARY is None or options.keys() - {'cwd', 'timeout'}:
        return None
    if any(word.startswith('--gpus') for word in command):  # the program starts ranks with the arguments in /proc/self/cmdline, but a forked process has the server's arguments there
        return None
    request = b''.join(os.fsencode(word) + b'\0' for word in (options.get('cwd', folder), *command))
    if len(request) > LONGEST_REQUEST or not lock.acquire(blocking=False):
        return None
    try:
        return server_of(command[0]).run(request, command, options.get('timeout', 300))
    except BaseException:  # stop the server: its next answer would still be about this run
        if command[0] in servers:
            servers.pop(command[0]).close()
        raise
    finally:
        lock.release()


def server_of(program):
    """Returns a running server of this program that has the test's environment variables. Starts one if necessary."""
    server = servers.pop(program, None)
    if server and server.environment != os.environ:
        server.close()
        server = None
    servers[program] = server or ForkServer(program)  # adds it at the end, so that the first entry is the least recently used server
    while len(servers) > MOST_SERVERS:
        servers.pop(next(iter(servers))).close()
    return servers[program]


@atexit.register
def close_servers():
    while servers:
        servers.popitem()[1].close()


class ForkServer:
    def __init__(self, program):
        self.environment = dict(os.environ)
        self.socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.process = subprocess.Popen([program], pass_fds=[theirs.fileno()],
                                        env={**SETTINGS, **os.environ, 'LD_PRELOAD': LIBRARY, 'SPARSEREEL_FORK_SERVER': str(theirs.fileno())})
        theirs.close()

    def close(self):
        self.socket.close()
        self.process.wait()

    def answer(self):
        data = self.socket.recv(4)
        if not data:
            raise RuntimeError(f'the fork server ended with {self.process.wait()}')
        return struct.unpack('<i', data)[0]

    def run(self, request, command, timeout):
        end = time.monotonic() + timeout
        (out, out_end), (err, err_end) = os.pipe(), os.pipe()
        with open(os.devnull, 'rb') as nothing:
            descriptors = array.array('i', [nothing.fileno(), out_end, err_end])
            self.socket.sendmsg([request], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)])
        os.close(out_end)
        os.close(err_end)
        process = self.answer()
        written = read_all([out, err], end)
        if written is None:
            with contextlib.suppress(ProcessLookupError):  # no such process: the run has ended, but a process that it started still holds the pipe open
                os.kill(process, 9)
        status = os.waitstatus_to_exitcode(self.answer())
        if written is None:
            raise subprocess.TimeoutExpired(command, timeout)
        return subprocess.CompletedProcess(command, status, *(text.decode().replace('\r\n', '\n').replace('\r', '\n') for text in written))


def read_all(descriptors, end):
    """Reads each descriptor until its writers have closed it. Then closes all descriptors. Returns their contents, or None if the time `end` comes first."""
    written = {descriptor: b'' for descriptor in descriptors}
    with selectors.DefaultSelector() as selector:
        for descriptor in descriptors:
            selector.register(descriptor, selectors.EVENT_READ)
        while selector.get_map() and time.monotonic() < end:
            for key, _ in selector.select(max(0, end - time.monotonic())):
                data = os.read(key.fd, 1 << 16)
                written[key.fd] += data
                if not data:
                    selector.unregister(key.fd)
        is_over = bool(selector.get_map())
    for descriptor in descriptors:
        os.close(descriptor)
    return None if is_over else list(written.values())

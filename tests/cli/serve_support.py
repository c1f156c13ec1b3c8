"""Starts `sparsereel serve` for tests, and sends it requests. Needs only the standard library."""
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import zlib
from pathlib import Path

from support import FAMILY, MODEL, PROGRAM, CommandLineTest, wait_until

FULL = 'SPARSEREEL_FULL_TESTS' in os.environ
LONG = {'steps': 300}
ENDED = ('completed', 'failed')


class Answer:
    def __init__(self, response):
        self.status, self.headers, self.body = response.status, response.headers, response.read()

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def error(self):
        return self.json['error']


class Server:
    """A running server. `log` is the file with what it has printed so far."""
    def __init__(self, folder, *arguments, model=MODEL, **options):
        self.folder, self.log = Path(folder), Path(folder) / 'serve.log'
        size = FAMILY.size if model == MODEL else ()
        with open(self.log, 'ab') as log:
            self.process = subprocess.Popen([PROGRAM, 'serve', '-m', str(model), '--port', '0', '--device', 'cpu', '--threads', '1', '-o', 'store',
                                             *map(str, size), '--steps', '2', *map(str, arguments)], cwd=folder, stdout=log, stderr=log, **options)
        self.port = None
        wait_until(self.find_port, self.process)
        if self.process.poll() is None:
            wait_until(lambda: self.get('/health').status == 200, self.process)

    def find_port(self):
        ports = re.findall(r'serves \S+ on http://\S+:(\d+)/\n', self.log.read_text())
        self.port = int(ports[-1]) if ports else None
        try:
            return self.port is not None and self.get('/health').status > 0
        except OSError:  # an earlier server with the same log file printed this port
            return False

    def ask(self, method, path, body=None, headers=None):
        connection = http.client.HTTPConnection('127.0.0.1', self.port, timeout=60)
        try:
            if isinstance(body, dict):
                body, headers = json.dumps(body), {'Content-Type': 'application/json', **(headers or {})}
            connection.request(method, path, body, headers or {})
            return Answer(connection.getresponse())
        finally:
            connection.close()

    def get(self, path, headers=None):
        return self.ask('GET', path, headers=headers)

    def create(self, prompt='a red circle', **fields):
        return self.ask('POST', '/v1/videos', {'prompt': prompt, **fields})

    def create_form(self, parts):
        """Creates a video with a multipart form, as OpenAI's client does. `parts` is a list of (name, file name or None, bytes)."""
        body = b''
        for name, file, content in parts:
            where = f'; filename="{file}"\r\nContent-Type: image/png' if file else ''
            body += f'--limit\r\nContent-Disposition: form-data; name="{name}"{where}\r\n\r\n'.encode() + content + b'\r\n'
        return self.ask('POST', '/v1/videos', body + b'--limit--\r\n', {'Content-Type': 'multipart/form-data; boundary=limit'})

    def video(self, name):
        return self.get(f'/v1/videos/{name}').json

    def finish(self, name, seconds=60):
        """Waits until the video is completed or failed. Returns its JSON."""
        return wait_until(lambda: (lambda video: video if video['status'] in ENDED else None)(self.video(name)), self.process, seconds)

    def raw(self, *pieces, seconds=20):
        """Sends bytes and returns all that the server answers until it closes the connection."""
        with socket.create_connection(('127.0.0.1', self.port), timeout=seconds) as connection:
            answer = b''
            try:
                for piece in pieces:
                    connection.sendall(piece)
                while piece := connection.recv(65536):
                    answer += piece
            except (ConnectionError, TimeoutError):
                pass
            return answer

    def memory(self):
        """Returns the resident memory of the server's process in bytes."""
        text = self.get('/metrics').body.decode()
        return int(float(text.split('\nprocess_resident_memory_bytes ')[1].split()[0]))

    def stop(self, number=signal.SIGTERM):
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(timeout=60)


def png(width=64, height=64, shown=None):
    """Returns a gray PNG. If `shown` is given, the header claims this size instead of the true one."""
    def chunk(kind, data):
        return len(data).to_bytes(4, 'big') + kind + data + zlib.crc32(kind + data).to_bytes(4, 'big')
    w, h = shown or (width, height)
    rows = (b'\0' + bytes([128]) * 3 * width) * height
    return (b'\x89PNG\r\n\x1a\n' + chunk(b'IHDR', w.to_bytes(4, 'big') + h.to_bytes(4, 'big') + b'\x08\x02\0\0\0')
            + chunk(b'IDAT', zlib.compress(rows)) + chunk(b'IEND', b''))


class ServeTest(CommandLineTest):
    def serve(self, *arguments, **options):
        server = Server(self.folder, *arguments, **options)
        self.addCleanup(self.end, server)
        return server

    @staticmethod
    def end(server):
        if server.process.poll() is None:
            server.process.kill()
            server.process.wait()

    def stored(self):
        return sorted(path.name for path in (self.folder / 'store').iterdir() if path.name != '.serve.lock')

    def refused(self, answer, status, code, *words, param=None):
        self.assertEqual(answer.status, status, answer.body)
        self.assertEqual((answer.error['code'], answer.error['param']), (code, param), answer.body)
        for word in words:
            self.assertIn(word, answer.error['message'])

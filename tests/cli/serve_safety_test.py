"""Tests what `sparsereel serve` refuses: requests from other sites' pages, wrong API keys, bodies of ambiguous length, and too many or too large requests."""
import json
import socket
import threading
import time
import unittest

from serve_support import FULL, LONG, ServeTest


class Safety(ServeTest):
    def test_key_and_session(self):
        (self.folder / 'key').write_text('secret\n')
        server = self.serve('--api-key-file', 'key')
        for path in ('/v1/videos', '/events', '/metrics', '/v1/options'):
            self.refused(server.get(path), 401, 'invalid_api_key', 'Authorization')
        self.refused(server.create(), 401, 'invalid_api_key')
        self.refused(server.get('/v1/videos', {'Authorization': 'Bearer secreT'}), 401, 'invalid_api_key')
        self.assertEqual(server.get('/v1/videos', {'Authorization': 'Bearer secret'}).status, 200)
        self.assertEqual([server.get(path).status for path in ('/', '/health', '/session')], [200, 200, 200])
        self.assertEqual(server.get('/session').json, {'needs_key': True, 'signed_in': False})
        self.refused(server.ask('POST', '/session', {'api_key': 'x'}), 401, 'invalid_api_key')
        signed = server.ask('POST', '/session', {'api_key': 'secret'})
        self.assertEqual(signed.status, 204)
        cookie, *rest = signed.headers['Set-Cookie'].split('; ')
        self.assertEqual(rest, ['HttpOnly', 'SameSite=Strict', 'Path=/'])
        self.assertEqual(server.get('/v1/videos', {'Cookie': f'a=b; {cookie}'}).status, 200)
        self.assertEqual(server.get('/session', {'Cookie': cookie}).json, {'needs_key': True, 'signed_in': True})
        self.assertEqual(server.get('/v1/videos', {'Cookie': cookie[:-1]}).status, 401)

    def test_host_and_origin(self):
        server = self.serve('--allow-host', 'video.example.org')
        own = f'127.0.0.1:{server.port}'
        for host, status in ((own, 200), ('localhost', 200), ('[::1]:8000', 200), ('video.example.org:80', 200), ('evil.example.org', 403), ('127.evil.org', 403),
                             ('10.0.0.1', 403)):
            self.assertEqual(server.get('/v1/videos', {'Host': host}).status, status, host)
        self.refused(server.get('/', {'Host': 'evil.example.org'}), 403, 'host_not_allowed', '--allow-host')
        video = server.create(**LONG).json['id']
        for origin, status in ((f'http://{own}', 200), ('http://evil.example.org', 403), ('null', 403), (f'http://{own}.evil.org', 403)):
            self.assertEqual(server.ask('POST', '/v1/videos', json.dumps({'prompt': 'x'}), {'Content-Type': 'application/json', 'Origin': origin}).status, status)
        self.assertEqual(server.ask('DELETE', f'/v1/videos/{video}', headers={'Origin': 'http://evil.example.org'}).status, 403)
        self.assertNotIn('Access-Control-Allow-Origin', server.get('/v1/videos', {'Origin': f'http://{own}'}).headers)

    def test_bodies_without_a_certain_end(self):
        server = self.serve()
        head = b'POST /v1/videos HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n'
        hidden = b'GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n'
        chunked = b'%x\r\n%s\r\n0\r\n\r\n' % (len(hidden), hidden)
        for framing, status in ((b'\r\n', b'411'), (b'Transfer-Encoding: chunked\r\n\r\n' + chunked, b'411'),
                                (b'Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n' + chunked, b'411'),
                                (b'Content-Length: 5\r\nContent-Length: 6\r\n\r\n' + hidden, b'400'), (b'Content-Length: +5\r\n\r\n' + hidden, b'400'),
                                (b'Content-Length: -1\r\n\r\n' + hidden, b'400'), (b'Content-Length: 5x\r\n\r\n' + hidden, b'400'),
                                (b'Content-Length: 99999999999\r\n\r\n' + hidden, b'413'), (b'Content-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc' + hidden, b'415')):
            answer = server.raw(head + framing)
            self.assertTrue(answer.startswith(b'HTTP/1.1 ' + status), (framing, answer))
            self.assertEqual(answer.count(b'HTTP/1.1 '), 1, answer)  # one answer: the server did not take the body for a second request
            self.assertIn(b'Connection: close', answer)
        for start in (b'GET /health', b'DELETE /v1/videos/x', b'POST /v1/videos/x/cancel', b'POST /nothing'):
            answer = server.raw(start + b' HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n' % len(hidden) + hidden)
            self.assertEqual(answer.count(b'HTTP/1.1 '), 1, answer)
        self.assertIn(b'HTTP/1.1 400', server.raw(b'GET /health HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n'))
        self.assertIn(b'HTTP/1.1 400', server.raw(head + b'Content-Length : 5\r\n\r\n' + hidden))
        for answer in (server.get('/health'), server.get('/none'), server.create(), server.create(steps=0)):
            self.assertEqual(answer.headers['X-Content-Type-Options'], 'nosniff')
            self.assertTrue(answer.headers['x-request-id'].startswith('req_'))
        large = server.ask('POST', '/v1/videos', bytes(65 << 20), {'Content-Type': 'application/json'})  # the server reads the whole body, so that the client gets the answer instead of a connection reset
        self.refused(large, 413, 'body_too_large')
        self.refused(server.ask('POST', '/session', b'{' + b' ' * 5000, {'Content-Type': 'application/json'}), 413, 'body_too_large')
        self.refused(server.ask('POST', '/session', b'api_key=x', {'Content-Type': 'application/x-www-form-urlencoded'}), 415, 'unsupported_body')

    def test_long_headers_of_parts(self):
        server = self.serve()
        form = {'Content-Type': 'multipart/form-data; boundary=limit'}
        for line in (b'Content-Disposition: form-data; name="' + b'x' * (2 << 20) + b'"', b'x' * (2 << 20), b'Content-Type: ' + b'a/' * (1 << 20)):
            body = b'--limit\r\n' + line + b'\r\n\r\n\r\n--limit--\r\n'
            self.refused(server.ask('POST', '/v1/videos', body, form), 400, 'invalid_value', 'header')
            self.refused(server.ask('POST', '/session', body, form), 415, 'unsupported_body')
        self.assertEqual(server.get('/health').status, 200)

    def test_floods(self):
        server = self.serve()
        before = server.memory()
        for flood in (b'GET /health HTTP/1.1\r\nHost: localhost\r\n' + b'a: b\r\n' * 1_000_000, b'GET /health HTTP/1.1\r\na: ' + b'x' * 8_000_000,
                      b'GET /' + b'x' * 8_000_000, b'\0' * 1_000_000, b'\r\n' * 1_000_000, b'x: y\r\n' * 500_000):
            answer = server.raw(flood)
            self.assertNotIn(b'HTTP/1.1 2', answer)
        self.assertIn(b'"ok"', server.raw(b'GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n'))
        parts = [(f'p{i}', None, b'') for i in range(2000)]
        self.assertEqual(server.create_form(parts).status, 400)
        self.assertLess(server.memory() - before, 40 << 20)

    def test_idle_connections(self):
        server = self.serve()
        idle = [socket.create_connection(('127.0.0.1', server.port)) for _ in range(200)]
        for _ in range(20):
            idle.append(socket.create_connection(('127.0.0.1', server.port)))
            idle[-1].sendall(b'GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n')
            idle[-1].recv(4096)
        delays = []
        for _ in range(20):
            start = time.monotonic()
            self.assertEqual(server.get('/health').status, 200)
            delays.append(time.monotonic() - start)
        self.assertLess(sorted(delays)[len(delays) // 2], 0.05, delays)
        for each in idle:
            each.close()
        start = time.monotonic()
        self.assertEqual(server.stop(), 0)
        self.assertLess(time.monotonic() - start, 5)

    def test_many_waiting_videos(self):
        count = 1000 if FULL else 300
        server = self.serve('--queue', count + 30)
        server.create(**LONG)
        for _ in range(20):
            server.create()
        before = server.memory()
        connection_errors = []

        def fill():
            for _ in range(count // 4):
                if server.create().status != 200:
                    connection_errors.append(1)
        threads = [threading.Thread(target=fill) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(connection_errors, [])
        self.assertLess(server.memory() - before, 30 << 20)


if __name__ == '__main__':
    unittest.main()

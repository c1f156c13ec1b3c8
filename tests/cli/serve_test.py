"""Tests `sparsereel serve` as clients see it: the API, the queue, the files on disk, kills and restarts, and what is refused."""
import base64
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import unittest
import zlib

from serve_support import Server
from support import MODEL, ROOT, CommandLineTest, limited, wait_until

DATA = ROOT / 'tests' / 'parity' / 'data'
FULL = 'SPARSEREEL_FULL_TESTS' in os.environ
KILLS = 200 if FULL else 5
LONG = {'steps': 300}


def png(width=64, height=64, shown=None):
    """Returns a gray PNG. `shown` replaces the size in its header."""
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


class Api(ServeTest):
    def test_a_video_from_request_to_deletion(self):
        server = self.serve()
        created = server.create('a red circle', seed=7, cfg_scale=4.5)
        self.assertEqual(created.status, 200, created.body)
        video = created.json
        self.assertEqual((video['object'], video['status'], video['progress']), ('video', 'queued', 0))
        self.assertEqual(video['options'], {'seed': '7', 'cfg_scale': '4.5'})
        self.assertEqual(created.headers['openai-poll-after-ms'], '1000')
        self.assertTrue(created.headers['x-request-id'])
        done = server.finish(video['id'])
        self.assertEqual((done['status'], done['progress'], done['size']), ('completed', 100, '64x64'), done)
        self.assertEqual((done['recipe']['seed'], done['recipe']['prompt']), (7, 'a red circle'))
        self.assertLessEqual(done['created_at'], done['started_at'])
        content = server.get(f'/v1/videos/{done["id"]}/content?variant=video', {'Accept': 'application/binary'})
        self.assertEqual((content.status, content.headers['Content-Type']), (200, 'video/mp4'))
        self.succeed(self.generate('-o', 'clip.mp4', '-p', 'a red circle', '--seed', 7, '--cfg-scale', 4.5, '--threads', 1))
        self.assertEqual(content.body, (self.folder / 'clip.mp4').read_bytes())  # the same video as by `generate`
        part = server.get(f'/v1/videos/{done["id"]}/content', {'Range': 'bytes=4-11'})
        self.assertEqual((part.status, part.body), (206, content.body[4:12]))
        self.assertEqual(part.headers['Content-Range'], f'bytes 4-11/{len(content.body)}')
        last = server.get(f'/v1/videos/{done["id"]}/content', {'Range': 'bytes=-5'})
        self.assertEqual((last.status, last.body), (206, content.body[-5:]))
        self.assertEqual(server.get(f'/v1/videos/{done["id"]}/content', {'Range': 'bytes=99999999-'}).status, 416)
        self.assertEqual(server.get(f'/v1/videos/{done["id"]}/content', {'Range': 'bytes=0-1,3-4'}).status, 416)
        for variant in ('thumbnail', 'spritesheet'):
            picture = server.get(f'/v1/videos/{done["id"]}/content?variant={variant}')
            self.assertEqual((picture.status, picture.headers['Content-Type'], picture.body[:8]), (200, 'image/png', b'\x89PNG\r\n\x1a\n'))
        self.refused(server.get(f'/v1/videos/{done["id"]}/content?variant=x'), 400, 'invalid_value', param='variant')
        self.refused(server.get(f'/v1/videos/{done["id"]}/preview'), 404, 'no_preview')
        for path in (self.folder / 'store').iterdir():
            self.assertEqual(path.stat().st_mode & 0o777, 0o600, path)
        self.assertEqual(server.ask('DELETE', f'/v1/videos/{done["id"]}').json, {'id': done['id'], 'object': 'video.deleted', 'deleted': True})
        self.assertEqual(self.stored(), [])
        self.refused(server.get(f'/v1/videos/{done["id"]}'), 404, 'video_not_found')
        self.assertEqual(server.stop(), 0)

    def test_shows_previews_of_the_running_video(self):
        server = self.serve('--size', '64x64', '--frames', '1', model=ROOT / 'assets' / 'tiny')
        video = server.create(steps=500).json['id']
        wait_until(lambda: server.get(f'/v1/videos/{video}').json['has_preview'], server.process)
        picture = server.get(f'/v1/videos/{video}/preview')
        self.assertEqual((picture.status, picture.headers['Content-Type'], picture.headers['Cache-Control']), (200, 'image/png', 'no-store'))
        self.assertEqual(picture.body[16:24], (8).to_bytes(4, 'big') * 2)  # a pixel for each latent of 64x64
        self.assertEqual(server.get('/v1/videos/none/preview').status, 404)
        server.ask('POST', f'/v1/videos/{video}/cancel', {})
        self.assertEqual(server.finish(video)['error']['code'], 'cancelled')

    def test_list_pages(self):
        server = self.serve()
        running = server.create(**LONG).json['id']
        ids = [running, *(server.create(f'number {i}').json['id'] for i in range(4))]
        first = server.get('/v1/videos?limit=2').json
        self.assertEqual(([video['id'] for video in first['data']], first['has_more'], first['last_id']), (ids[:-3:-1], True, ids[-2]))
        rest = server.get(f'/v1/videos?limit=3&after={first["last_id"]}').json
        self.assertEqual(([video['id'] for video in rest['data']], rest['has_more']), (ids[2::-1], False))
        rising = server.get('/v1/videos?order=asc&limit=100').json
        self.assertEqual([video['id'] for video in rising['data']], ids)
        self.assertEqual([video.get('queue_position') for video in rising['data'][1:]], [0, 1, 2, 3])
        self.refused(server.get('/v1/videos?limit=0'), 400, 'invalid_value', param='limit')
        self.refused(server.get('/v1/videos?order=up'), 400, 'invalid_value', param='order')
        self.refused(server.get('/v1/videos?after=video_x'), 404, 'video_not_found')

    def test_cancel(self):
        server = self.serve()
        running, waiting = server.create(**LONG).json['id'], server.create().json['id']
        wait_until(lambda: server.video(running).get('step', 0) > 0, server.process)
        self.refused(server.ask('DELETE', f'/v1/videos/{running}'), 409, 'video_in_progress')
        self.assertEqual(server.ask('DELETE', f'/v1/videos/{running}').headers['x-should-retry'], 'false')
        for name in (waiting, running):
            cancelled = server.ask('POST', f'/v1/videos/{name}/cancel').json
            self.assertEqual((cancelled['status'], cancelled['error']['code']), ('failed', 'cancelled'))
        self.refused(server.ask('POST', f'/v1/videos/{running}/cancel'), 409, 'video_finished')
        self.assertEqual(self.stored(), sorted(f'{name}.json' for name in (running, waiting)))
        self.assertEqual(server.finish(server.create().json['id'])['status'], 'completed')  # the server goes on

    def test_models_and_options(self):
        server = self.serve('--cfg-scale', '3')
        model, = server.get('/v1/models').json['data']
        self.assertEqual((model['id'], model['object'], model['takes_image'], model['default']['steps'], model['default']['size']),
                         (os.path.basename(MODEL), 'model', False, 2, '64x64'))
        self.assertEqual(server.get(f'/v1/models/{model["id"]}').json, model)
        self.refused(server.get('/v1/models/other'), 404, 'model_not_found')
        fields = {field['name']: field for field in server.get('/v1/options').json['data']}
        self.assertEqual((fields['steps']['type'], fields['steps']['default'], fields['steps']['minimum']), ('integer', 2, 1))
        self.assertEqual((fields['cfg_scale']['default'], fields['dynamic_cfg']['type'], fields['scheduler']['type']), (3, 'boolean', 'choice'))
        self.assertFalse(fields.keys() & {'image', 'model', 'output', 'vae', 'from', 'prompt_file', 'device', 'gpus', 'init_latents', 'report', 'lora', 'profile'})
        self.assertEqual({field['group'] for field in fields.values()}, {'common', 'advanced', 'research'})

    def test_what_is_refused_names_the_field(self):
        server = self.serve()
        self.refused(server.create(promt='x'), 400, 'invalid_value', 'prompt', param='promt')
        self.refused(server.create(steps=0), 400, 'invalid_value', param='steps')
        self.refused(server.create(steps='many'), 400, 'invalid_value', param='steps')
        self.refused(server.create(size='65x64'), 400, 'invalid_value', 'width 65', param='size')
        self.refused(server.create(frames=9, seconds=1), 400, 'invalid_value', 'frames', 'seconds')
        self.refused(server.create(seed=[[1]]), 400, 'invalid_value', param='seed')
        self.refused(server.create('x' * 70_000), 400, 'invalid_value', '64 KiB', param='prompt')
        self.refused(server.create(lora='style'), 400, 'invalid_value', '--lora-dir', param='lora')
        self.refused(server.create(lora='/etc/passwd'), 400, 'invalid_value', param='lora')
        for name in ('image', 'vae', 'init_latents', 'output', 'from', 'prompt_file', 'device', 'config', 'contact_sheet'):
            self.refused(server.create(**{name: '/etc/passwd'}), 400, 'invalid_value', param=name)
        self.refused(server.create(model='sora-2'), 404, 'model_not_found', param='model')
        self.refused(server.ask('POST', '/v1/videos', {'seed': 1}), 400, 'invalid_value', param='prompt')
        self.refused(server.ask('POST', '/v1/videos', {'prompt': ''}), 400, 'invalid_value', param='prompt')
        self.refused(server.create(input_reference='/etc/passwd'), 400, 'invalid_value', param='input_reference')
        self.refused(server.create(input_reference='http://127.0.0.1/x.png'), 400, 'invalid_value', param='input_reference')
        self.refused(server.create(input_reference={'file_id': 'x'}), 400, 'invalid_value', param='input_reference')
        url = 'data:image/png;base64,' + base64.b64encode(png()).decode()
        self.refused(server.create(input_reference=url), 400, 'invalid_value', param='input_reference')  # this model takes no image
        self.assertEqual(server.ask('POST', '/v1/videos/video_x/remix', {'prompt': 'x'}).status, 404)
        json_type = {'Content-Type': 'application/json'}
        for body in ('', '[1]', '{"prompt": ', '{"prompt": "\xff"}', '{"a":' * 100, 'null'):
            self.assertEqual(server.ask('POST', '/v1/videos', body.encode('latin-1'), json_type).status, 400, body)
        self.refused(server.ask('POST', '/v1/videos', 'prompt=x', {'Content-Type': 'application/x-www-form-urlencoded'}), 415, 'unsupported_body')
        self.assertEqual(self.stored(), [])
        self.assertEqual(server.get('/v1/nothing').status, 404)
        self.assertEqual(server.ask('PUT', '/v1/videos', '{}').status, 404)

    def test_form(self):
        server = self.serve()
        video = server.create_form([('prompt', None, 'a "red" çircle\r\nand more'.encode()), ('seed', None, b'3'), ('dynamic_cfg', None, b'True'.lower()),
                                    ('dense_steps', None, b'1')])
        self.assertEqual((video.status, video.json['prompt'], video.json['options']['seed']), (200, 'a "red" çircle\r\nand more', '3'), video.body)
        self.assertEqual(server.finish(video.json['id'])['status'], 'completed')
        self.refused(server.create_form([('prompt', None, b'x'), ('prompt', None, b'y')]), 400, 'invalid_value', param='prompt')
        self.refused(server.create_form([('prompt', None, b'\xff')]), 400, 'invalid_value')
        self.refused(server.create_form([('prompt', 'a.txt', b'x')]), 400, 'invalid_value', param='prompt')
        for picture, words in ((b'GIF89a', 'PNG, JPEG or WebP'), (png(shown=(30000, 30000)), 'million pixels'), (b'', 'empty')):
            answer = server.create_form([('prompt', None, b'x'), ('input_reference', '../../x.png', picture)])
            self.refused(answer, 400, 'invalid_value', words, param='input_reference')
        self.assertEqual(self.stored(), sorted(name for name in self.stored() if name.startswith(video.json['id'])))

    def test_pictures(self):
        server = self.serve('--attention', 'full', model=DATA / 'cogvideox_i2v' / 'pipeline')
        model, = server.get('/v1/models').json['data']
        self.assertEqual((model['takes_image'], model['needs_image'], model['takes_last_frame']), (True, True, False))
        self.refused(server.create(), 400, 'invalid_value', param='input_reference')
        url = 'data:image/png;base64,' + base64.b64encode(png()).decode()
        asked = [server.create(input_reference=url), server.create(input_reference={'image_url': url}),
                 server.create_form([('prompt', None, b'a red circle'), ('input_reference', '/etc/passwd', png())])]
        videos = [server.finish(each.json['id']) for each in asked]
        self.assertEqual([video['status'] for video in videos], ['completed'] * 3, videos)
        self.assertEqual(len({video['recipe']['image_sha256'] for video in videos}), 1)
        self.assertEqual(videos[2]['recipe']['image'], f'{videos[2]["id"]}.image.png')
        self.refused(server.create(input_reference=url, last_frame=url), 400, 'invalid_value', param='last_frame')
        for video in videos:
            server.ask('DELETE', f'/v1/videos/{video["id"]}')
        self.assertEqual(self.stored(), [])

    def test_lora_by_name(self):
        (self.folder / 'loras').mkdir()
        shutil.copy(DATA / 'lora' / 'metadata.safetensors', self.folder / 'loras' / 'style.safetensors')
        server = self.serve('--lora-dir', 'loras')
        fields = {field['name']: field for field in server.get('/v1/options').json['data']}
        self.assertEqual((fields['lora']['type'], fields['lora']['choices']), ('list', ['style']))
        videos = [server.finish(server.create(**lora).json['id']) for lora in ({}, {'lora': 'style:0.5'}, {'lora': ['style']}, {})]
        self.assertEqual([video['status'] for video in videos], ['completed'] * 4, videos)
        self.assertEqual([video['recipe'].get('lora') for video in videos], [None, 'style.safetensors:0.5', 'style.safetensors', None])
        self.refused(server.create(lora='../style'), 400, 'invalid_value', param='lora')

    def test_queue_limit(self):
        server = self.serve('--queue', '2')
        server.create(**LONG)
        wait_until(lambda: 'in_progress' in {video['status'] for video in server.get('/v1/videos').json['data']}, server.process)
        self.assertEqual([server.create().status for _ in range(3)], [200, 200, 429])
        full = server.create()
        self.refused(full, 429, 'queue_full')
        self.assertEqual((full.headers['Retry-After'], full.headers['x-should-retry']), ('10', 'true'))

    def test_keep(self):
        server = self.serve('--keep', '0.02MB')
        (self.folder / 'store' / 'mine.mp4').write_text('keep')
        ids = [server.create(f'number {i}').json['id'] for i in range(3)]
        server.finish(ids[-1])
        wait_until(lambda: len(server.get('/v1/videos').json['data']) < 3, server.process)
        self.assertIn('mine.mp4', self.stored())
        self.assertNotIn(f'{ids[0]}.mp4', self.stored())

    def test_events_metrics_and_page(self):
        server = self.serve()
        with socket.create_connection(('127.0.0.1', server.port), timeout=30) as stream:
            stream.sendall(b'GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n')
            video = server.create().json['id']
            text = b''
            while b'"status":"completed"' not in text:
                text += stream.recv(65536)
        self.assertIn(b'Content-Type: text/event-stream', text)
        for part in (b'event: video\n', b'"status":"queued"', b'"stage":"text"', b'"stage":"steps","started_at"', b'"step":1', b'"stage":"decode"'):
            self.assertIn(part, text)
        metrics = server.get('/metrics').body.decode()
        for line in ('sparsereel_videos_total{outcome="completed"} 1', 'sparsereel_steps_total 2', 'sparsereel_ready 1', 'sparsereel_videos_waiting 0'):
            self.assertIn(line + '\n', metrics)
        server.ask('DELETE', f'/v1/videos/{video}')
        page = server.get('/')
        self.assertEqual((page.status, page.headers['Content-Type']), (200, 'text/html; charset=utf-8'))
        self.assertIn("default-src 'none'", page.headers['Content-Security-Policy'])
        self.assertIn(b'</html>', page.body)


class Disk(ServeTest):
    def test_stopped_server_goes_on(self):
        server = self.serve()
        done = server.finish(server.create('the first').json['id'])
        running, waiting = server.create(steps=40, seed='random').json['id'], server.create('the last').json['id']
        seed = server.video(running)['options']['seed']
        wait_until(lambda: server.video(running).get('step', 0) > 2, server.process)
        self.assertEqual(server.stop(), 0)
        self.assertIn(f'{running}.mp4.checkpoint.safetensors', self.stored())
        server = self.serve()
        self.assertEqual(server.video(done['id'])['recipe'], done['recipe'])
        self.assertEqual([server.finish(name)['status'] for name in (running, waiting)], ['completed', 'completed'])
        self.assertEqual(server.video(running)['recipe']['seed'], int(seed))
        self.succeed(self.generate('-o', 'clip.mp4', '-p', 'a red circle', '--seed', seed, '--steps', 40, '--threads', 1))
        self.assertEqual(server.get(f'/v1/videos/{running}/content').body, (self.folder / 'clip.mp4').read_bytes())
        self.assertFalse([name for name in self.stored() if 'checkpoint' in name or 'latents' in name])

    def made(self):
        return sum(name.endswith('.mp4') and not name.startswith('.') for name in self.stored())

    def test_killed_servers_lose_nothing(self):
        random.seed(1)
        server, ids = self.serve('--checkpoint-every', '2'), []
        for kill in range(KILLS):
            for _ in range(2):
                ids.append(server.create(steps=8, seed=len(ids)).json['id'])
            if kill % 2:  # a video that ends three servers in a row is given up, so the one that ran must end first
                made = self.made()
                wait_until(lambda: self.made() > made, server.process)
            time.sleep(random.uniform(0, 0.8))
            server.stop(signal.SIGKILL)
            server = self.serve('--checkpoint-every', '2')
        ended = [server.finish(name) for name in ids]
        self.assertEqual([video.get('error') for video in ended], [None] * len(ids))
        listed = server.get('/v1/videos?order=asc&limit=100').json
        self.assertEqual([video['id'] for video in listed['data']], ids[:100])
        self.assertEqual([video['recipe']['seed'] for video in ended], list(range(len(ids))))
        self.assertEqual([name for name in self.stored() if name.startswith('.') or 'checkpoint' in name or 'latents' in name], [])

    def test_a_video_that_ends_servers_is_given_up(self):
        server = self.serve()
        running, waiting = server.create(**LONG).json['id'], server.create().json['id']
        for _ in range(3):
            wait_until(lambda: server.video(running)['status'] == 'in_progress', server.process)
            server.stop(signal.SIGKILL)
            server = self.serve()
        given_up = server.finish(running)
        self.assertEqual((given_up['status'], given_up['error']['code']), ('failed', 'generation_failed'), given_up)
        self.assertIn('ended 3 times', given_up['error']['message'])
        self.assertEqual(server.finish(waiting)['status'], 'completed')

    def test_removes_orphans_and_no_foreign_files(self):
        store = self.folder / 'store'
        store.mkdir()
        orphan = 'video_' + '0a' * 16
        ours = [f'{orphan}.image.png', f'{orphan}.mp4', f'.{orphan}.image.4000000.partial.png']
        foreign = ['video_mine.mp4', f'{orphan}.txt', 'clip.mp4']
        for name in ours + foreign:
            (store / name).write_text('x')
        self.serve()
        self.assertEqual(self.stored(), sorted(foreign))

    def test_full_disk_is_a_failed_video(self):
        server = self.serve(**limited(5000))  # a record fits, a video does not
        video = server.finish(server.create().json['id'])
        self.assertEqual((video['status'], video['error']['code']), ('failed', 'generation_failed'), video)
        self.assertIn('cannot write video_', video['error']['message'])
        self.assertNotIn(str(self.folder), video['error']['message'])
        self.assertEqual(server.get('/health').status, 200)

    def test_folder_has_one_server(self):
        self.serve()
        self.fail_with(self.run_program('serve', '-m', MODEL, '-o', 'store', '--port', '0'), 2, 'another server', '--output-dir')

    def test_other_model_and_damaged_record(self):
        server = self.serve()
        waiting = [server.create(**LONG).json['id'], server.create().json['id']]
        server.stop(signal.SIGKILL)
        (self.folder / 'store' / f'{waiting[1]}.json').write_text('{')
        shutil.copytree(MODEL, self.folder / 'other')
        server = self.serve(model=self.folder / 'other')
        self.assertEqual(server.finish(waiting[0])['error']['code'], 'invalid_value')
        self.assertEqual(server.get(f'/v1/videos/{waiting[1]}').status, 404)
        self.assertIn('the video is left alone', server.log.read_text())

    def test_bad_options(self):
        for arguments, words in ((('--host', '0.0.0.0'), '--api-key-file'), (('--keep', 'soon'), 'keep soon'), (('--gpus', '2'), 'one GPU'),
                                 (('--queue', '0'), '--queue'), (('--port', '70000'), '--port'), (('--lora-dir', 'none'), '--lora-dir'),
                                 (('--api-key-file', 'none'), 'none'), (('-m', 'none'), 'none')):
            self.fail_with(self.run_program('serve', '-o', 'store', *arguments), 2, words)
        server = self.serve()
        self.fail_with(self.run_program('serve', '-m', MODEL, '-o', 'store2', '--port', str(server.port)), 2, f'127.0.0.1:{server.port}')


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
            self.assertEqual(answer.count(b'HTTP/1.1 '), 1, answer)  # nothing hidden in the body was answered
            self.assertIn(b'Connection: close', answer)
        for start in (b'GET /health', b'DELETE /v1/videos/x', b'POST /v1/videos/x/cancel', b'POST /nothing'):
            answer = server.raw(start + b' HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n' % len(hidden) + hidden)
            self.assertEqual(answer.count(b'HTTP/1.1 '), 1, answer)
        self.assertIn(b'HTTP/1.1 400', server.raw(b'GET /health HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n'))
        self.assertIn(b'HTTP/1.1 400', server.raw(head + b'Content-Length : 5\r\n\r\n' + hidden))
        for answer in (server.get('/health'), server.get('/none'), server.create(), server.create(steps=0)):
            self.assertEqual(answer.headers['X-Content-Type-Options'], 'nosniff')
            self.assertTrue(answer.headers['x-request-id'].startswith('req_'))
        large = server.ask('POST', '/v1/videos', bytes(65 << 20), {'Content-Type': 'application/json'})  # the client sees the answer, not a reset
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
        before = self.memory(server)
        for flood in (b'GET /health HTTP/1.1\r\nHost: localhost\r\n' + b'a: b\r\n' * 1_000_000, b'GET /health HTTP/1.1\r\na: ' + b'x' * 8_000_000,
                      b'GET /' + b'x' * 8_000_000, b'\0' * 1_000_000, b'\r\n' * 1_000_000, b'x: y\r\n' * 500_000):
            answer = server.raw(flood)
            self.assertNotIn(b'HTTP/1.1 2', answer)
        self.assertIn(b'"ok"', server.raw(b'GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n'))
        parts = [(f'p{i}', None, b'') for i in range(2000)]
        self.assertEqual(server.create_form(parts).status, 400)
        self.assertLess(self.memory(server) - before, 40 << 20)

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
        before = self.memory(server)
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
        self.assertLess(self.memory(server) - before, 30 << 20)

    @staticmethod
    def memory(server):
        text = server.get('/metrics').body.decode()
        return int(float(text.split('\nprocess_resident_memory_bytes ')[1].split()[0]))


class Curl(ServeTest):
    @unittest.skipUnless(shutil.which('curl'), 'needs curl')
    def test_curl(self):
        server = self.serve()
        url = f'http://127.0.0.1:{server.port}/v1/videos'
        made = subprocess.run(['curl', '-s', url, '-F', 'prompt=a red circle', '-F', 'seed=3'], capture_output=True, text=True, check=True)
        video = server.finish(json.loads(made.stdout)['id'])
        subprocess.run(['curl', '-s', '-f', '-o', self.folder / 'clip.mp4', f'{url}/{video["id"]}/content'], check=True)
        self.assertEqual((self.folder / 'clip.mp4').read_bytes()[4:8], b'ftyp')
        refused = subprocess.run(['curl', '-s', '-o', '/dev/null', '-w', '%{http_code}', url, '-H', 'Transfer-Encoding: chunked', '-F', 'prompt=x'],
                                 capture_output=True, text=True, check=True)
        self.assertEqual(refused.stdout, '411')
        cancelled = subprocess.run(['curl', '-s', '-X', 'POST', f'{url}/{video["id"]}/cancel'], capture_output=True, text=True, check=True)
        self.assertEqual(json.loads(cancelled.stdout)['error']['code'], 'video_finished')


class OpenAI(ServeTest):
    """Runs OpenAI's client in the Python programs that SPARSEREEL_OPENAI_PYTHONS names, separated by colons; else in this one."""
    PYTHONS = [each for each in os.environ.get('SPARSEREEL_OPENAI_PYTHONS', sys.executable).split(':')
               if subprocess.run([each, '-c', 'import openai'], capture_output=True).returncode == 0]

    SCRIPT = '''
import io, sys, warnings, openai
warnings.simplefilter('ignore')
client = openai.OpenAI(base_url=sys.argv[1], api_key='secret', max_retries=0)
video = client.videos.create_and_poll(prompt='a red circle', seconds='1', extra_body={'seed': 5, 'cfg_scale': 2.5})
assert video.status == 'completed' and video.progress == 100, video
assert client.videos.download_content(video.id).read()[4:8] == b'ftyp'
assert client.videos.download_content(video.id, variant='thumbnail').read()[1:4] == b'PNG'
assert client.videos.retrieve(video.id).seconds == video.seconds
assert [each.id for each in client.videos.list(limit=1)] == [video.id]
assert client.models.list().data[0].owned_by == 'local'
def refused(kind, call):
    try:
        call()
    except kind as error:
        return error
    raise AssertionError(kind)
error = refused(openai.BadRequestError, lambda: client.videos.create(prompt='x', extra_body={'promt': 1}))
assert error.param == 'promt' and error.code == 'invalid_value', error
refused(openai.BadRequestError, lambda: client.videos.create(prompt='x', input_reference=('px.png', io.BytesIO(b'GIF'), 'image/png')))
refused(openai.NotFoundError, lambda: client.videos.create(prompt='x', model='sora-2'))
refused(openai.NotFoundError, lambda: client.videos.remix(video.id, prompt='x'))
refused(openai.AuthenticationError, lambda: client.with_options(api_key='wrong').videos.list())
assert client.videos.delete(video.id).deleted
refused(openai.NotFoundError, lambda: client.videos.retrieve(video.id))
print(openai.__version__, 'works')
'''

    @unittest.skipUnless(PYTHONS, 'needs the Python package openai')
    def test_official_client(self):
        (self.folder / 'key').write_text('secret')
        server = self.serve('--api-key-file', 'key')
        for python in self.PYTHONS:
            result = subprocess.run([python, '-c', self.SCRIPT, f'http://127.0.0.1:{server.port}/v1'], capture_output=True, text=True, timeout=120)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertIn('works', result.stdout)


if __name__ == '__main__':
    unittest.main()

"""Tests the HTTP API of `sparsereel serve`: videos, models, fields of requests, the queue and events."""
import base64
import os
import shutil
import socket
import unittest

from serve_support import LONG, ServeTest, png
from support import MODEL, ROOT, wait_until

DATA = ROOT / 'tests' / 'parity' / 'data'


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
        self.assertEqual(content.body, (self.folder / 'clip.mp4').read_bytes())  # `generate` makes the same bytes
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
        self.assertEqual(picture.body[16:24], (8).to_bytes(4, 'big') * 2)  # width and height in the PNG: a pixel for each latent of a 64x64 video
        self.assertEqual(server.get('/v1/videos/none/preview').status, 404)
        server.ask('POST', f'/v1/videos/{video}/cancel', {})
        self.assertEqual(server.finish(video)['error']['code'], 'cancelled')

    def test_warns_of_sizes_and_words_unknown_to_the_tiny_model(self):
        server = self.serve('--size', '64x64', '--frames', '1', '--steps', '1', model=ROOT / 'assets' / 'tiny')
        warnings = server.finish(server.create('a purple elephant').json['id'])['warnings']
        self.assertEqual(len(warnings), 2, warnings)
        self.assertRegex(warnings[0], '^the tiny model was trained on 33 frames of 256x256, .* 1 frame of 64x64 may show something else')
        self.assertRegex(warnings[1], 'these words mean nothing to it: elephant$')

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
        self.assertEqual(server.finish(server.create().json['id'])['status'], 'completed')  # the server still makes videos

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
        self.refused(server.create(input_reference=url), 400, 'invalid_value', param='input_reference')  # refused, because this model takes no image
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
        self.assertEqual([model[name] for name in ('takes_image', 'needs_image', 'takes_last_frame', 'takes_last_frame_alone')], [True, True, False, False])
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
            video = server.create(steps=40).json['id']  # many steps, because an event shows the video as it is when the client reads, so short states may be missing
            text = b''
            while b'"status":"completed"' not in text:
                text += stream.recv(65536)
        self.assertIn(b'Content-Type: text/event-stream', text)
        for part in (b'event: video\n', b'event: queue\n', b'"status":"in_progress"', b'"stage":"steps"', b'"step":'):
            self.assertIn(part, text)
        metrics = server.get('/metrics').body.decode()
        for line in ('sparsereel_videos_total{outcome="completed"} 1', 'sparsereel_steps_total 40', 'sparsereel_ready 1', 'sparsereel_videos_waiting 0'):
            self.assertIn(line + '\n', metrics)
        server.ask('DELETE', f'/v1/videos/{video}')
        page = server.get('/')
        self.assertEqual((page.status, page.headers['Content-Type']), (200, 'text/html; charset=utf-8'))
        self.assertIn("default-src 'none'", page.headers['Content-Security-Policy'])
        self.assertIn(b'</html>', page.body)


if __name__ == '__main__':
    unittest.main()

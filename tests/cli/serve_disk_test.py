"""Tests the files of `sparsereel serve`: what a stopped, killed or restarted server keeps, full disks, and files that are not the server's."""
import random
import shutil
import signal
import time
import unittest

from serve_support import FULL, LONG, ServeTest
from support import MODEL, limited, wait_until

KILLS = 200 if FULL else 5


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
        server, ids = self.serve('--checkpoint-every', '2', '--queue', '1000'), []
        for kill in range(KILLS):
            for _ in range(2):
                ids.append(server.create(steps=8, seed=len(ids)).json['id'])
            if kill % 2:  # let the running video finish: the server gives up a video that was running when three servers in a row ended
                made = self.made()
                wait_until(lambda: self.made() > made, server.process)
            time.sleep(random.uniform(0, 0.8))
            server.stop(signal.SIGKILL)
            server = self.serve('--checkpoint-every', '2', '--queue', '1000')
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
        server = self.serve(**limited(5000))  # a limit in bytes that a video's record meets, but the video exceeds
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
        for arguments, words in ((('--host', '0.0.0.0'), '--api-key-file'), (('--keep', 'soon'), 'keep soon'), (('--gpus', '3', '--gpus-per-video', '2'), '--gpus-per-video'), (('--gpus', '0'), 'gpus'),
                                 (('--queue', '0'), '--queue'), (('--port', '70000'), '--port'), (('--lora-dir', 'none'), '--lora-dir'),
                                 (('--api-key-file', 'none'), 'none'), (('-m', 'none'), 'none')):
            self.fail_with(self.run_program('serve', '-o', 'store', *arguments), 2, words)
        server = self.serve()
        self.fail_with(self.run_program('serve', '-m', MODEL, '-o', 'store2', '--port', str(server.port)), 2, f'127.0.0.1:{server.port}')


if __name__ == '__main__':
    unittest.main()

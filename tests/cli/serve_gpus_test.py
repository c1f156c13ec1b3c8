"""Tests `sparsereel serve --gpus` on CPUs. Several videos are made at the same time, each by one process or by a group of processes. In some tests processes fail."""
import os
import signal
import unittest

from ranks_support import children_of, children_of_id, lives, wait_for_the_end_of
from serve_support import LONG, ServeTest
from support import wait_until


class Gpus(ServeTest):
    def servers_children(self, server, count=2):
        return wait_until(lambda: found if len(found := sorted(children_of(server.process))) == count else None, server.process)

    def running(self, server):
        return [video['id'] for video in server.get('/v1/videos?order=asc&limit=100').json['data'] if video['status'] == 'in_progress']

    def wait_for_running(self, server, names, step=1):
        wait_until(lambda: self.running(server) == names and all(server.video(name).get('step', 0) >= step for name in names), server.process)

    def test_two_videos_at_a_time_first_in_first_out(self):
        server = self.serve('--gpus', '2')
        ids = [server.create(seed=i, **(LONG if i < 2 else {})).json['id'] for i in range(5)]
        self.wait_for_running(server, ids[:2])
        waiting = [video.get('queue_position') for video in map(server.video, ids[2:])]
        self.assertEqual(waiting, [0, 1, 2])
        self.assertIn('sparsereel_videos_running 2\n', server.get('/metrics').body.decode())
        for name in ids[:2]:
            self.assertEqual(server.ask('POST', f'/v1/videos/{name}/cancel').json['error']['code'], 'cancelled')
        ended = [server.finish(name) for name in ids[2:]]
        self.assertEqual([video['status'] for video in ended], ['completed'] * 3, ended)
        starts = [video['started_at'] for video in ended]
        self.assertEqual(starts, sorted(starts))
        self.succeed(self.generate('-o', 'clip.mp4', '-p', 'a red circle', '--seed', 3, '--threads', 1))
        self.assertEqual(server.get(f'/v1/videos/{ids[3]}/content').body, (self.folder / 'clip.mp4').read_bytes())
        children = children_of(server.process)
        self.assertEqual(server.stop(), 0)
        self.assertFalse([child for child in children if lives(child)])

    def test_a_group_makes_a_video_together(self):
        server = self.serve('--gpus', '2', '--gpus-per-video', '2')
        child, = self.servers_children(server, 1)
        ids = [server.create(seed=i, steps=20).json['id'] for i in range(2)]
        wait_until(lambda: self.running(server) == ids[:1], server.process)
        self.assertEqual(len(children_of_id(child)), 1)
        videos = [server.finish(name) for name in ids]
        self.assertEqual([video['status'] for video in videos], ['completed'] * 2, videos)
        server.create(**LONG)
        wait_until(lambda: self.running(server), server.process)
        follower, = children_of_id(child)
        os.kill(follower, signal.SIGKILL)
        self.assertEqual(server.finish(server.create().json['id'], 120)['status'], 'completed')  # waits for the long video, which the server makes again

    def test_cancel_frees_one_gpu(self):
        server = self.serve('--gpus', '2')
        ids = [server.create(**LONG).json['id'] for _ in range(3)]
        self.wait_for_running(server, ids[:2])
        self.assertEqual(server.ask('POST', f'/v1/videos/{ids[0]}/cancel').json['status'], 'failed')
        self.wait_for_running(server, ids[1:])
        self.assertEqual([name for name in self.stored() if 'checkpoint' in name], [])

    def test_video_of_a_killed_process_goes_on(self):
        server = self.serve('--gpus', '2', '--checkpoint-every', '10')
        before = self.servers_children(server)
        ids = [server.create(seed=i, steps=200).json['id'] for i in range(2)]
        self.wait_for_running(server, ids, 20)
        os.kill(before[0], signal.SIGKILL)
        ended = [server.finish(name) for name in ids]
        self.assertEqual([video['status'] for video in ended], ['completed'] * 2, ended)
        self.assertIn('was killed by signal 9', server.log.read_text())
        after = self.servers_children(server)
        self.assertEqual(len(set(before) & set(after)), 1)
        self.succeed(self.generate('-o', 'clip.mp4', '-p', 'a red circle', '--seed', 1, '--steps', 200, '--threads', 1))
        self.assertEqual(server.get(f'/v1/videos/{ids[1]}/content').body, (self.folder / 'clip.mp4').read_bytes())
        self.assertFalse([name for name in self.stored() if 'checkpoint' in name or 'latents' in name or name.startswith('.')])

    def test_video_that_ends_its_processes_is_given_up(self):
        server = self.serve('--gpus', '2')
        name = server.create(**LONG).json['id']
        for attempt in range(3):
            wait_until(lambda: server.video(name).get('step', 0) > 0, server.process)
            for child in children_of(server.process):
                os.kill(child, signal.SIGKILL)
            wait_until(lambda: server.log.read_text().count(f'{name}: begins') > attempt + 1, server.process)
        given_up = server.finish(name)
        self.assertEqual(given_up['error']['code'], 'generation_failed', given_up)
        self.assertIn('ended 3 times', given_up['error']['message'])
        self.assertEqual(server.finish(server.create().json['id'])['status'], 'completed')

    def test_process_that_stops_answering_is_replaced(self):
        server = self.serve('--gpus', '2', env={**os.environ, 'SPARSEREEL_GROUP_SECONDS': '2'})
        child = self.servers_children(server)[0]
        ids = [server.create(steps=300).json['id'] for _ in range(2)]
        self.wait_for_running(server, ids)
        os.kill(child, signal.SIGSTOP)
        self.assertEqual([server.finish(name)['status'] for name in ids], ['completed'] * 2)
        self.assertIn('did not answer within 2', server.log.read_text())
        self.assertFalse(lives(child))

    def test_stopped_server_goes_on(self):
        server = self.serve('--gpus', '2')
        ids = [server.create(seed=i, steps=300).json['id'] for i in range(3)]
        self.wait_for_running(server, ids[:2], 3)
        self.assertEqual(server.stop(), 0)
        for name in ids[:2]:
            self.assertIn(f'{name}.mp4.checkpoint.safetensors', self.stored())
        server = self.serve()  # the new server has one GPU, and resumes these videos
        ended = [server.finish(name) for name in ids]
        self.assertEqual([video['status'] for video in ended], ['completed'] * 3, ended)
        self.succeed(self.generate('-o', 'clip.mp4', '-p', 'a red circle', '--seed', 1, '--steps', 300, '--threads', 1))
        self.assertEqual(server.get(f'/v1/videos/{ids[1]}/content').body, (self.folder / 'clip.mp4').read_bytes())

    def test_killed_server_loses_nothing_and_leaves_no_process(self):
        server = self.serve('--gpus', '2', '--checkpoint-every', '2')
        ids = [server.create(seed=i, steps=200).json['id'] for i in range(4)]
        self.wait_for_running(server, ids[:2])
        children = children_of(server.process)
        server.stop(signal.SIGKILL)
        wait_for_the_end_of(children)
        server = self.serve('--gpus', '2', '--checkpoint-every', '2')
        ended = [server.finish(name) for name in ids]
        self.assertEqual([video['recipe']['seed'] for video in ended], [0, 1, 2, 3])
        self.assertEqual(len(server.get('/v1/videos').json['data']), 4)

    def test_model_that_cannot_be_opened_ends_the_server(self):
        model = self.copy_of_the_model()
        weights, = (model / 'vae').glob('*.safetensors')
        weights.write_bytes(weights.read_bytes()[:-1000])
        self.fail_with(self.run_program('serve', '-m', model, '-o', 'store', '--port', '0', '--gpus', '2', '--device', 'cpu'), 2, weights.name)


if __name__ == '__main__':
    unittest.main()

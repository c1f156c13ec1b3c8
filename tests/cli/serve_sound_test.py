"""Tests `sparsereel serve` with a model that makes sound: the sound, the fields that requests may have, the license's terms, and that a stopped server loses no sound."""
import json
import shutil
import subprocess
import unittest

from serve_support import ServeTest
from support import FAMILY, MODEL, read_safetensors, wait_until

TERMS = 'These weights have terms of their own.'


class ServedSound(ServeTest):
    def made(self, server, **fields):
        video = server.finish(server.create(**fields).json['id'])
        self.assertEqual(video['status'], 'completed', video)
        return video

    def streams(self, content):
        (self.folder / 'clip.mp4').write_bytes(content)
        probe = ['ffprobe', '-v', 'error', '-of', 'json', '-show_streams', '-show_format', self.folder / 'clip.mp4']
        return json.loads(subprocess.run(probe, capture_output=True, check=True).stdout)['streams']

    @unittest.skipUnless(shutil.which('ffprobe'), 'needs ffprobe (package ffmpeg)')
    def test_content_holds_the_sound(self):
        server = self.serve()
        for fields, kinds in (({}, ['video', 'audio']), ({'no_audio': True}, ['video'])):
            video = self.made(server, seed=3, **fields)
            answer = server.get(f'/v1/videos/{video["id"]}/content')
            self.assertEqual([stream['codec_type'] for stream in self.streams(answer.body)], kinds)
            self.assertEqual(video['recipe']['attribution'], 'MiniMax H3')
            self.assertIn('the model was not made for ', ' '.join(video['warnings']))

    def test_lists_only_fields_with_an_effect(self):
        server = self.serve()
        fields = {field['name'] for field in server.get('/v1/options').json['data']}
        self.assertLessEqual({'steps', 'size', 'no_audio', 'topk', 'cache'}, fields)
        self.assertFalse(fields & {'cfg_scale', 'negative_prompt', 'scheduler', 'fps', 'max_sequence_length', 'vae_tiling'})
        model, = server.get('/v1/models').json['data']
        self.assertTrue(model['makes_sound'] and model['takes_last_frame_alone'])
        self.assertNotIn('cfg_scale', model['default'])
        self.made(server, cfg_scale=4)  # this model has no guidance scale; the server ignores the field, which other clients may send

    def test_says_that_there_are_no_previews(self):
        server = self.serve()
        video = self.made(server)
        self.assertFalse(video['has_preview'])
        self.refused(server.get(f'/v1/videos/{video["id"]}/preview'), 404, 'no_preview', "no previews of this model's videos")

    def test_says_once_where_the_terms_are(self):
        server = self.serve()
        self.made(server)
        self.made(server)
        self.assertEqual(server.log.read_text().count(TERMS), 1)
        server.stop()
        quiet = self.serve('--quiet', '-o', 'quiet')
        self.made(quiet)
        self.assertEqual(server.log.read_text().count(TERMS), 1)

    def test_stopped_server_goes_on_with_both_latents(self):
        server = self.serve()
        name = server.create(seed=7, steps=400).json['id']
        wait_until(lambda: server.video(name).get('step', 0) > 3, server.process)
        server.stop()
        checkpoint, = (self.folder / 'store').glob('*.checkpoint.safetensors')
        kept = read_safetensors(checkpoint)
        self.assertEqual(kept['sound'][1], [1, 74, 5], kept.keys())
        again = self.serve()
        resumed = again.finish(name)
        self.assertEqual(resumed['status'], 'completed', resumed)
        whole = self.made(again, seed=7, steps=400)
        contents = [again.get(f'/v1/videos/{each}/content').body for each in (name, whole['id'])]
        self.assertEqual(contents[0], contents[1])


if __name__ == '__main__':
    unittest.main()

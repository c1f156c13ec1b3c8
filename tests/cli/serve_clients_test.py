"""Tests `sparsereel serve` with curl and with OpenAI's Python client."""
import json
import os
import shutil
import subprocess
import sys
import unittest

from serve_support import ServeTest


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
    """Runs OpenAI's client in each Python interpreter of SPARSEREEL_OPENAI_PYTHONS, a list separated by colons. The default is the interpreter of this test. Skips
    interpreters without the client."""
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

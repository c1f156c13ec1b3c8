"""Tests a model that makes sound: every file format, --no-audio, prompt sets, several ranks, resumed runs, and sound that is decoded from latents."""
import json
import shlex
import shutil
import subprocess
import unittest
import wave

from batch_support import BatchTest
from support import FAMILY, MODEL, PROMPT, CommandLineTest, limited, read_safetensors

RATE, SAMPLES = 800, 740  # samples a second, and samples of a video of 22 frames by the small model: 37 latents of 20 samples
TEXT = '0.9 s of stereo sound at 0.8 kHz'


class Sound(CommandLineTest):
    def wav(self, name):
        """Returns the samples of a .wav file. Checks that it has the format and length of the model's sound."""
        with wave.open(str(self.folder / name)) as file:
            self.assertEqual((file.getnchannels(), file.getsampwidth(), file.getframerate(), file.getnframes()), (2, 3, RATE, SAMPLES))
            data = file.readframes(SAMPLES)
        return [int.from_bytes(data[i:i + 3], 'little', signed=True) / (1 << 23) for i in range(0, len(data), 3)]

    def test_lies_beside_formats_that_cannot_hold_it(self):
        sounds = []
        for name in ('a.gif', 'a.y4m', 'a.safetensors', 'frames'):
            result = self.succeed(self.generate('-o', name, '--report', 'report.json'))
            self.assertIn(f'{TEXT} in {name}.wav, made in', result.stdout)
            report = json.loads((self.folder / 'report.json').read_text())
            self.assertEqual(report['output']['sound'], {'seconds': SAMPLES / RATE, 'sampling_rate': RATE, 'channels': 2, 'encoder': 'pcm_s24le', 'path': f'{name}.wav'})
            sounds.append(self.wav(f'{name}.wav'))
        self.assertEqual(sounds, sounds[:1] * 4)
        self.assertGreater(max(map(abs, sounds[0])), 1e-3)
        self.assertNotEqual(sounds[0][::2], sounds[0][1::2])

    @unittest.skipUnless(shutil.which('ffprobe'), 'needs ffprobe (package ffmpeg)')
    def test_is_a_stream_of_video_files(self):
        for name in ('a.mp4', 'a.mov', 'a.mkv', 'a.webm'):
            self.assertIn(f'{TEXT}, made in', self.succeed(self.generate('-o', name)).stdout)
            probe = ['ffprobe', '-v', 'error', '-of', 'json', '-show_streams', '-show_format', self.folder / name]
            found = json.loads(subprocess.run(probe, capture_output=True, check=True).stdout)
            video, sound = found['streams']
            self.assertEqual((video['codec_type'], sound['codec_type'], sound['sample_rate'], sound['channels']), ('video', 'audio', str(RATE), 2))
            self.assertAlmostEqual(float(found['format']['duration']), SAMPLES / RATE, delta=0.4 if name == 'a.webm' else 0.05)  # .webm may be longer: at this low rate, a block of its codec is long
            self.assertEqual(self.recipe_in(name)['frames'], FAMILY.frames)
        self.assertEqual(self.names(), ['a.mkv', 'a.mov', 'a.mp4', 'a.webm'])

    def recipe_in(self, name):
        return json.loads(self.succeed(self.run_program('inspect', name, '--json')).stdout)['recipe']

    def test_is_left_out_with_no_audio(self):
        self.succeed(self.generate('-o', 'with.y4m'))
        result = self.succeed(self.generate('-o', 'without.y4m', '--no-audio', '--json'))
        report = json.loads(result.stdout)
        self.assertNotIn('sound', report['output'])
        self.assertIs(report['recipe']['no_audio'], True)
        self.assertEqual((self.folder / 'with.y4m').read_bytes(), (self.folder / 'without.y4m').read_bytes())
        self.assertEqual(self.names(), ['with.y4m', 'with.y4m.json', 'with.y4m.wav', 'without.y4m', 'without.y4m.json'])
        self.succeed(self.generate('--from', 'without.y4m', '-o', 'again.y4m'))
        self.assertNotIn('again.y4m.wav', self.names())
        self.succeed(self.generate('-o', 'with.y4m', '--no-audio'))
        self.assertNotIn('with.y4m.wav', self.names())

    def test_never_replaces_a_file_of_others(self):
        (self.folder / 'a.gif.wav').write_text('mine')
        self.fail_with(self.generate('-o', 'a.gif'), 2, 'a.gif.wav', '--no-audio')
        self.assertEqual(self.names(), ['a.gif.wav'])
        self.succeed(self.generate('-o', 'a.gif', '--no-audio'))
        self.assertEqual((self.folder / 'a.gif.wav').read_text(), 'mine')

    def test_is_decoded_from_saved_latents(self):
        self.succeed(self.generate('-o', 'a.y4m', '--save-latents', 'l.safetensors'))
        decoded = self.succeed(self.run_program('decode', 'l.safetensors', '-m', MODEL, '--device', 'cpu', '-o', 'b.y4m'))
        self.assertIn(f'{TEXT} in b.y4m.wav, decoded in', decoded.stdout)
        self.assertEqual(self.wav('b.y4m.wav'), self.wav('a.y4m.wav'))
        self.succeed(self.run_program('decode', 'l.safetensors', '-m', MODEL, '--device', 'cpu', '-o', 'b.y4m', '--no-audio'))
        self.assertNotIn('b.y4m.wav', self.names())
        self.assertIs(self.recipe_in('b.y4m')['no_audio'], True)

    def test_is_the_same_after_a_run_that_failed(self):
        self.succeed(self.generate('-o', 'whole.y4m'))
        failed = self.generate('-o', 'a.y4m', '--checkpoint-every', 1, **limited(100_000))
        self.assertEqual(failed.returncode, 1)
        self.assertNotIn('a.y4m.wav', self.names())
        self.succeed(self.run_program('decode', *shlex.split(failed.stderr.split('sparsereel decode ')[1]), '-o', 'decoded.y4m'))
        self.assertIn('from step', self.succeed(self.generate('-o', 'a.y4m', '--checkpoint-every', 1)).stdout)
        for name in ('a.y4m', 'decoded.y4m'):
            self.assertEqual(self.wav(f'{name}.wav'), self.wav('whole.y4m.wav'))

    def bench(self, *arguments):
        command = ('bench', 'pipeline', '-m', MODEL, '--device', 'cpu', *FAMILY.size, '--steps', 2, '--json', *arguments)
        return json.loads(self.succeed(self.run_program(*command)).stdout)

    def test_has_its_own_time_in_a_benchmark(self):
        report = self.bench('--modes', 'full,sparse', '--topk', 0.5)
        stages = {row['stage']: row for row in report['rows'] if row['stage'] != 'step'}
        for stage in ('decode', 'sound', 'encode'):
            self.assertGreater(stages[stage]['ms'], 0)
        self.assertLess(report['settings']['text_tokens'], 100)  # only the prompt's tokens count, not those that pad it
        steps = report['settings']['video_steps']
        for row in (row for row in report['rows'] if row['stage'] == 'step'):
            rest = sum(stages[stage]['ms'] for stage in ('text', 'decode', 'sound'))
            self.assertAlmostEqual(row['video_seconds'], (rest + steps * row['ms']) / 1000, 6)
        self.assertNotIn('sound', [row['stage'] for row in self.bench('--modes', 'full', '--no-decode')['rows']])

    def test_has_its_own_time_on_several_ranks(self):
        for row in self.bench('--modes', 'full', '--gpus', '1,2')['rows']:
            self.assertGreater(row['sound_seconds'], 0)
            self.assertGreater(row['video_seconds'], row['decode_seconds'] + row['sound_seconds'])

    def test_has_its_own_time_in_a_report(self):
        self.assertGreater(self.report('-o', 'a.y4m')['seconds']['decode_sound'], 0)
        self.assertNotIn('decode_sound', self.report('-o', 'b.y4m', '--no-audio')['seconds'])

    def test_several_ranks_make_the_same_sound(self):
        self.succeed(self.generate('-o', 'one.y4m', '--attention', 'full'))
        self.succeed(self.generate('-o', 'two.y4m', '--attention', 'full', '--gpus', 2))
        for one, two in zip(self.wav('one.y4m.wav'), self.wav('two.y4m.wav'), strict=True):
            self.assertAlmostEqual(one, two, delta=1e-4)


class SoundOfSets(BatchTest):
    def sounds(self):
        return sorted(path.name for path in (self.folder / 'out').glob('*.wav'))

    def test_belongs_to_its_row(self):
        rows = [{'prompt': f'{PROMPT} {i}', 'seed': i, 'output': f'{i}.gif'} for i in range(3)]
        rows[2]['no_audio'] = True

        def write(rows):
            return self.write('set.jsonl', '\n'.join(json.dumps(row) for row in rows))

        self.succeed(self.batch(write(rows), 'out', '--steps', 2))
        self.assertEqual(self.sounds(), ['0.gif.wav', '1.gif.wav'])
        self.assertEqual([line['sound']['sampling_rate'] if 'sound' in line else None for line in self.manifest()], [RATE, RATE, None])
        before = {name: (self.folder / 'out' / name).read_bytes() for name in self.sounds()}
        (self.folder / 'out' / '0.gif.wav').unlink()
        self.assertEqual(self.set_report(write(rows), 'out', '--steps', 2)['rendered'], 1)
        self.assertEqual((self.folder / 'out' / '0.gif.wav').read_bytes(), before['0.gif.wav'])
        (self.folder / 'out' / '0.gif.wav').write_bytes(before['0.gif.wav'][:-6] + bytes(6))
        self.assertEqual(self.set_report(write(rows), 'out', '--steps', 2)['rendered'], 1)
        self.assertEqual((self.folder / 'out' / '0.gif.wav').read_bytes(), before['0.gif.wav'])
        rows[1]['output'] = 'moved.gif'
        self.assertEqual(self.set_report(write(rows), 'out', '--steps', 2)['rendered'], 0)
        self.assertEqual(self.sounds(), ['0.gif.wav', 'moved.gif.wav'])
        self.assertEqual((self.folder / 'out' / 'moved.gif.wav').read_bytes(), before['1.gif.wav'])


if __name__ == '__main__':
    unittest.main()

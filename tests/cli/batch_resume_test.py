"""Tests runs that continue an interrupted prompt set or video: which videos they make, and which files they leave unchanged."""
import hashlib
import json
import os
import signal
import struct
import subprocess
import unittest
from pathlib import Path

from batch_support import BatchTest
from support import FAMILY, MODEL, PROGRAM, PROMPT, kept_off, limited, read_safetensors, wait_until, write_checkpoint


class Resuming(BatchTest):
    def test_second_run_renders_rows_that_are_left_or_changed(self):
        file = self.prompts(3)
        self.succeed(self.batch(file, 'out', '--steps', '2'))
        first = self.videos()
        self.assertEqual(self.set_report(file, 'out', '--steps', '2')['skipped'], 3)
        name = sorted(first)[1]
        (self.folder / 'out' / name).write_bytes(b'overwritten by somebody')
        report = self.set_report(file, 'out', '--steps', '2')
        self.assertEqual((report['rendered'], report['skipped']), (1, 2))
        self.assertEqual(self.videos(), first)
        rows = file.read_text().splitlines()
        file.write_text('\n'.join([rows[0], rows[1], rows[2].replace('1234', '4321')]) + '\n')
        report = self.set_report(file, 'out', '--steps', '2')
        self.assertEqual((report['rendered'], report['skipped']), (1, 2))
        self.check_consistent(3)

    def test_changed_encoding_renders_a_row_again(self):
        file = self.prompts(1)
        self.succeed(self.batch(file, 'out', '--steps', '2'))
        self.assertEqual(self.set_report(file, 'out', '--steps', '2', '--crf', '30')['rendered'], 1)

    def test_missing_extra_file_renders_a_row_again(self):
        self.succeed(self.batch(self.write('set.jsonl', '{"prompt": "a"}\n'), 'out', '--steps', '2'))
        video = self.videos()
        file = self.write('set.jsonl', '{"prompt": "a", "contact_sheet": "sheet.png", "save_latents": "a.safetensors"}\n')
        for missing in ('sheet.png', 'a.safetensors'):
            self.assertEqual(self.set_report(file, 'out', '--steps', '2')['rendered'], 1, missing)
            self.assertEqual(self.set_report(file, 'out', '--steps', '2')['skipped'], 1)
            (self.folder / 'out' / missing).unlink()
        self.assertEqual(self.set_report(file, 'out', '--steps', '2')['rendered'], 1)
        self.assertEqual(video.items() - self.videos().items(), set())

    def status(self):
        report = json.loads(self.succeed(self.run_program('batch', '--status', 'out', '--json')).stdout)['set']
        return report['rows'], report['done'], report['failed'], report['missing']

    def test_status_describes_the_current_set(self):
        good, bad = '{"prompt": "a", "output": "a.mp4"}\n', '{"prompt": "a", "output": "a.mp4", "width": 100}\n'
        other, new = '{"prompt": "b", "output": "b.mp4", "seed": 7}\n', '{"prompt": "c", "output": "c.mp4"}\n'
        good, bad = (row.replace('}', ', "seed": 5}') for row in (good, bad))
        for text, rendered, skipped, status in ((good + other, 2, 0, (2, 2, 0, 0)),
                                                (bad + other, 0, 1, (2, 1, 1, 0)),
                                                (good + other, 0, 2, (2, 2, 0, 0)),  # the first row as before
                                                (new + good + other, 1, 2, (3, 3, 0, 0)),  # a new first row
                                                (good + other, 0, 2, (2, 2, 0, 0)),
                                                (good, 0, 1, (1, 1, 0, 0))):  # without the last row
            result = self.batch(self.write('set.jsonl', text), 'out', '--steps', '2', '--json')
            report = json.loads(result.stdout)['set']
            self.assertEqual((report['rendered'], report['skipped']), (rendered, skipped), text)
            self.assertEqual(self.status(), status, text)

    def test_finished_rows_stay_finished_in_a_read_only_folder(self):
        file = self.prompts(2)
        self.succeed(self.batch(file, 'out', '--steps', 2))
        manifest, videos = self.manifest(), self.videos()
        (self.folder / 'out').chmod(0o500)
        self.addCleanup((self.folder / 'out').chmod, 0o700)
        result = self.batch(file, 'out', '--steps', 2, '--json', **kept_off())
        self.succeed(result)
        self.assertEqual(json.loads(result.stdout)['set']['skipped'], 2)
        more = self.write('more.jsonl', file.read_text() + '{"prompt": "b"}\n{"prompt": "c"}\n')
        self.fail_with(self.batch(more, 'out', '--steps', 2, **kept_off()), 2, 'no video can be written into out: ', 'a folder that you may write to')
        self.assertEqual((self.manifest(), self.videos()), (manifest, videos))

    def lines(self, *lines, options=('--steps', 2)):
        """Runs a .txt prompt set with these prompts. Returns the report, and (name, seed) of the video of each row."""
        report = self.set_report(self.write('set.txt', ''.join(f'{line}\n' for line in lines)), 'out', *options)
        last = {line['row']: line for line in self.manifest()}
        for row, prompt in enumerate(lines):
            self.assertEqual((last[row]['state'], last[row]['recipe']['prompt']), ('done', prompt))
            self.assertEqual(hashlib.sha256((self.folder / 'out' / last[row]['output']).read_bytes()).hexdigest(), last[row]['sha256'])
        return report, [(last[row]['output'], last[row]['seed']) for row in range(len(lines))]

    def test_videos_are_renamed_when_their_lines_move(self):
        _, first = self.lines('a', 'b', 'c')
        self.assertEqual(first, [('0000-a.mp4', 42), ('0001-b.mp4', 43), ('0002-c.mp4', 44)])
        for lines, rendered, moved, videos in (
                (('new', 'a', 'b', 'c'), 1, 3, [('0000-new.mp4', 42), ('0001-a.mp4', 42), ('0002-b.mp4', 43), ('0003-c.mp4', 44)]),  # a new first line
                (('new', 'a', 'b', 'c'), 0, 0, [('0000-new.mp4', 42), ('0001-a.mp4', 42), ('0002-b.mp4', 43), ('0003-c.mp4', 44)]),
                (('a', 'b', 'c'), 0, 3, first),  # the new line is removed again
                (('b', 'c', 'a'), 0, 3, [('0000-b.mp4', 43), ('0001-c.mp4', 44), ('0002-a.mp4', 42)])):  # the lines in another order
            report, now = self.lines(*lines)
            self.assertEqual((report['rendered'], report['moved'], now), (rendered, moved, videos), lines)
            old = set(self.videos()) - {name for name, _ in now}
            self.assertEqual(report['left_over'], sorted(old))
        self.assertEqual(old, {'0000-new.mp4'})
        self.assertIn(', files that belong to no row any more: 0000-new.mp4', self.succeed(self.batch('set.txt', 'out', '--steps', 2)).stdout)
        self.assertEqual(self.lines('b', 'c', 'a', options=('--steps', 2, '--seed', 142))[0]['rendered'], 3)  # --seed asks for other videos, so all are rendered

    def test_videos_swap_names_when_their_lines_swap(self):
        """File names consist of the row's number and the beginning of its prompt. These prompts begin alike, so the names differ only in their numbers."""
        usual = ('--steps', 2, '--format', 'y4m')
        new, one, two, three = (f'{PROMPT} {word}' for word in ('again', 'circle', 'square', 'star'))
        self.lines(one, two, three, options=usual)
        made = {line['recipe']['prompt']: line['sha256'] for line in self.manifest()}
        self.assertEqual(len(set(made.values())), 3)
        report, _ = self.lines(new, one, two, three, options=usual)
        self.assertEqual((report['rendered'], report['moved'], report['left_over']), (1, 3, []))
        report, now = self.lines(one, two, three, options=usual)
        self.assertEqual((report['rendered'], report['moved'], report['left_over']), (0, 3, []))
        self.assertEqual({line['recipe']['prompt']: line['sha256'] for line in self.manifest()[-3:]}, made)
        for (name, seed), prompt in zip(now, (one, two, three)):
            recipe = json.loads((self.folder / 'out' / f'{name}.json').read_text())
            self.assertEqual((recipe['seed'], recipe['prompt']), (seed, prompt))
        report, _ = self.lines(two, one, three, options=usual)  # the first two lines change places
        self.assertEqual((report['rendered'], report['skipped']), (2, 1))

    def test_moved_video_does_not_replace_files_that_a_rendered_one_would_keep(self):
        usual = ('--steps', 2, '--format', 'y4m')
        self.lines('a', 'b', options=usual)
        file = self.write('set.txt', 'new\na\nb\n')
        for name, mode, cause in (('0002-b.y4m', 0o444, 'read-only'), ('0002-b.y4m.json', 0o644, 'holds something else')):
            theirs = self.write(f'out/{name}', "somebody else's")
            theirs.chmod(mode)
            result = self.batch(file, 'out', *usual)
            self.assertEqual(result.returncode, 1, result.stderr)
            for words in ('1 row failed', cause, name):
                self.assertIn(words, result.stderr)
            self.assertEqual(theirs.read_text(), "somebody else's")
            self.assertLessEqual({'0000-new.y4m', '0001-a.y4m', '0001-b.y4m', '0001-b.y4m.json'}, set(self.videos()))
            theirs.unlink()
        report, _ = self.lines('new', 'a', 'b', options=usual)
        self.assertEqual((report['rendered'], report['moved'], report['left_over']), (0, 1, []))
        self.assertNotIn('0001-b.y4m.json', self.videos())

    def test_moved_video_keeps_its_recipe_if_the_run_was_killed_between(self):
        usual = ('--steps', 2, '--format', 'y4m')
        self.lines('a', 'b', options=usual)
        out = self.folder / 'out'
        for recipe in ((out / '0000-a.y4m.json').read_text(), None):  # first a recipe of another video is at the new name; then b's recipe, as if a run had ended after it moved the recipe and before it moved the video
            (out / '0002-b.y4m.json').write_text(recipe or (out / '0001-b.y4m.json').read_text())
            (out / '0001-b.y4m.json').unlink()
            self.lines('new', 'a', 'b', options=usual)
            self.assertEqual(json.loads((out / '0002-b.y4m.json').read_text())['prompt'], 'b')
            self.lines('a', 'b', options=usual)

    def test_run_killed_before_a_video_was_renamed_loses_nothing(self):
        self.lines('a', 'b')
        line = self.manifest()[0] | {'row': 1, 'rows': 3, 'output': '0001-a.mp4', 'seed_offset': 0}
        with (self.folder / 'out' / 'manifest.0.jsonl').open('a') as manifest:
            manifest.write(json.dumps(line) + '\n')
        report, videos = self.lines('new', 'a', 'b')
        self.assertEqual((report['rendered'], report['moved'], report['left_over']), (1, 2, []))
        self.assertEqual([seed for _, seed in videos], [42, 42, 43])

    def test_equal_rows_with_different_seeds_are_moved(self):
        rows = ['{"prompt": "a", "seed": 7}\n', '{"prompt": "a", "seed": 8}\n']
        self.succeed(self.batch(self.write('set.jsonl', ''.join(rows)), 'out', '--steps', 2))
        report = self.set_report(self.write('set.jsonl', '{"prompt": "a", "seed": 9}\n' + ''.join(rows)), 'out', '--steps', 2)
        self.assertEqual((report['rendered'], report['skipped'], report['moved']), (1, 2, 2))
        self.check_consistent(3)

    def test_videos_are_moved_under_any_path_of_the_set(self):
        self.lines('a', 'b')
        self.write('set.txt', 'one\na\nb\n')
        report = self.set_report('./set.txt', 'out', '--steps', 2)
        self.assertEqual((report['rendered'], report['moved']), (1, 2))
        (self.folder / 'elsewhere').mkdir()
        (self.folder / 'out').rename(self.folder / 'elsewhere' / 'out')
        report = self.set_report(self.write('elsewhere/set.txt', 'two\none\na\nb\n'), 'elsewhere/out', '--steps', 2)
        self.assertEqual((report['rendered'], report['moved']), (1, 3))

    def test_reports_checkpoints_of_rows_that_no_longer_exist(self):
        self.lines('a', 'b')
        for name in ('0002-c.mp4', '0003-c.mp4'):
            write_checkpoint(self.folder / 'out' / f'{name}.checkpoint.safetensors')
        self.write('out/0002-d.mp4.checkpoint.safetensors', 'no checkpoint')
        report, _ = self.lines('new', 'a', 'b', 'c')
        self.assertEqual(report['left_over'], ['0002-c.mp4.checkpoint.safetensors'])

    def test_does_not_move_videos_of_another_set(self):
        self.succeed(self.batch(self.write('one.txt', 'a\nb\n'), 'out', '--steps', 2))
        report = self.set_report(self.write('two.txt', 'c\na\nb\n'), 'out', '--steps', 2)
        self.assertEqual((report['rendered'], report['left_over']), (3, ['0000-a.mp4', '0001-b.mp4']))

    def test_share_never_moves_videos(self):
        self.lines('a', 'b')
        self.lines('new', 'a', 'b')
        share = ('--steps', 2, '--share', '0/2')
        self.assertEqual(self.set_report(self.folder / 'set.txt', 'out', *share)['skipped'], 2)
        report = self.set_report(self.write('set.txt', 'first\nnew\na\nb\n'), 'out', *share)
        self.assertEqual((report['rendered'], report['moved']), (2, 0))  # no video is moved, because a row that another process makes may need it

    def test_incomplete_manifest_line_is_ignored(self):
        file = self.prompts(2)
        self.succeed(self.batch(file, 'out', '--steps', '2'))
        manifest = self.folder / 'out' / 'manifest.0.jsonl'
        manifest.write_text(manifest.read_text()[:-30])
        self.assertEqual(self.set_report(file, 'out', '--steps', '2')['rendered'], 1)
        self.check_consistent(2)

    def test_refuses_a_manifest_that_is_read_only_or_a_pipe(self):
        (self.folder / 'set.txt').write_text('a red ball\n')
        manifest = self.folder / 'out' / 'manifest.0.jsonl'
        manifest.parent.mkdir()
        manifest.touch(0o444)
        arguments = ['batch', 'set.txt', '-o', 'out', '-m', MODEL, '--device', 'cpu', '--steps', 1]
        self.fail_with(self.run_program(*arguments), 2, 'manifest.0.jsonl', 'read-only')
        manifest.unlink()
        os.mkfifo(manifest)
        self.fail_with(self.run_program(*arguments, timeout=20), 2, 'manifest.0.jsonl', 'a device or a pipe')

    def test_two_processes_cannot_write_one_manifest(self):
        file = self.prompts(2)
        process = subprocess.Popen([PROGRAM, *map(str, self.arguments(file, 'out', '--steps', '1000'))], cwd=self.folder)
        try:
            manifest = self.folder / 'out' / 'manifest.0.jsonl'
            wait_until(lambda: manifest.exists() and f':{manifest.stat().st_ino} ' in Path('/proc/locks').read_text())
            self.fail_with(self.batch(file, 'out', '--steps', '2'), 2, 'manifest.0.jsonl', 'another process')
        finally:
            process.kill()
            process.wait()

    def test_interrupted_set_keeps_its_videos_and_resumes(self):
        file = self.prompts(3)
        process = subprocess.Popen([PROGRAM, *map(str, self.arguments(file, 'out', '--steps', '60'))], cwd=self.folder, stderr=subprocess.PIPE, text=True)
        wait_until(lambda: list((self.folder / 'out').glob('[!.]*.mp4')))  # hidden files do not count: the program writes one before the first step to test the folder
        process.send_signal(signal.SIGINT)
        _, text = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130, text)
        self.assertIn('goes on where this run stopped', text)
        finished = len(self.manifest())
        self.assertEqual(len(list((self.folder / 'out').glob('*.mp4'))), finished)
        kept = len(list((self.folder / 'out').glob('*.checkpoint.safetensors')))  # 1, or 0 if the interrupted video had made no step
        report = self.set_report(file, 'out', '--steps', '60')
        self.assertEqual(len([line for line in self.manifest() if line.get('resumed_at_step', 0) > 0]), kept)
        self.assertEqual((report['skipped'], report['rendered']), (finished, 3 - finished))
        self.check_consistent(3)

    def test_video_that_cannot_be_written_does_not_affect_the_others(self):
        file = self.prompts(2)
        self.succeed(self.batch(file, 'out', '--steps', '2'))
        first = self.videos()
        longer = self.write('longer.jsonl', file.read_text() + '{"prompt": "more"}\n{"prompt": "less", "frames": 1, "size": "32x32", "crf": 51}\n')
        result = self.batch(longer, 'out', '--steps', '2', **limited(8000))
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertIn('could not be written', result.stderr)
        self.assertIn('1 rendered, 2 finished before, 1 failed', result.stderr)
        for name, digest in first.items():
            self.assertEqual(self.videos()[name], digest)
        self.succeed(self.batch(longer, 'out', '--steps', '2'))
        self.check_consistent(4)


class Checkpoints(BatchTest):
    """Tests that a killed `generate` resumes from its last checkpoint and makes the same bits."""

    def test_killed_run_resumes_to_the_same_video(self):
        for scheduler, cache in [(scheduler, 'forecast:0.5') for scheduler in FAMILY.samplers] + [(FAMILY.samplers[0], 'measured:0.5')]:
            options = ['--scheduler', scheduler, '--steps', '300', '--threads', '1', '--cache', cache]
            self.succeed(self.generate(*options, '-o', 'whole.mp4'))
            self.run_to_step(10, '--checkpoint-every', '5', *options)
            report = self.report(*options, '--checkpoint-every', '5', '-o', 'clip.mp4')
            self.assertGreaterEqual(report['resumed_at_step'], 10)
            self.assertEqual((self.folder / 'clip.mp4').read_bytes(), (self.folder / 'whole.mp4').read_bytes(), scheduler)
            self.assertEqual(self.names(), ['clip.mp4', 'whole.mp4'])
            (self.folder / 'clip.mp4').unlink()

    def test_run_killed_while_decoding_makes_the_same_video(self):
        options = ['--steps', '3', '--frames', '49', '--topk', '0.3', '--threads', '1']
        self.succeed(self.generate(*options, '-o', 'whole.mp4'))
        self.run_to_step(3, '--checkpoint-every', '1', *options)
        whole, report = self.report(*options, '-o', 'again.mp4'), self.report(*options, '--checkpoint-every', '1', '-o', 'clip.mp4')
        self.assertEqual(report['resumed_at_step'], 3)
        self.assertEqual((self.folder / 'clip.mp4').read_bytes(), (self.folder / 'whole.mp4').read_bytes())
        for field in ('kernel', 'sparsity', 'calls'):
            self.assertEqual(report['attention'][field], whole['attention'][field], field)

    def test_checkpoint_of_another_run_is_not_used(self):
        self.run_to_step(2, '--checkpoint-every', '2', '--steps', '150')
        checkpoint = self.folder / 'clip.mp4.checkpoint.safetensors'
        before = checkpoint.read_bytes()
        result = self.succeed(self.generate('--steps', '3', '--checkpoint-every', '2', '-o', 'clip.mp4'))
        self.assertIn('other settings', result.stderr)
        self.assertIn("this run's checkpoint is clip.mp4.checkpoint-2.safetensors", result.stderr)
        self.assertEqual(self.names(), ['clip.mp4', checkpoint.name])
        self.assertEqual(checkpoint.read_bytes(), before)
        self.assertGreaterEqual(self.report('--steps', '150', '--checkpoint-every', '2', '-o', 'clip.mp4')['resumed_at_step'], 2)
        self.assertEqual(self.names(), ['clip.mp4'])
        (self.folder / 'clip.mp4.checkpoint-2.safetensors').write_bytes(before)  # only this second checkpoint exists now; the first one was removed with the finished video
        self.succeed(self.generate('--steps', '3', '--checkpoint-every', '2', '-o', 'clip.mp4'))
        self.assertGreaterEqual(self.report('--steps', '150', '--checkpoint-every', '2', '-o', 'clip.mp4')['resumed_at_step'], 2)
        self.assertEqual(self.names(), ['clip.mp4'])

    def test_keeps_files_that_are_not_checkpoints(self):
        """Tests files that have the name of a video's checkpoint: a text, and the video of another run."""
        checkpoint = self.folder / 'clip.mp4.checkpoint.safetensors'
        (self.folder / 'out').mkdir()
        theirs = self.folder / 'out' / '0000-a.mp4.checkpoint.safetensors'
        for make in (lambda: checkpoint.write_text("somebody else's"), lambda: self.succeed(self.generate('--frames', '1', '-o', checkpoint.name))):
            make()
            theirs.write_bytes(checkpoint.read_bytes())
            before = checkpoint.read_bytes()
            result = self.succeed(self.generate('--frames', '1', '--checkpoint-every', '1', '-o', 'clip.mp4'))
            self.assertIn('clip.mp4.checkpoint.safetensors is not used', result.stderr)
            for _ in range(2):  # the first run renders the video, the second one finds it finished
                self.succeed(self.batch(self.write('set.txt', 'a\n'), 'out', '--checkpoint-every', '1', '--frames', '1', '--steps', '2'))
            self.assertEqual((checkpoint.read_bytes(), theirs.read_bytes()), (before, before))
            self.assertEqual(self.names(), ['clip.mp4', checkpoint.name, 'out', 'set.txt'])
            (self.folder / 'out' / '0000-a.mp4').unlink()

    def test_damaged_checkpoints_do_not_stop_the_run(self):
        options = ['--scheduler', FAMILY.samplers[-1], '--steps', '60', '--threads', '1']
        self.succeed(self.generate(*options, '-o', 'whole.mp4'))
        self.run_to_step(10, '--checkpoint-every', '5', *options)
        checkpoint = self.folder / 'clip.mp4.checkpoint.safetensors'
        sound = checkpoint.read_bytes()
        size, = struct.unpack('<Q', sound[:8])
        header = json.loads(sound[8:8 + size])
        begin = header['latents']['data_offsets'][0] + 8 + size
        fewer = json.dumps({name: value for name, value in header.items() if not name.startswith('scheduler.')}).encode()
        for damaged in (sound[:begin] + b'\xff\xff\xff\xff' + sound[begin + 4:], sound[:-1], b'',
                        sound[:8] + sound[8:8 + size].replace(b'"F32"', b'"I32"') + sound[8 + size:],
                        struct.pack('<Q', len(fewer)) + fewer + sound[8 + size:]):
            checkpoint.write_bytes(damaged)
            result = self.succeed(self.generate(*options, '--checkpoint-every', '5', '-o', 'clip.mp4', '--report', 'r.json'))
            self.assertIn('clip.mp4.checkpoint.safetensors is not used: ', result.stderr)
            self.assertNotIn('resumed_at_step', (self.folder / 'r.json').read_text())
            self.assertEqual((self.folder / 'clip.mp4').read_bytes(), (self.folder / 'whole.mp4').read_bytes())

    def test_checkpoint_that_cannot_be_written_is_a_warning(self):
        options = ['--checkpoint-every', '1', '--steps', '3', '--size', '16x16', '--frames', '1', '--crf', '51']
        smaller = limited(5000)  # a file size in bytes that this small video does not reach, but its checkpoint does: the checkpoint holds the state of the noise generator
        for result in (self.generate(*options, '-o', 'clip.mp4', **smaller), self.batch(self.write('set.txt', 'a\n'), 'out', *options, **smaller)):
            self.succeed(result)
            self.assertEqual(result.stderr.count('the denoising checkpoint is not saved: '), 1, result.stderr)

    def test_checkpoint_without_the_tensors_of_its_cache_is_not_used(self):
        """Tests a checkpoint of the format of an older version, in which --cache forecast stored other tensors."""
        options = ['--steps', '300', '--threads', '1', '--cache', 'forecast:0.01']
        self.succeed(self.generate(*options, '-o', 'whole.mp4'))
        self.run_to_step(10, '--checkpoint-every', '5', *options)
        checkpoint = self.folder / 'clip.mp4.checkpoint.safetensors'
        data = checkpoint.read_bytes()
        self.assertEqual(data.count(b'"cache.first.before"'), 1)
        checkpoint.write_bytes(data.replace(b'"cache.first.before"', b'"cache.first.change"'))
        result = self.succeed(self.generate(*options, '--checkpoint-every', '5', '-o', 'clip.mp4', '--report', 'r.json'))
        self.assertIn(f'{checkpoint.name} is not used: it is damaged', result.stderr)
        self.assertNotIn('resumed_at_step', (self.folder / 'r.json').read_text())
        self.assertEqual((self.folder / 'clip.mp4').read_bytes(), (self.folder / 'whole.mp4').read_bytes())

    def test_damaged_checkpoint_is_not_used(self):
        (self.folder / 'clip.mp4.checkpoint.safetensors').write_bytes(b'\x08\0\0\0\0\0\0\0{"a": 1}')
        result = self.succeed(self.generate('--checkpoint-every', '2', '-o', 'clip.mp4'))
        self.assertIn('clip.mp4.checkpoint.safetensors is not used', result.stderr)


if __name__ == '__main__':
    unittest.main()

"""Tests Ctrl-C and SIGTERM: exit code 130, no half-written file, and a line on how to resume. Also tests the progress bar on a terminal."""
import fcntl
import re
import signal
import struct
import subprocess
import termios
import unittest

from support import FAMILY, MODEL, PROMPT, CommandLineTest, limited, wait_until


class Interrupt(CommandLineTest):
    def start(self, *arguments, steps=1000, **options):
        return self.start_program('generate', '-m', MODEL, '-p', PROMPT, '--steps', steps, *arguments, **options)

    def stop(self, process, terminal, number):
        process.send_signal(number)
        text = self.read_until(terminal, None)
        return process.wait(timeout=60), text

    CHECKPOINT = 'clip.mp4.checkpoint.safetensors'

    def step_kept(self, text, options=''):
        """Returns the step at which the same command would resume, from the last line that an interrupted run printed."""
        self.assertIn('interrupted: nothing half-written is left behind', text)
        line = rf'run the same command again{options}: it goes on from step (\d+) in (\S+)'
        self.assertRegex(text, line)
        step, checkpoint = re.search(line, text).groups()
        self.assertIn(checkpoint, self.names())
        return int(step)

    def test_same_command_resumes_after_the_finished_steps(self):
        given = ('--cache', 'forecast:0.5', '--threads', '1', '--size', '128x128')
        self.succeed(self.generate('-o', 'whole.mp4', '--steps', 60, *given))
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            process, terminal = self.start('-o', 'clip.mp4', '--device', 'cpu', *FAMILY.size[2:], *given, steps=60)
            self.assertIn('s/it', self.read_until(terminal, 's/it'))
            code, text = self.stop(process, terminal, number)
            self.assertEqual(code, 130)
            step = self.step_kept(text)
            self.assertEqual(self.names(), [self.CHECKPOINT, 'whole.mp4'])
            report = self.report('-o', 'clip.mp4', '--steps', 60, *given)
            self.assertEqual(report['resumed_at_step'], step)
            self.assertEqual(self.names(), ['clip.mp4', 'whole.mp4'])
            self.assertEqual(*((self.folder / name).read_bytes() for name in self.names()))
            (self.folder / 'clip.mp4').unlink()

    def test_resumed_run_can_be_interrupted_again(self):
        for name in ('first', 'second'):
            process, terminal = self.start('-o', 'clip.mp4', '--size', '128x128')
            self.assertIn('s/it', self.read_until(terminal, 's/it'))
            code, text = self.stop(process, terminal, signal.SIGINT)
            self.assertEqual((code, self.names()), (130, [self.CHECKPOINT]), name)
            steps = [self.step_kept(text)] if name == 'first' else [*steps, self.step_kept(text)]
        self.assertLess(*steps)
        self.warn_with(self.generate('-o', 'clip.mp4', '--quiet'),
                       f'{self.CHECKPOINT} is not used: it belongs to a run with other settings; this run\'s checkpoint is clip.mp4.checkpoint-2.safetensors')
        self.assertEqual(self.names(), ['clip.mp4', self.CHECKPOINT])

    def test_names_options_without_which_the_command_would_not_resume(self):
        for given, options in (((), ' with -o video.mp4'), (('--seed', 'random'), r' with -o video.mp4 --seed \d+'), (('--seed', 'random', '-o', 'a.mp4'), r' with --seed \d+')):
            process, terminal = self.start(*given, '--size', '128x128')
            self.assertIn('s/it', self.read_until(terminal, 's/it'))
            code, text = self.stop(process, terminal, signal.SIGINT)
            self.assertEqual(code, 130)
            self.step_kept(' '.join(text.split()), options)
            for name in self.names():
                (self.folder / name).unlink()

    def test_warns_if_steps_cannot_be_kept(self):
        process, terminal = self.start('-o', 'clip.mp4', '--size', '128x128', **limited(5000))
        self.assertIn('s/it', self.read_until(terminal, 's/it'))
        code, text = self.stop(process, terminal, signal.SIGINT)
        self.assertEqual(code, 130)
        self.assertIn('warning: the denoising checkpoint is not saved: ', text)
        self.assertIn('the same seed gives the same video', text)
        self.assertEqual(self.names(), [])

    def test_signal_ends_a_step_in_the_middle(self):
        # The only step of such a large video takes many seconds, so Ctrl-C comes before its end. If it came later, the run would keep the latents.
        process, terminal = self.start('-o', 'clip.mp4', '--size', '768x768', '--frames', '49', steps=1)
        self.assertIn('denoise', self.read_until(terminal, 'denoise'))
        code, text = self.stop(process, terminal, signal.SIGINT)
        self.assertEqual(code, 130)
        self.assertIn('interrupted: no step was done, so there is nothing to keep', text)
        self.assertEqual(self.names(), [])

    def test_signal_while_decoding_keeps_the_latents_and_says_how_to_continue(self):
        process, terminal = self.start('-o', 'clip.safetensors', '--size', '256x256', '--frames', '49', steps=1)
        self.assertIn('decode', self.read_until(terminal, 'decode'))
        code, text = self.stop(process, terminal, signal.SIGINT)
        self.assertEqual(code, 130)
        self.assertIn('sparsereel decode clip.safetensors.latents.safetensors -o clip.safetensors', text)
        self.assertEqual(self.names(), ['clip.safetensors.latents.safetensors'])

    def killed_while_writing(self, *arguments):
        """Starts a run and kills it while it writes the video. Returns false if the run had already written the whole video, which happens on busy machines."""
        process, _ = self.start(*arguments, steps=1)
        try:
            if not wait_until(lambda: any(file.stat().st_size for file in self.folder.glob('.clip.*.partial.y4m')), process):
                self.assertEqual(process.returncode, 0)
                return False
        except FileNotFoundError:  # the program has renamed the complete file
            self.assertEqual(process.wait(timeout=60), 0)
            return False
        process.kill()
        process.wait(timeout=60)
        return not (self.folder / 'clip.y4m').exists()

    def test_run_killed_while_it_writes_frames_leaves_no_video_and_the_next_run_makes_it(self):
        arguments = ('-o', 'clip.y4m', '--size', '256x256', '--frames', '49')
        for _ in range(10):
            if self.killed_while_writing(*arguments):
                break
            for name in self.names():
                (self.folder / name).unlink()
        else:
            self.fail('was never caught writing')
        self.assertEqual([name for name in self.names() if not name.startswith('.')], ['clip.y4m.latents.safetensors'])
        for name in ('clip.y4m', 'whole.y4m'):
            self.succeed(self.generate(*arguments, '-o', name, '--steps', 1))
        self.assertEqual(self.names(), ['clip.y4m', 'clip.y4m.json', 'whole.y4m', 'whole.y4m.json'])
        self.assertEqual(*((self.folder / name).read_bytes() for name in ('clip.y4m', 'whole.y4m')))

    def test_first_signal_ends_a_run_that_waits_for_its_input(self):
        process, terminal = self.start_program('generate', '-m', MODEL, '--prompt-file', '-', '-o', 'clip.mp4', stdin=subprocess.PIPE)
        self.addCleanup(process.stdin.close)
        process.stdin.write(b'a red')
        process.stdin.flush()
        wait_until(lambda: self.unread(process.stdin) == 0)  # the pipe is empty, so the program has begun to read the prompt
        code, text = self.stop(process, terminal, signal.SIGINT)
        self.assertEqual(code, 130)
        self.assertIn('interrupted: no step was done', text)
        self.assertEqual(self.names(), [])

    @staticmethod
    def unread(pipe):
        count, = struct.unpack('i', fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)))
        return count

    def test_second_signal_stops_at_once(self):
        # After a first signal the program stops between two attention calls. Each call takes long for such a large video.
        process, terminal = self.start('-o', 'clip.mp4', '--size', '1024x1024', '--frames', '49', '--attention', 'quantized', '--threads', 1, steps=1)
        self.assertIn('denoise', self.read_until(terminal, 'denoise'))
        process.send_signal(signal.SIGINT)
        self.assertIn('press Ctrl-C again', self.read_until(terminal, 'press Ctrl-C again'))
        code, text = self.stop(process, terminal, signal.SIGINT)
        self.assertEqual(code, 130)
        self.assertNotIn('interrupted', text)  # a run that stops after one signal prints this word; a second signal ends the program before it prints anything
        self.assertEqual(self.names(), [])

    def test_ignored_hangup_stays_ignored(self):
        process, terminal = self.start('-o', 'clip.safetensors', steps=20, preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
        self.assertIn('s/it', self.read_until(terminal, 's/it'))
        self.assertEqual(self.stop(process, terminal, signal.SIGHUP)[0], 0)

    def test_run_continues_if_the_reader_of_its_output_ends(self):
        process, terminal = self.start('-o', 'clip.safetensors', '--json', steps=2)
        process.stdout.close()
        self.read_until(terminal, None)
        self.assertEqual(process.wait(timeout=60), 0)
        self.assertEqual(self.names(), ['clip.safetensors'])

    def test_interrupted_run_has_a_report(self):
        process, terminal = self.start('-o', 'clip.mp4', '--report', 'report.json')
        self.read_until(terminal, 's/it')
        self.stop(process, terminal, signal.SIGINT)
        self.assertEqual(self.names(), [self.CHECKPOINT, 'report.json'])
        self.assertIn('"interrupted"', (self.folder / 'report.json').read_text())

    def test_bar_shows_stage_step_and_time_left(self):
        process, terminal = self.start('-o', 'clip.mp4')
        text = self.read_until(terminal, 'ETA')
        for word in ('denoise', '/1000', 's/it', 'ETA'):
            self.assertIn(word, text)
        self.stop(process, terminal, signal.SIGINT)

    def test_quiet_shows_no_bar(self):
        process, terminal = self.start('-o', 'clip.mp4', '--quiet', steps=5)
        self.assertEqual(self.read_until(terminal, None), '')
        self.assertEqual(process.wait(timeout=60), 0)


if __name__ == '__main__':
    unittest.main()

"""Tests `--cache`: which steps it skips, and which results it leaves unchanged."""
import json
import unittest

from batch_support import BatchTest
from support import PROMPT, ROOT


class Cache(BatchTest):
    def video(self, name):
        return (self.folder / name).read_bytes()

    def test_report_and_recipe_name_the_reused_steps(self):
        for rule, said in (('forecast:5', 'forecast:5'), ('5', 'first-block:5'), ('first-block:5', 'first-block:5'), ('measured:5', 'measured:5')):
            report = self.report('-o', 'a.gif', '--steps', 6, '--cache', rule)
            reused = report['cache']['reused_steps']
            self.assertEqual((report['recipe']['cache'], report['cache']['rule'], report['cache']['computed_steps']), (said, said, 6 - len(reused)))
            self.assertTrue(reused)
            self.assertNotIn(0, reused)
            again = self.report('--from', 'a.gif', '-o', 'b.gif', '--steps', 6)
            self.assertEqual((again['recipe'], self.video('b.gif')), (report['recipe'], self.video('a.gif')))

    def test_first_and_last_steps_are_always_computed(self):
        for rule, reused in (('forecast:1e30:0:2', [1, 2, 3]), ('forecast:1e30:40%:1', [3, 4])):
            report = self.report('-o', 'a.gif', '--steps', 6, '--cache', rule)
            self.assertEqual((report['recipe']['cache'], report['cache']['reused_steps']), (report['cache']['rule'], reused))
            again = self.report('--from', 'a.gif', '-o', 'b.gif', '--steps', 6)
            self.assertEqual((again['recipe'], self.video('b.gif')), (report['recipe'], self.video('a.gif')))

    def test_given_number_of_steps_is_computed_with_all_weights(self):
        for steps, computed, reused in ((6, 3, [1, 2, 4]), (6, 1, [1, 2, 3, 4, 5]), (5, 4, [2])):
            report = self.report('-o', 'a.gif', '--steps', steps, '--cache', f'steps:{computed}')
            self.assertEqual(report['cache'], {'rule': f'steps:{computed}', 'computed_steps': computed, 'reused_steps': reused})
        again = self.report('--from', 'a.gif', '-o', 'b.gif', '--steps', 5)
        self.assertEqual((again['cache'], self.video('b.gif')), (report['cache'], self.video('a.gif')))
        result = self.generate('--quiet', '--steps', 3, '--cache', 'steps:3', '-o', 'c.gif')
        self.warn_with(result, '--cache steps:3 has no effect with 3 steps, all of which it computes')
        result = self.generate('--quiet', '--steps', 2, '--cache', 'measured:5', '-o', 'd.gif')
        self.warn_with(result, '--cache measured:5 has no effect with 2 steps, all of which it computes')

    def test_zero_means_no_cache(self):
        none = self.report('-o', 'a.gif', '--steps', 3)
        zero = self.report('-o', 'b.gif', '--steps', 3, '--cache', 0)
        self.assertEqual((zero['recipe'], self.video('b.gif')), (none['recipe'], self.video('a.gif')))
        self.assertNotIn('cache', zero)
        self.assertNotIn('has no effect', self.succeed(self.generate('--steps', 1, '--cache', 0, '-o', 'a.gif')).stderr)
        tiny = ['-m', ROOT / 'assets' / 'tiny', '-p', PROMPT, '--device', 'cpu', '--size', '64x64', '--frames', 9, '--steps', 1]
        self.assertNotIn('has no effect', self.succeed(self.run_program('generate', *tiny, '--preset', 'near', '-o', 'a.gif')).stderr)

    def test_batch_makes_the_same_video_as_generate(self):
        for passes, cache in (('batched', 'forecast:5'), ('in-turn', 'steps:3')):
            options = ['--steps', 6, '--cache', cache, '--guidance-passes', passes]
            said = self.succeed(self.generate('--seed', 7, '--threads', 1, *options, '--verbose', '-o', 'one.mp4'))
            self.assertRegex(said.stdout, 'sparsity .*, [1-5] of 6 steps computed, peak')
            file = self.write('set.jsonl', json.dumps({'prompt': 'a dog', 'seed': 3}) + '\n' + json.dumps({'prompt': PROMPT, 'seed': 7, 'output': f'{passes}.mp4'}) + '\n')
            self.succeed(self.batch(file, f'out-{passes}', *options))
            self.assertEqual(self.video(f'out-{passes}/{passes}.mp4'), self.video('one.mp4'))


if __name__ == '__main__':
    unittest.main()

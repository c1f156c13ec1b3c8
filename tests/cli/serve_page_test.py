"""Tests the web page of `sparsereel serve`: its source and, if Chromium and chromedriver are installed, its behavior in a browser."""
import html.parser
import json
import re
import shutil
import subprocess
import unittest
import urllib.request

from support import ROOT, CommandLineTest, wait_until

try:
    from serve_support import Server
except ImportError:
    Server = None

PAGE = ROOT / 'app' / 'serve' / 'page.html'
BROWSER = shutil.which('chromium') or shutil.which('chromium-browser') or shutil.which('google-chrome')
DRIVER = shutil.which('chromedriver')
KEYS = {'Tab': '\ue004', 'Enter': '\ue007', 'Space': ' ', 'Escape': '\ue00c'}


class Tags(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags = []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))


def luminance(color):
    parts = [int(color[i:i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


class Source(unittest.TestCase):
    def setUp(self):
        self.text = PAGE.read_text()
        parser = Tags()
        parser.feed(self.text)
        self.tags = parser.tags
        self.script = re.search('<script>(.*?)</script>', self.text, re.S)[1]

    def test_is_one_small_file_that_loads_nothing(self):
        self.assertLess(len(self.text.encode()), 60 * 1024)
        self.assertEqual(re.findall(r'https?://(?!www\.w3\.org/2000/svg)', self.text), [])
        self.assertEqual([tag for tag, _ in self.tags].count('script'), 1)
        self.assertEqual([tag for tag, _ in self.tags].count('style'), 1)
        for tag, attributes in self.tags:
            self.assertEqual([name for name in attributes if name == 'style' or name.startswith('on')], [], tag)  # the server's Content-Security-Policy forbids inline styles and event handlers
            self.assertFalse(attributes.get('src'), tag)

    def test_never_makes_html_of_texts(self):
        self.assertEqual(re.findall(r'innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|DOMParser', self.script), [])

    def test_names_every_field_and_finds_every_element(self):
        ids = {attributes['id'] for _, attributes in self.tags if 'id' in attributes}
        labelled = {attributes['for'] for tag, attributes in self.tags if tag == 'label'}
        fields = {attributes.get('id') for tag, attributes in self.tags if tag in ('input', 'select', 'textarea') and 'hidden' not in attributes}
        self.assertEqual(fields - labelled, set())
        self.assertEqual({name for name in re.findall(r'\bat\("([^"]+)"\)', self.script)} - ids, set())
        for _, attributes in self.tags:
            for name in ('aria-labelledby', 'aria-describedby'):
                self.assertLessEqual(set((attributes.get(name) or '').split()), ids)

    def test_has_contrast_in_light_and_dark(self):
        schemes = [dict(re.findall(r'--([a-z-]+): (#[0-9a-f]{6})', block)) for block in re.findall(r':root \{(.*?)\}', self.text, re.S)]
        self.assertEqual(len(schemes), 2)
        for colors in schemes:
            for text, ground, least in (('text', 'ground', 4.5), ('text', 'card', 4.5), ('soft', 'card', 4.5), ('soft', 'ground', 4.5), ('soft', 'field', 4.5),
                                        ('accent', 'card', 4.5), ('on-accent', 'accent', 4.5), ('fault', 'fault-ground', 4.5), ('edge', 'card', 3)):
                self.assertGreaterEqual(contrast(colors[text], colors[ground]), least, (text, ground, colors))


class Browser:
    """A page in headless Chromium, driven through chromedriver."""

    def __init__(self, url, log):
        with open(log, 'wb') as out:
            self.process = subprocess.Popen([DRIVER, '--port=0'], stdout=out, stderr=subprocess.STDOUT)
        ports = []
        wait_until(lambda: ports.extend(re.findall(r'on port ([1-9]\d*)', log.read_text())) or ports, self.process)
        self.base = f'http://127.0.0.1:{ports[0]}/session'
        arguments = ['--headless=new', '--no-sandbox', '--disable-gpu', '--window-size=500,844', '--mute-audio']
        options = {'goog:chromeOptions': {'binary': BROWSER, 'args': arguments}}
        self.base += '/' + self.ask('POST', '', {'capabilities': {'alwaysMatch': options}})['sessionId']
        self.ask('POST', '/goog/cdp/execute', {'cmd': 'Emulation.setDeviceMetricsOverride',
                                               'params': {'width': 390, 'height': 844, 'deviceScaleFactor': 1, 'mobile': False}})
        self.ask('POST', '/url', {'url': url})

    def ask(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.base + path, data, {'Content-Type': 'application/json'}, method=method)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)['value']

    def run(self, script, *arguments):
        return self.ask('POST', '/execute/sync', {'script': script, 'args': arguments})

    def text(self, selector):
        return self.run('return [...document.querySelectorAll(arguments[0])].map((each) => each.textContent).join("\\n")', selector)

    def count(self, selector):
        return self.run('return document.querySelectorAll(arguments[0]).length', selector)

    def press(self, *keys):
        actions = [{'type': kind, 'value': KEYS.get(key, key)} for key in keys for kind in ('keyDown', 'keyUp')]
        self.ask('POST', '/actions', {'actions': [{'type': 'key', 'id': 'keys', 'actions': actions}]})

    def type(self, text):
        self.press(*text)

    def tab_to(self, wanted, most=120):
        """Presses Tab at most `most` times, until the focused element has an id or a text that begins with `wanted`."""
        focus = 'const a = document.activeElement; return [a.id, a.textContent.trim()]'
        for _ in range(most):
            if any(each.startswith(wanted) for each in self.run(focus)):
                return
            self.press('Tab')
        raise AssertionError(f'no tab leads to {wanted}')

    def end(self):
        try:
            self.ask('DELETE', '')
        finally:
            self.process.terminate()
            self.process.wait()


@unittest.skipUnless(BROWSER and DRIVER, 'needs Chromium and chromedriver (packages chromium and chromium-driver)')
@unittest.skipUnless(Server, 'needs serve_support.py')
class Page(CommandLineTest):
    """Uses the page without a mouse, mostly with the keyboard, in a window of 390 pixels width."""

    def open(self, *arguments, **options):
        self.server = Server(self.folder, *arguments, **options)
        if 'no HTTP server' in self.server.log.read_text():
            self.skipTest('this build has no HTTP server')
        self.addCleanup(self.server.process.wait)
        self.addCleanup(self.server.process.kill)
        browser = Browser(f'http://127.0.0.1:{self.server.port}/', self.folder / 'driver.log')
        self.addCleanup(browser.end)
        return browser

    def wait(self, condition):
        wait_until(condition, self.server.process)

    def test_makes_plays_repeats_and_deletes_a_video(self):
        page = self.open()
        self.wait(lambda: page.text('#link') == 'Connected')
        self.wait(lambda: page.count('#options input') > 0)
        page.tab_to('prompt')
        page.type('a <b>red</b> circle')
        page.tab_to('steps')
        page.type('3')
        page.tab_to('send')
        page.press('Enter')
        self.wait(lambda: page.count('#results video') == 1)
        self.assertEqual(page.text('#results h3'), 'a <b>red</b> circle')
        self.assertIn('Finished', page.text('#results .told'))
        self.assertIn('Finished: a <b>red</b> circle', page.run('return [...news, document.getElementById("news").textContent].join("\\n")'))
        page.run('document.querySelector("video").focus()')
        page.press('Space')
        self.wait(lambda: page.run('return document.querySelector("video").currentTime > 0'))
        page.press('Space')
        page.tab_to('Again with another seed')
        page.press('Enter')
        self.wait(lambda: page.count('#results video') == 2)
        self.assertTrue(page.run('return document.activeElement.textContent').startswith('Again'))  # the focus stays on this button
        seeds = [video['options']['seed'] for video in self.server.get('/v1/videos').json['data']]
        self.assertEqual(len(set(seeds)), 2, seeds)
        page.tab_to('Delete')
        page.press('Enter')
        page.tab_to('delete-yes')
        page.press('Enter')
        self.wait(lambda: page.count('#results li') == 1)
        self.assertEqual(page.run('return document.activeElement.tagName'), 'LI')
        page.ask('POST', '/refresh', {})
        self.wait(lambda: page.count('#results li') == 1)
        self.assertLessEqual(page.run('return document.documentElement.scrollWidth'), 390)

    def test_says_what_is_wrong_beside_the_field(self):
        page = self.open()
        self.wait(lambda: page.count('#options input') > 0)
        page.tab_to('prompt')
        page.type('a')
        page.run('document.getElementById("option-topk").value = "7"')
        page.tab_to('send')
        page.press('Enter')
        self.wait(lambda: 'topk' in page.text('#form-fault'))
        self.assertEqual(page.run('return document.activeElement.id'), 'option-topk')
        self.assertTrue(page.run('return document.getElementById("advanced").open'))
        self.assertEqual(self.server.get('/v1/videos').json['data'], [])

    def test_shows_previews(self):
        page = self.open('--steps', '500', '--size', '64x64', '--frames', '1', model=ROOT / 'assets' / 'tiny')
        self.wait(lambda: page.count('#options input') > 0)
        page.tab_to('prompt')
        page.type('a red circle')
        page.tab_to('send')
        page.press('Enter')
        shown = lambda: page.run('const i = document.querySelector("#queue img"); return i && !i.hidden ? [i.naturalWidth, i.naturalHeight, i.alt] : null')
        self.wait(shown)
        width, height, text = shown()
        self.assertEqual((width, height), (8, 8))
        self.assertRegex(text, 'Preview at step [0-9]+')
        self.wait(lambda: shown() and shown()[2] != text)  # a later preview replaces this one

    def test_cancels_and_asks_for_the_key(self):
        (self.folder / 'key').write_text('a secret of sixteen letters\n')
        (self.folder / 'key').chmod(0o600)
        page = self.open('--api-key-file', 'key')
        self.wait(lambda: page.run('return document.getElementById("key-dialog").open'))
        page.type('wrong')
        page.press('Enter')
        self.wait(lambda: 'not the key' in page.text('#key-fault'))
        page.type('a secret of sixteen letters')
        page.press('Enter')
        self.wait(lambda: page.text('#link') == 'Connected' and page.count('#options input') > 0)
        page.type('a star')  # typed into the prompt, which has the focus
        page.tab_to('steps')
        page.type('1000')
        page.tab_to('send')
        page.press('Enter')
        self.wait(lambda: 'Step' in page.text('#queue'))
        page.tab_to('Cancel')
        page.press('Enter')
        self.wait(lambda: 'Cancelled' in page.text('#results'))
        self.assertEqual(page.count('#queue li'), 0)


if __name__ == '__main__':
    unittest.main()

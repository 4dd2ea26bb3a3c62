"""Looks at the site of make docs with a browser (make docs DO=look): screenshots for a person, and whether the search
finds each message of docs/troubleshooting.md when it is pasted, with other numbers, hosts and addresses in it.
"""

import functools
import http.server
import pathlib
import re
import shutil
import sys
import threading
import urllib.parse

from playwright.sync_api import TimeoutError, sync_playwright

ROOT = pathlib.Path(__file__).resolve().parents[2]
SITE = ROOT / "build/docs/site"
SHOTS = ROOT / "build/docs/shots"
PAGES = {"start": "", "cpu": "start/cpu/", "ring": "catalogue/all_reduce-ring/", "catalogue": "catalogue/",
         "troubleshooting": "troubleshooting/", "command": "reference/goccl_bench/"}


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


def messages():
    """Returns the messages of the troubleshooting page as somebody else would have them."""
    page = (ROOT / "docs/troubleshooting.md").read_text()
    found = []
    for row in re.findall(r"^\| (.*) \| (.*) \| .* \|$", page, re.MULTILINE):
        found += re.findall(r"`([^`]+)`", row[1])
    changed = []
    for text in found:
        for a, b in (("process 71", "process 4711"), ("pid 71", "pid 4711"), ("host a", "host node17"),
                     ("10.0.0.1:29500", "192.168.7.9:41233"), ("seq 1", "seq 230"), ("10 x f32", "8388608 x bf16")):
            text = text.replace(a, b)
        changed.append("goccl: group 0, rank 0 of 2: " + text)
    return changed


def main():
    browser_of = shutil.which("chromium") or shutil.which("google-chrome") or sys.exit("look.py: no chromium on PATH")
    SHOTS.mkdir(parents=True, exist_ok=True)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=SITE))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    base = f"http://127.0.0.1:{server.server_address[1]}/"
    missing = []
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=browser_of, args=["--no-sandbox"])
        for scheme in "light", "dark":
            page = browser.new_context(color_scheme=scheme, viewport={"width": 1300, "height": 1000}).new_page()
            for name, path in PAGES.items():
                page.goto(base + path)
                page.screenshot(path=SHOTS / f"{name}-{scheme}.png")
        page.goto(base + PAGES["ring"])
        page.locator(".ranks input").fill("0")
        assert page.locator(".ranks img:visible").get_attribute("data-ranks") == "2"
        every = messages()
        for text in every:
            page.goto(base + "?q=" + urllib.parse.quote(text))
            first = page.locator("a.md-search-result__link").first
            try:
                first.wait_for(state="attached", timeout=5000)
                found = [link.get_attribute("href") for link in page.locator("a.md-search-result__link").all()]
            except TimeoutError:
                found = []
            if not any("/troubleshooting/" in link for link in found[:3]):
                missing.append((text, found[:3]))
        browser.close()
    for text, found in missing:
        print(f"not among the first three: {text}\n    {found}")
    print(f"{len(every) - len(missing)} of {len(every)} messages are found; screenshots are in {SHOTS}")
    sys.exit(bool(missing))


main()

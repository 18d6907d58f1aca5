"""A real browser without a window, as far as the tests of pages need one: Chromium, spoken to over its DevTools protocol.

Belongs here: finding and starting it, going to a page, waiting for what is visible, clicking what a person would click, typing,
and taking pictures. Waiting is done in the page, which knows when it changes; nothing here sleeps.
Does not belong here: what any page says.
"""

import base64
import json
import shutil
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from websockets.sync.client import ClientConnection, connect

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_FLAGS = (
    "--headless=new",
    # A container without user namespaces, and root, have no other way; the pages are our own, on this machine.
    "--no-sandbox",
    "--disable-gpu",
    # On a machine that does much else, what is slow would pass for what hangs, and be ended.
    "--disable-gpu-watchdog",
    "--disable-hang-monitor",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-extensions",
    "--no-first-run",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
    "--remote-debugging-port=0",
)
WIDTH, HEIGHT = 1500, 950
# How long a page may take to show something; what is there is found at once.
PATIENCE = 60
# Longer than anything is waited for.
_SILENCE = 600
_CLICKABLE = "button, a, [role=tab], [role=menuitem], label, span, div"
_CONTROL = 2

# Resolves with the first truthy value of an expression, asked less and less often: reading a page has it laid out anew.
_WAIT = """
new Promise((found, gone) => {
  const until = performance.now() + %d;
  let pause = 30;
  const look = () => {
    let value = null;
    try { value = (%s); } catch (fault) { value = null; }
    if (value) found(value);
    else if (performance.now() > until) gone(new Error("not there in time"));
    else setTimeout(look, pause = Math.min(400, pause * 1.5));
  };
  look();
})
"""
# Resolves once nothing has been added, removed or changed for some milliseconds.
_REST = """
new Promise(still => {
  let timer = null;
  const seen = new MutationObserver(() => again());
  const done = () => { seen.disconnect(); still(true); };
  const again = () => { clearTimeout(timer); timer = setTimeout(done, %d); };
  seen.observe(document, {subtree: true, childList: true, attributes: true, characterData: true});
  setTimeout(done, 5000);
  again();
})
"""
# The middle of the smallest visible element whose own text is the one asked for.
_PLACE = """
(() => {
  const wanted = %s;
  const all = [...document.querySelectorAll(%s)].filter(one => (one.innerText || one.value || "").trim() === wanted);
  const boxes = all.map(one => [one, one.getBoundingClientRect()]).filter(([, box]) => box.width && box.height);
  if (!boxes.length) return null;
  const [one] = boxes.sort((a, b) => a[1].width * a[1].height - b[1].width * b[1].height)[0];
  if (one.closest("[disabled]")) return null;
  one.scrollIntoView({block: "center"});
  const box = one.getBoundingClientRect();
  return {x: box.x + box.width / 2, y: box.y + box.height / 2};
})()
"""


class NotShown(AssertionError):
    """The page does not show what was waited for; the message has what it does show."""


def chromium() -> str | None:
    """The browser of this machine, if it has one."""
    return next((found for name in _NAMES if (found := shutil.which(name))), None)


@dataclass
class Page:
    """One page of a browser."""

    connection: ClientConnection
    session: str
    clicks: int = 0
    _numbers: Iterator[int] = field(default_factory=lambda: count(1))

    def ask(self, method: str, **parameters: Any) -> Mapping[str, Any]:
        """One command, and its answer. What the browser tells unasked is not listened to."""
        said: Mapping[str, Any] = _ask(self.connection, next(self._numbers), method, parameters, self.session)
        return said

    def goto(self, url: str) -> None:
        """Go to an address; the page may still be drawing itself."""
        self.ask("Page.navigate", url=url)

    def until(self, expression: str, seconds: float = PATIENCE) -> Any:
        """The first truthy value of a JavaScript expression. A page that is replaced meanwhile is asked again."""
        for _ in range(20):
            try:
                said = self.ask(
                    "Runtime.evaluate",
                    expression=_WAIT % (seconds * 1000, expression),
                    awaitPromise=True,
                    returnByValue=True,
                )
            except ProtocolFault:
                continue
            if "exceptionDetails" not in said:
                return said["result"].get("value")
            if "not there in time" in json.dumps(said):
                break
        raise NotShown(f"waited {seconds:g} s for {expression}; the page shows: {self.text()[:1500]}")

    def text(self) -> str:
        """All that can be read on the page."""
        said = self.ask("Runtime.evaluate", expression="document.body ? document.body.innerText : ''", returnByValue=True)
        return str(said["result"].get("value", ""))

    def see(self, *texts: str, seconds: float = PATIENCE) -> None:
        """Wait until all of some texts are visible."""
        for text in texts:
            self.until(f"document.body.innerText.includes({json.dumps(text)})", seconds)

    def click(self, text: str) -> None:
        """Click what carries exactly this text, as a mouse does."""
        self._click_at(self.until(_PLACE % (json.dumps(text), json.dumps(_CLICKABLE))))

    def click_in_row(self, first: str, text: str) -> None:
        """Click what carries a text in the row of a table whose first cell is `first`."""
        row = f"[...document.querySelectorAll('tr')].find(row => row.cells[0]?.innerText.trim() === {json.dumps(first)})"
        self.until(f"(({row}).querySelectorAll('*').forEach(one => one.removeAttribute('data-wanted')), true)")
        one = f"[...({row}).querySelectorAll('*')].filter(one => one.innerText?.trim() === {json.dumps(text)}).pop()"
        self.until(f"(({one}).setAttribute('data-wanted', ''), true)")
        self.click_on("[data-wanted]")

    def click_on(self, selector: str) -> None:
        """Click the first element of a selector."""
        box = f"(() => {{ const one = document.querySelector({json.dumps(selector)}); if (!one) return null; "
        box += "one.scrollIntoView({block: 'center'}); const box = one.getBoundingClientRect(); "
        box += "return box.width ? {x: box.x + box.width / 2, y: box.y + box.height / 2} : null; })()"
        self._click_at(self.until(box))

    def _click_at(self, place: Mapping[str, float]) -> None:
        self.clicks += 1
        x, y = place["x"], place["y"]
        self.ask("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        for kind in ("mousePressed", "mouseReleased"):
            self.ask("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def write(self, text: str) -> None:
        """Type a text where the cursor stands, in place of what is there."""
        for kind in ("rawKeyDown", "keyUp"):
            self.ask(
                "Input.dispatchKeyEvent",
                type=kind,
                modifiers=_CONTROL,
                key="a",
                code="KeyA",
                windowsVirtualKeyCode=65,
                commands=["selectAll"],
            )
        self.ask("Input.insertText", text=text)

    def press(self, key: str, code: int) -> None:
        """A key that is no letter."""
        for kind in ("rawKeyDown", "keyUp"):
            self.ask("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code)

    def rest(self, quiet: int = 500) -> None:
        """Wait until nothing on the page has changed for a while (milliseconds): what moves can't be clicked."""
        self.until(_REST % quiet)

    def look(self, scheme: str = "light", width: int = WIDTH, height: int = HEIGHT) -> None:
        """What the reader's system prefers: light or dark, and how large the window is."""
        self.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def picture(self, box: Mapping[str, float] | None = None) -> bytes:
        """What is visible now, or a box of it, as PNG, once fonts are there and two frames were drawn."""
        drawn = "document.fonts.ready.then(() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1)))))"
        self.ask("Runtime.evaluate", expression=drawn, awaitPromise=True)
        clip = {"clip": {**box, "scale": 1}} if box else {}
        return base64.b64decode(self.ask("Page.captureScreenshot", format="png", optimizeForSpeed=False, **clip)["data"])


class ProtocolFault(RuntimeError):
    """The browser refused a command; mostly because its page has just been replaced by another."""


def _ask(
    connection: ClientConnection, number: int, method: str, parameters: Mapping[str, Any], session: str | None = None
) -> Any:
    asked = {"id": number, "method": method, "params": parameters, **({"sessionId": session} if session else {})}
    connection.send(json.dumps(asked))
    while True:
        said = json.loads(connection.recv(timeout=_SILENCE))
        if said.get("id") == number and said.get("sessionId") == session:
            if "error" in said:
                raise ProtocolFault(f"{method}: {said['error']}")
            return said["result"]


@contextmanager
def browser(folder: Path, program: str) -> Iterator[Page]:
    """A browser with a fresh profile below a folder, and its one page; both are gone at the end."""
    command = [program, *_FLAGS, f"--user-data-dir={folder / 'profile'}", f"--window-size={WIDTH},{HEIGHT}", "about:blank"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as running:
        reader = threading.Thread(target=lambda: list(running.stderr or ()), daemon=True)
        try:
            endpoint = _endpoint(running)
            # Whoever writes into a pipe that nobody reads stops one day.
            reader.start()
            with connect(endpoint, max_size=None) as connection:
                target = _ask(connection, 1, "Target.createTarget", {"url": "about:blank"})["targetId"]
                attached = _ask(connection, 2, "Target.attachToTarget", {"targetId": target, "flatten": True})
                page = Page(connection, attached["sessionId"])
                page.ask("Page.enable")
                page.look()
                yield page
        finally:
            running.terminate()
            # Its profile is written to until the very end, by all its programs.
            if reader.ident:
                reader.join()
            running.wait()


def _endpoint(running: "subprocess.Popen[str]") -> str:
    """Where the browser listens, as it says itself."""
    said = []
    for line in running.stderr or ():
        said.append(line)
        if "DevTools listening on " in line:
            return line.rpartition(" ")[2].strip()
    raise RuntimeError(f"the browser ended at once: {''.join(said)[-2000:]}")

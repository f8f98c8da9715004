"""Runs Chromium without a screen, and without a network."""

import shutil
import subprocess

PATH = shutil.which("chromium") or shutil.which("chromium-browser")
_TIMEOUT = 120
_FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic",
          "--no-first-run", "--disable-background-networking",
          "--disable-component-update", "--disable-sync", "--hide-scrollbars",
          "--virtual-time-budget=2000")

# JavaScript: what of a drawing is outside of its frame.
OUTSIDE = """
const outsideOf = (svg, what) => {
  const frame = svg.getBoundingClientRect();
  return [...svg.querySelectorAll(what)].filter((part) => {
    const box = part.getBoundingClientRect();
    return box.left < frame.left - 1 || box.right > frame.right + 1 ||
        box.top < frame.top - 1 || box.bottom > frame.bottom + 1;
  }).map((part) => part.outerHTML);
};
"""


def run(profile: str, *flags: str) -> str:
  """Returns what it prints; `profile` is a folder for its own files."""
  assert PATH is not None
  done = subprocess.run(
      [PATH, *_FLAGS, f"--user-data-dir={profile}", *flags],
      capture_output=True, text=True, timeout=_TIMEOUT, check=False)
  if done.returncode:
    raise AssertionError(done.stderr)
  return done.stdout

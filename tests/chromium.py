"""Runs Chromium without a screen, and without a network."""

import shutil
import subprocess

PATH = shutil.which("chromium") or shutil.which("chromium-browser")
_TIMEOUT = 120
_FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic",
          "--no-first-run", "--disable-background-networking",
          "--disable-component-update", "--disable-sync", "--hide-scrollbars",
          "--virtual-time-budget=2000")


def run(profile: str, *flags: str) -> str:
  """Returns what it prints; `profile` is a folder for its own files."""
  assert PATH is not None
  done = subprocess.run(
      [PATH, *_FLAGS, f"--user-data-dir={profile}", *flags],
      capture_output=True, text=True, timeout=_TIMEOUT, check=False)
  if done.returncode:
    raise AssertionError(done.stderr)
  return done.stdout

"""Tests of what `make test` runs beside Python, with made-up programs."""

import os
import pathlib
import re
import shutil
import subprocess

from absl.testing import absltest
from absl.testing import parameterized

_ROOT = pathlib.Path(__file__).resolve().parents[1]
_BAZEL = _ROOT / "third_party" / "bazel" / "test.sh"
_CHROMIUM = _ROOT / "third_party" / "chromium" / "install.sh"
_IPROUTE2 = _ROOT / "third_party" / "iproute2" / "install.sh"
_REMEDY = (r"^Bazel must be installed for its tests, and it isn't; install it "
           r"\(Debian has bazel-bootstrap\), or leave them out: make test "
           r"BAZEL=no$")
_ROOTS, _ANYONES = "echo 0", "echo 1000"


class ScriptsTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    # The only folder on the PATH: nothing of this machine is found or changed.
    self.bin = pathlib.Path(self.create_tempdir().full_path)
    (self.bin / "dirname").symlink_to(shutil.which("dirname"))
    self.program("id", _ANYONES)

  def program(self, name, script):
    path = self.bin / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)

  def run_script(self, script, *args):
    return subprocess.run(
        ["/bin/sh", str(script), *args],
        env={"PATH": str(self.bin), "SBIN": str(self.bin)},
        capture_output=True, text=True, timeout=60, check=False)

  @parameterized.parameters(
      (_ANYONES, None), (_ANYONES, "exit 0"), (_ROOTS, None),
      (_ROOTS, "exit 1"), (_ROOTS, "exit 0"))
  def test_without_bazel_it_fails(self, user, apt_get):
    self.program("id", user)
    if apt_get:
      self.program("apt-get", apt_get)
    done = self.run_script(_BAZEL, "no-such-venv")
    self.assertEqual(done.returncode, 1)
    self.assertRegex(done.stderr.strip(), _REMEDY)
    self.assertEqual("installing" in done.stdout,
                     user == _ROOTS and apt_get is not None)

  @parameterized.parameters(0, 3)
  def test_bazels_exit_code_is_the_scripts(self, code):
    self.program("bazel", f"""
        case "$*" in *" test "*) exit {code} ;; --version) echo bazel 7.0.0 ;;
        esac""")
    done = self.run_script(_BAZEL, "no-such-venv")
    self.assertEqual((done.returncode, done.stderr), (code, ""))

  @parameterized.parameters(
      ((), "--test_tag_filters=-slow"), (("all",), "--test_tag_filters="))
  def test_slow_tests_run_when_all_do(self, args, expected):
    self.program("bazel", """
        case "$*" in *" test "*) echo "$*" ;; esac""")
    done = self.run_script(_BAZEL, "no-such-venv", *args)
    (line,) = done.stdout.splitlines()
    self.assertEqual([word for word in line.split() if "filters" in word],
                     [expected])
    self.assertEndsWith(line, " //...")

  @parameterized.parameters(_BAZEL, _CHROMIUM, _IPROUTE2)
  def test_installs_as_root_alone(self, script):
    self.program("apt-get", 'echo "$*" >>"$0.log"')
    self.run_script(script, "no-such-venv")
    log = self.bin / "apt-get.log"
    self.assertFalse(log.exists())
    self.program("id", _ROOTS)
    self.run_script(script, "no-such-venv")
    package = log.read_text().split()[-1]
    readme = (_ROOT / "README.md").read_text(encoding="utf-8")
    self.assertIn(f"`{package}`", readme)

  @parameterized.parameters("chromium", "chromium-browser")
  def test_chromium_that_is_there(self, name):
    self.program("id", _ROOTS)
    self.program("apt-get", "exit 1")
    self.program(name, "exit 0")
    done = self.run_script(_CHROMIUM)
    self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))

  @parameterized.parameters((_CHROMIUM, "Chromium"), (_IPROUTE2, "iproute2"))
  def test_without_them_it_says_so(self, script, name):
    done = self.run_script(script)
    self.assertEqual((done.returncode, done.stdout), (0, ""))
    self.assertRegex(done.stderr, f"^{name} is not installed and can't be: "
                     "its tests are LEFT OUT")

  def test_iproute2_that_is_there(self):
    self.program("id", _ROOTS)
    self.program("apt-get", "exit 1")
    self.program("ip", "exit 0")
    self.program("tc", "exit 0")
    done = self.run_script(_IPROUTE2)
    self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))


@absltest.skipUnless(shutil.which("make"), "make isn't installed")
class MakefileTest(parameterized.TestCase):

  @parameterized.parameters(((), True), (("BAZEL=no",), False))
  def test_bazel_can_be_left_out(self, args, runs):
    done = subprocess.run(
        ["make", "--dry-run", "test", *args], cwd=_ROOT, capture_output=True,
        text=True, timeout=60, check=True,
        # `make test BAZEL=no` may run this, and passes its variables on.
        env={name: value for name, value in os.environ.items()
             if name not in ("BAZEL", "MAKEFLAGS", "MAKEOVERRIDES", "MFLAGS")})
    self.assertEqual(bool(re.search(r"bazel/test\.sh", done.stdout)), runs)
    self.assertIn("mypy", done.stdout)


if __name__ == "__main__":
  absltest.main()

"""Tests of what commands share in printing."""

import contextlib
import io
import json
import os
import pathlib
import sys
import unittest.mock

from absl.testing import absltest
from absl.testing import parameterized

from tf_cdops.base import errors
from tf_cdops.cli import output


class WritableTest(parameterized.TestCase):

  def test_neither_makes_nor_empties(self):
    folder = pathlib.Path(self.create_tempdir().full_path)
    output.check_writable(str(folder / "new"), "--out")
    self.assertEmpty(list(folder.iterdir()))
    (folder / "old").write_text("kept")
    output.check_writable(str(folder / "old"), "--out")
    self.assertEqual((folder / "old").read_text(), "kept")

  @parameterized.parameters(
      ("", r"^`--out` \(''\) must name a file, and is empty; give a path"),
      ("/proc/x.json", r"must be writable, and isn't \(.*\); name another"),
      ("/", r"^`--out` \('/'\) must name a file, not a folder"),
      ("/no/such/file", r"must be in a folder that is there; make /no/such"))
  def test_wrong_paths(self, path, message):
    with self.assertRaisesRegex(errors.InputError, message):
      output.check_writable(path, "--out")

  def test_read_only(self):
    if os.getuid() == 0:
      self.skipTest("Nothing is read-only to root.")
    path = self.create_tempfile("old").full_path
    os.chmod(path, 0o400)
    with self.assertRaisesRegex(errors.InputError, "must be writable, and i"):
      output.check_writable(path, "--out")

  def test_a_pipe_is_not_waited_for(self):
    path = os.path.join(self.create_tempdir().full_path, "pipe")
    os.mkfifo(path)
    output.check_writable(path, "--out")
    self.assertTrue(os.path.exists(path))

  def test_a_write_that_fails(self):
    with self.assertRaisesRegex(errors.InputError,
                                r"the file \('/dev/full'\) must be writable"):
      output.write_text("/dev/full", "x")


class PrintTest(absltest.TestCase):

  def test_json(self):
    path = pathlib.Path(self.create_tempdir().full_path) / "out.json"
    content = {"µ": [1, 2.5, None]}
    output.write_json(str(path), content)
    self.assertEqual(json.loads(path.read_text(encoding="utf-8")), content)
    with contextlib.redirect_stdout(io.StringIO()) as out:
      output.print_json(content)
    self.assertEqual(out.getvalue(), path.read_text(encoding="utf-8"))

  def test_numbers_of_a_list_share_a_line(self):
    with contextlib.redirect_stdout(io.StringIO()) as out:
      output.print_json({"workers": [8, -1.5e-7, 8], "names": ["[\n  1\n]"]})
    self.assertEqual(out.getvalue(), """\
{
  "workers": [8, -1.5e-07, 8],
  "names": [
    "[\\n  1\\n]"
  ]
}
""")

  def test_width(self):
    for columns, width in (("", 100), ("20", 60), ("72", 72), ("400", 100)):
      with unittest.mock.patch.dict(os.environ, COLUMNS=columns):
        if columns or not sys.__stdout__.isatty():
          self.assertEqual(output.width(), width)

  def test_table_can_be_wrapped(self):
    with contextlib.redirect_stdout(io.StringIO()) as out:
      output.table("T", ["name", "what"], [["hierarchical", "word " * 50]],
                   wrap=60)
    lines = out.getvalue().splitlines()
    self.assertLessEqual(max(map(len, lines)), 60)
    self.assertEqual([line.rstrip() for line in lines], lines)

  def test_table_is_not_cut_and_has_no_markup(self):
    with contextlib.redirect_stdout(io.StringIO()) as out:
      output.table("[bold]", ["name", ">count"],
                   [["[red]", 5], ["x" * 300, 12345]])
    lines = out.getvalue().splitlines()
    self.assertIn("[bold]", lines[0])
    self.assertRegex(lines[4], r"│ \[red\] +│     5 │")
    self.assertIn("x" * 300 + " │ 12345 │", lines[5])

  def test_progress_is_silent_without_a_terminal(self):
    with (contextlib.redirect_stdout(io.StringIO()) as out,
          contextlib.redirect_stderr(io.StringIO()) as err,
          output.progress("working", total=2) as advance):
      advance()
      advance(description="more")
    self.assertEqual((out.getvalue(), err.getvalue()), ("", ""))


if __name__ == "__main__":
  absltest.main()

"""Tests of what commands share in printing."""

import contextlib
import io
import json
import os
import pathlib

from absl.testing import absltest
from absl.testing import parameterized

from tf_cdops import errors
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
      ("", r"^`--out` \(''\) must name a file, not a folder"),
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
    with self.assertRaisesRegex(errors.InputError, "must be writable, and"):
      output.check_writable(path, "--out")

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

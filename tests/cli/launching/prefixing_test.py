"""Tests of what makes prefixed lines of a program's output: pure."""

import random

from absl.testing import absltest
from absl.testing import parameterized

from tf_cdops.cli.launching import prefixing

_LONGEST = prefixing._LONGEST


def prefixed(*pieces: bytes) -> bytes:
  lines = prefixing.Prefixer(b"> ")
  return b"".join(map(lines.feed, pieces)) + lines.flush(final=True)


class PrefixerTest(parameterized.TestCase):

  @parameterized.parameters(
      ([b""], b""),
      ([b"a\n"], b"> a\n"),
      ([b"a\nb"], b"> a\n> b\n"),  # There is no newline at the end.
      ([b"a", b"b", b"\nc\n"], b"> ab\n> c\n"),
      ([b"\n\na\n"], b"> \n> \n> a\n"),
      ([b"a\r\nb\r", b"\nc\r\n"], b"> a\n> b\n> c\n"),
      # Progress bars: what was written over isn't seen.
      ([b"1/9\r2/9\r3/9\nz\n"], b"> 3/9\n> z\n"),
      ([b"\r1/9", b"\r2/9", b"\r3/9\n"], b"> 3/9\n"),
      ([b"1/9", b"\b\b\b\r", b"2/9", b"\b\b\b\r"], b"> 2/9\n"),
      ([b"\xff\xfe\n", b"\0\n"], b"> \xff\xfe\n> \0\n"))
  def test_lines(self, pieces, expected):
    self.assertEqual(prefixed(*pieces), expected)

  def test_pieces_of_any_size_give_the_same(self):
    text = "ab\ncde\n\nf\r\ng\rhi\nö€\n".encode() * 20
    whole = prefixed(text)
    for seed in range(50):
      cuts = sorted(random.Random(seed).choices(range(len(text)), k=9))
      pieces = [text[i:j] for i, j in zip([0, *cuts], [*cuts, None],
                                          strict=True)]
      self.assertEqual(prefixed(*pieces), whole)

  def test_a_part_of_a_line_is_given_when_asked_for(self):
    lines = prefixing.Prefixer(b"> ")
    self.assertEqual(lines.feed(b"a\nName: "), b"> a\n")
    self.assertTrue(lines.holds)
    self.assertEqual(lines.flush(), b"> Name: \n")
    self.assertFalse(lines.holds)
    self.assertEqual(lines.flush(), b"")
    # Its newline gives no empty line, and the next one does.
    self.assertEqual(lines.feed(b"\n"), b"")
    self.assertEqual(lines.feed(b"\n"), b"> \n")

  def test_what_follows_a_part_is_another_line(self):
    lines = prefixing.Prefixer(b"> ")
    lines.feed(b"1/9\r")
    self.assertEqual(lines.flush(), b"> 1/9\n")
    self.assertEqual(lines.feed(b"2/9\r"), b"")
    self.assertEqual(lines.feed(b"3/9\nz"), b"> 3/9\n")
    self.assertEqual(lines.flush(final=True), b"> z\n")

  def test_half_a_letter_waits_for_the_other(self):
    lines = prefixing.Prefixer(b"> ")
    lines.feed("a€".encode()[:-1])
    self.assertEqual(lines.flush(), b"> a\n")
    self.assertEqual(lines.flush(), b"")
    self.assertTrue(lines.holds)
    lines.feed("€".encode()[-1:])
    self.assertEqual(lines.flush(), "> €\n".encode())

  def test_a_line_without_end_comes_in_pieces(self):
    lines = prefixing.Prefixer(b"> ")
    letters = "€" * 100_000
    given = b""
    text = letters.encode()
    for i in range(0, len(text), 1000):
      given += lines.feed(text[i:i + 1000])
      self.assertLessEqual(len(lines._held), _LONGEST)
    given += lines.feed(b"\nb\n")
    got = given.decode().splitlines()
    self.assertEqual("".join(line.removeprefix("> ") for line in got[:-1]),
                     letters)
    self.assertEqual(got[-1], "> b")
    self.assertLessEqual(max(len(line.encode()) for line in got), _LONGEST + 2)

  def test_a_bar_without_end_is_not_kept(self):
    lines = prefixing.Prefixer(b"> ")
    for i in range(10_000):
      self.assertEqual(lines.feed(b"%d/10000 [====>    ]\r" % i), b"")
      self.assertLess(len(lines._held), 100)
    self.assertEqual(lines.flush(), b"> 9999/10000 [====>    ]\n")


if __name__ == "__main__":
  absltest.main()

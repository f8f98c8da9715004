"""Tests of rates as people write them."""

from absl.testing import absltest
from absl.testing import parameterized

from tf_cdops.base import errors
from tf_cdops.base import rates


class RatesTest(parameterized.TestCase):

  @parameterized.parameters(
      ("500mbit", 62.5e6), ("1gbit", 125e6), ("100Gbit/s", 12.5e9),
      ("25 GB/s", 25e9), ("12GB/s", 12e9), ("8bit", 1.0), ("1.5kbit", 187.5),
      (".5MB/s", 5e5), (" 2. TB/s ", 2e12), ("100 MBIT", 12.5e6),
      ("7 B/s", 7.0), ("3kB/s", 3e3), ("4Mbit/s", 5e5))
  def test_reads(self, text, expected):
    self.assertEqual(rates.parse(text, "x"), expected)

  @parameterized.parameters(
      "", "500", "mbit", "0mbit", "-1gbit", "1e3mbit", "1mph", "nan mbit",
      # Bits to some and bytes to others.
      "100mbps", "100Mb/s", "100 MBps", "100gb/s",
      # Sizes.
      "25GB", "1 2mbit", "9" * 400 + "gbit", None, 500, 1.5, b"1gbit")
  def test_refuses(self, text):
    with self.assertRaisesRegex(
        errors.InputError, r"(?s)^`--rate` \(.*\) must be a positive number "
        "with a unit, in bits .*such as 500mbit or 25GB/s"):
      rates.parse(text, "--rate")

  @parameterized.parameters(
      ("1gbit", ["1gbit"]), ("1gbit, 100mbit", ["100mbit", "1gbit"]),
      ("10MB/s,1gbit,.5kbit", [".5kbit", "10MB/s", "1gbit"]))
  def test_splits(self, text, expected):
    self.assertEqual(rates.split(text, "x"), expected)

  @parameterized.parameters(
      ("1gbit,125 MB/s", r"\(1gbit,125 MB/s\) must have each rate once, and "
       "1gbit and 125 MB/s are the same; leave one out"),
      ("1gbit,,2gbit", r"\(''\) must be a positive number with a unit"),
      ("1gbit,fast", r"\('fast'\) must be a positive number with a unit"))
  def test_refuses_lists(self, text, message):
    with self.assertRaisesRegex(errors.InputError, f"^`--rate` {message}"):
      rates.split(text, "--rate")


if __name__ == "__main__":
  absltest.main()

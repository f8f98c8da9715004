"""Tests of what the classes say of wrong arguments."""

import itertools
import json
import re

from absl.testing import absltest
from absl.testing import parameterized
from tests import class_util
from tests import test_util

import tf_cdops

SUM = test_util.SUM
PAIRED, CLASSES = class_util.PAIRED, class_util.CLASSES
vectors = class_util.vectors

BAD_SPECS = (
    ("xrng", r"`algorithm` \('xrng'\) must be one of .*Did you mean 'xring'"),
    ("pscpu/xrng", r"'xrng'.*Did you mean 'xring'"),
    ("Xring", r"'Xring'.*Did you mean 'xring'"),
    ("", "empty part"),
    ((), r"\(\(\)\) must be a text, a tuple .* or a list"),
    ([], r"\(\[\]\) must be a text"),
    ({}, r"\(\{\}\) must be a text"),
    ({"xring": 1}, "must be a text"),
    (7, r"\(7\) must be a text"),
    (None, r"\(None\) must be a text"),
    ("xring#0", r"shards of 'xring' \(0\) must be a whole number from 1 to"),
    ("xring#-2", r"shards of 'xring' \(-2\)"),
    ("xring#x", "'xring#x', which must be an algorithm's name, or the name"),
    ("xring#1.5", "'xring#1.5', which must be"),
    ("xring#", "'xring#', which must be"),
    ("#2", "'#2', which must be"),
    ("xring##2", "'xring##2', which must be"),
    (("xring", 0), r"shards of 'xring' \(0\)"),
    (("xring", -1, -1), r"shards of 'xring' \(-1\)"),
    (("xring", 1.5), r"shards of 'xring' \(1.5\)"),
    (("xring", "x"), r"shards of 'xring' \('x'\)"),
    (("xring", True), r"shards of 'xring' \(True\)"),
    (("xring", None), r"shards of 'xring' \(None\)"),
    ("xring:64k:ps:64k:rechd", r"limits \(\[65536, 65536\]\) must rise"),
    ("xring:64k:ps:1k:rechd", r"limits \(\[65536, 1024\]\) must rise"),
    ([("xring", 1, -1), ("ps", 1, -1)], "only the last may be -1"),
    ([("xring", 1, 64), ("ps", 1, 128)], r"last limit \(128\) must be -1"),
    (("xring", 1, 64), r"last limit \(64\) must be -1"),
    ("xring:0:ps", r"limit of 'xring' \(0\) must be a positive number"),
    (("xring", 1, 0), r"limit of 'xring' \(0\)"),
    (("xring", 1, -5), r"limit of 'xring' \(-5\)"),
    (("xring", 1, 1.5), r"limit of 'xring' \(1.5\)"),
    (("xring", 1, "1k"), r"limit of 'xring' \('1k'\)"),
    ("xring:1q:ps", r"\('1q'\) must be a number of bytes such as 512, 32k"),
    ("xring:-1:ps", r"\('-1'\) must be a number of bytes"),
    (("xring", 1, -1, 1), r"\(\('xring', 1, -1, 1\)\) must be a tuple of one "),
    ([("xring", 1, 64), "ps"], r"\[1\]` \('ps'\) must be a tuple of one to"),
    ([("xring", 1, 64), ["ps"]], r"\[1\]` \(\['ps'\]\) must be a tuple"),
    ([(1, "xring")], r"the algorithm \(1\) must be a name"),
    ([()], r"\[0\]` \(\(\)\) must be a tuple of one to three"),
    ("nccl:32k", "nothing follows the limit '32k'"),
    ("xring:", "empty part"),
    (":xring", "empty part"),
    ("xring:64k::ps", "empty part"),
    ("xring/", "algorithm"),
    ("/xring", "algorithm"),
    ("xring/ps/rechd", r"one name or a pair 'intra/inter', and has 3 parts"),
    ("auto#2", "'auto' chooses .* it must stand alone"),
    ("auto:1k:ps", "must stand alone"),
    ("auto/ps", "'auto'"),
    ("@/no/such/file.json", r"'@/no/such/file.json'\) must name a readable"),
    ("@", "must name a readable JSON file"),
)
WHOLE = "must be a whole number of at least"
NOT_WHOLE = (-1, 1.5, 2.0, "2", None, True, [1])


class BadInputTest(parameterized.TestCase):

  # Quick, and all through the classes: an argument's name is in the message.
  @parameterized.parameters(*BAD_SPECS)
  def test_spec(self, spec, message):
    for build in (
        lambda: tf_cdops.AllReduceCrossDeviceOps(spec),
        lambda: tf_cdops.AllReduceCrossDeviceOps(all_reduce_alg=spec),
        lambda: tf_cdops.MultiWorkerAllReduce(all_reduce_spec=spec)):
      with self.assertRaisesRegex(ValueError, message):
        build()

  @parameterized.parameters(
      ("{", "must name a readable JSON file: "),
      ("[]", "under the key 'all_reduce_spec'"),
      ('{"all_reduce_spec": 3}', "under the key 'all_reduce_spec'"),
      ('{"all_reduce_spec": "@other.json"}', "under the key"),
      ('{"all_reduce_spec": "xring#0"}',
       r"`all_reduce_\w+, read from \S*spec.json` \('xring#0'\): the shards"),
      ('{"all_reduce_spec": "xrng"}', "Did you mean 'xring'"))
  def test_spec_in_a_file(self, content, message):
    path = self.create_tempfile("spec.json", content).full_path
    for build in (
        lambda: tf_cdops.AllReduceCrossDeviceOps("@" + path),
        lambda: tf_cdops.MultiWorkerAllReduce(all_reduce_spec="@" + path)):
      with self.assertRaisesRegex(ValueError, message):
        build()

  def test_spec_in_a_file_works(self):
    path = self.create_tempfile(
        "spec.json", json.dumps({"all_reduce_spec": "xring:1k:ps#2"})).full_path
    self.assertRegex(repr(tf_cdops.AllReduceCrossDeviceOps("@" + path)),
                     r"'xring:1k:ps#2'")

  # Every number of every class with everything that is no number.
  @parameterized.parameters(
      *((kind_of, name, number) for kind_of, name, number in itertools.product(
          (tf_cdops.AllReduceCrossDeviceOps, tf_cdops.MultiWorkerAllReduce),
          ("num_packs", "agg_small_grads_max_bytes",
           "agg_small_grads_max_group"), NOT_WHOLE)),
      *((tf_cdops.NcclAllReduce, "num_packs", n) for n in NOT_WHOLE),
      *((tf_cdops.MultiWorkerAllReduce, "num_gpus_per_worker", n)
        for n in NOT_WHOLE if n is not None))
  def test_number(self, kind_of, name, number):
    with self.assertRaisesRegex(
        ValueError, rf"^`{name}` \({re.escape(repr(number))}\) {WHOLE} 0"):
      kind_of(**{name: number})

  @parameterized.parameters(
      ([], r"\(\[\]\) must be a list of device strings, one per worker, such"),
      ("/job:worker/task:0", r"\('/job:worker/task:0'\) must be a list"),
      (3, r"\(3\) must be a list"),
      (["/cpu:0", "/cpu:0"], r"\(\['/cpu:0', '/cpu:0'\]\) must be distinct"),
      (["/cpu:0", "CPU:0"], r"\(.*\) must be distinct"),
      (["/cpu:0", "nonsense"], r"\('nonsense'\) must be a device name; write"),
      (["/job:worker/task:x"], r"\(\S+\) must be a device name"),
      ([""], r"\(''\) must be a device name"),
      ([3], r"\(3\) must be a device name"),
      ([None], r"\(None\) must be a device name"))
  def test_worker_devices(self, worker_devices, message):
    with self.assertRaisesRegex(ValueError, f"^`worker_devices` {message}"):
      tf_cdops.MultiWorkerAllReduce(worker_devices)

  @parameterized.product(kind_of=CLASSES, mode=("dens", None, 3, ["dense"]))
  def test_sparse(self, kind_of, mode):
    with self.assertRaisesRegex(
        ValueError, rf"`sparse` \({re.escape(repr(mode))}\) must be one of "
        r"'gather', 'deduplicate', 'dense'\."
        + (" Did you mean 'dense'" if mode == "dens" else "")):
      kind_of(sparse=mode)

  @parameterized.parameters(
      ({"topology": 3}, r"`topology` \(3\) must be a tf_cdops.Topology"),
      ({"topology": [["/cpu:0"]]}, "must be a tf_cdops.Topology"),
      ({"topology": PAIRED, "worker_devices": ["/cpu:0"]},
       "`topology` and `worker_devices` both group the devices; give one"))
  def test_topology(self, kwargs, message):
    with self.assertRaisesRegex(ValueError, message):
      tf_cdops.MultiWorkerAllReduce(**kwargs)

  @parameterized.product(kind_of=CLASSES, call=(
      (lambda ops, v: ops.reduce("sum", v, v), "`reduce_op` .'sum'. must be"),
      (lambda ops, v: ops.batch_reduce(SUM, 5), "must be an iterable of"),
      (lambda ops, v: ops.batch_reduce(SUM, [(v, 5)]),
       r"`value_destination_pairs\[0\]`: `destinations` .int: 5. must be")))
  def test_calls_are_checked(self, kind_of, call):
    call, message = call
    with self.assertRaisesRegex(ValueError, message):
      call(kind_of(), vectors([2])[0])

  @parameterized.parameters(*CLASSES)
  def test_empty_batch(self, kind_of):
    self.assertEqual(kind_of().batch_reduce(SUM, []), [])


if __name__ == "__main__":
  absltest.main()

"""Tests of device names."""

from absl.testing import absltest
from absl.testing import parameterized
from tests import virtual_devices  # noqa: F401  # First of all.

import hypothesis
from hypothesis import strategies as st
import tensorflow as tf

from tf_cdops.base import device_names
from tf_cdops.base import errors

Name = device_names.DeviceName

_NUMBERS = st.none() | st.integers(0, 10**6)
_WORKERS = st.builds(
    Name,
    # "cpu", "task" and the like are jobs too, if they are where a job is.
    job=st.none() | st.sampled_from(["cpu", "task", "replica0", "gpu_device"])
    | st.from_regex(r"[A-Za-z][A-Za-z0-9_]{0,8}", fullmatch=True),
    replica=_NUMBERS, task=_NUMBERS)
_TYPES = st.sampled_from(["CPU", "GPU", "TPU", "XLA_CPU"])
_NAMES = _WORKERS | st.builds(
    Name.filled, _WORKERS, st.builds(Name, type=_TYPES, index=_NUMBERS))


class DeviceNamesTest(parameterized.TestCase):

  @parameterized.parameters(
      ("/job:worker/replica:0/task:1/device:GPU:2",
       Name("worker", 0, 1, "GPU", 2)),
      ("job:worker/task:1", Name("worker", task=1)),
      ("/replica:3", Name(replica=3)),
      ("/task:0/cpu:5", Name(task=0, type="CPU", index=5)),
      ("/gpu:0", Name(type="GPU", index=0)),
      ("GPU:0", Name(type="GPU", index=0)),
      ("/device:gpu:0", Name(type="GPU", index=0)),
      ("/Tpu:11", Name(type="TPU", index=11)),
      ("/device:XLA_CPU:1", Name(type="XLA_CPU", index=1)),
      ("/cpu", Name(type="CPU")),
      ("/cpu:*", Name(type="CPU")))
  def test_parses_as_tensorflow(self, text, name):
    self.assertEqual(device_names.parse(text), name)
    spec = tf.DeviceSpec.from_string(text)
    self.assertEqual(
        Name(spec.job, spec.replica, spec.task, spec.device_type,
             spec.device_index), name)

  @parameterized.parameters(
      "", "/", "nonsense", "/gpu:x", "/gpu:-1", "/gpu:", "/gpu:0/", "//gpu:0",
      " /gpu:0", "/gpu:0\n", "/cpu:0/gpu:0", "/job:", "/job:0", "/task:x",
      "/task:1.5", "/device", "/xpu:0", "/job:a/job:b", "/job:a:0",
      "job:workerreplica:0", "/job:wcpu:0", "task:1device:CPU:0", "/task:1gpu",
      "/task:\N{ARABIC-INDIC DIGIT THREE}", None, 5, b"/gpu:0", [["/gpu:0"]])
  def test_bad_names(self, name):
    with self.assertRaisesRegex(
        errors.DeviceError,
        r"(?s)^`where` \(.*\) must be a device name; write it as /job:NAME"
        r"/replica:N/task:N/device:TYPE:N, every part optional, for example"):
      device_names.parse(name, "where")

  @hypothesis.settings(deadline=None, derandomize=True, database=None)
  @hypothesis.given(_NAMES)
  def test_text_round_trips(self, name):
    hypothesis.assume(name != Name())  # Its text is "", which is no name.
    self.assertEqual(device_names.parse(str(name)), name)

  @hypothesis.settings(deadline=None, derandomize=True, database=None)
  @hypothesis.given(_NAMES, _NAMES)
  def test_filled_keeps_what_is_given(self, name, default):
    filled = name.filled(default)
    self.assertTrue(name.admits(filled))
    self.assertEqual(name.filled(Name()), name)
    self.assertEqual(Name().filled(default), default)
    self.assertEqual(filled.filled(default), filled)

  @parameterized.parameters(
      ("/gpu:1", "/job:worker/replica:0/task:2", "/job:worker/replica:0"
       "/task:2/device:GPU:1"),
      ("/task:0/gpu:1", "/task:2/cpu:7", "/task:0/device:GPU:1"),
      ("/cpu", "/gpu:3", "/device:CPU:3"))
  def test_filled(self, name, default, filled):
    self.assertEqual(str(device_names.parse(name).filled(
        device_names.parse(default))), filled)

  @parameterized.parameters(
      ("/cpu", "/cpu:3", True),
      ("/cpu:3", "/job:worker/cpu:3", True),
      ("/job:worker", "/job:worker/task:1/gpu:0", True),
      ("/cpu:3", "/cpu:3", True),
      ("/task:0", "/job:worker/task:1", False),
      ("/cpu:3", "/cpu", False),
      ("/cpu:3", "/gpu:3", False),
      ("/job:worker/cpu:0", "/cpu:0", False))
  def test_admits(self, name, other, expected):
    self.assertEqual(device_names.parse(name).admits(
        device_names.parse(other)), expected)

  @parameterized.parameters(
      ("/gpu:1", (None, 0, 0)),
      ("/job:worker/gpu:1", ("worker", 0, 0)),
      ("/job:worker/replica:1/task:2/cpu:0", ("worker", 1, 2)))
  def test_worker(self, name, worker):
    self.assertEqual(device_names.parse(name).worker, worker)


if __name__ == "__main__":
  absltest.main()

"""Tests of which of the workers' devices are chosen, with made-up devices."""

from absl.testing import absltest
from absl.testing import parameterized

import tf_cdops
from tf_cdops.base import errors
from tf_cdops.cluster import worker_devices


def worker(*kinds: str) -> list[worker_devices.Device]:
  return [worker_devices.Device(f"/device:{kind}:{i}", kind)
          for i, kind in enumerate(kinds)]


class ChooseTest(parameterized.TestCase):

  @parameterized.parameters(
      (["CPU"], None, ["CPU:0"]),
      (["CPU", "CPU"], None, ["CPU:0", "CPU:1"]),
      (["CPU", "GPU", "GPU"], None, ["GPU:1", "GPU:2"]),
      (["CPU", "XPU", "XPU"], None, ["XPU:1", "XPU:2"]),
      (["XPU"], None, ["XPU:0"]),
      (["CPU", "XLA_CPU", "XLA_GPU", "TPU_SYSTEM"], None, ["CPU:0"]),
      (["CPU", "XLA_CPU", "GPU", "XLA_GPU"], None, ["GPU:2"]),
      (["CPU", "XPU", "GPU"], "XPU", ["XPU:1"]),
      (["CPU", "XPU", "GPU"], "gpu", ["GPU:2"]),
      (["CPU", "XPU"], "CPU", ["CPU:0"]),
      (["CPU", "TPU"], "CPU", ["CPU:0"]))
  def test_one_worker(self, kinds, device_type, names):
    self.assertEqual(
        worker_devices.choose({"w": worker(*kinds)}, device_type),
        {"w": [f"/device:{name}" for name in names]})

  def test_workers_choose_each_for_itself(self):
    self.assertEqual(
        worker_devices.choose({"b": worker("CPU"), "a": worker("CPU", "XPU")}),
        {"b": ["/device:CPU:0"], "a": ["/device:XPU:1"]})

  def test_several_kinds(self):
    with self.assertRaisesRegex(
        errors.DeviceError,
        r"^`device_type` \(None\) must be given where a worker has several "
        r"kinds of accelerators, and w1 has 1 CPU, 2 GPU, 1 XPU; pass "
        r"device_type='CPU' or device_type='GPU' or device_type='XPU'\.$"):
      worker_devices.choose({"w0": worker("CPU"),
                             "w1": worker("CPU", "GPU", "GPU", "XPU")})

  def test_a_kind_that_a_worker_lacks(self):
    with self.assertRaisesRegex(
        errors.DeviceError,
        r"^`device_type` \('XPU'\) must be a kind of device that every worker "
        "has: w0 has 1 CPU, 1 XPU; w1 has 2 CPU; w2 has none; choose one "):
      worker_devices.choose({"w0": worker("CPU", "XPU"),
                             "w1": worker("CPU", "CPU", "XLA_CPU"),
                             "w2": []}, "XPU")

  def test_no_devices(self):
    with self.assertRaisesRegex(
        errors.DeviceError, "must have workers with devices, and w0 has none"):
      worker_devices.choose({"w0": worker("XLA_CPU")})

  def test_tpus(self):
    with self.assertRaisesRegex(
        errors.DeviceError, r"has TPUs, and w0 has 1 CPU, 1 TPU; use "
        r"tf\.distribute\.TPUStrategy for them, or device_type='CPU'"):
      worker_devices.choose({"w0": worker("CPU", "TPU", "TPU_SYSTEM")})
    with self.assertRaisesRegex(
        errors.DeviceError, r"pass device_type='CPU' or device_type='GPU'\.$"):
      worker_devices.choose({"w0": worker("CPU", "TPU", "GPU")})

  @parameterized.parameters(
      ("", r"`device_type` \(''\) must be a kind of device"),
      (3, r"`device_type` \(3\) must be a kind of device"),
      ("tpu", r"`device_type` \('tpu'\) must be a kind that a Mirrored"))
  def test_bad_device_type(self, device_type, message):
    with self.assertRaisesRegex(errors.DeviceError, message):
      tf_cdops.multi_worker_strategy({"worker": ["127.0.0.1:1"]}, timeout=0.1,
                                     device_type=device_type)


if __name__ == "__main__":
  absltest.main()

"""Tests of topologies: which devices share a worker, and its host."""

import hypothesis
from absl.testing import absltest
from absl.testing import parameterized
from hypothesis import strategies as st

import tf_cdops
from tf_cdops.base import errors

_TASK = "/job:worker/replica:0/task:{}/device:{}:{}"
_CPUS = ["/cpu:0", "/cpu:1", "/cpu:2", "/cpu:3"]


class TopologyTest(parameterized.TestCase):

  @parameterized.named_parameters(
      ("full",
       [_TASK.format(0, "GPU", 0), _TASK.format(0, "GPU", 1),
        _TASK.format(1, "GPU", 0)],
       ((0, 1), (2,)), (_TASK.format(0, "CPU", 0), _TASK.format(1, "CPU", 0))),
      ("partial", ["/gpu:0", "GPU:1", "/device:gpu:2"], ((0, 1, 2),),
       ("/device:CPU:0",)),
      ("one CPU", ["/cpu:3"], ((0,),), ("/device:CPU:0",)),
      ("tasks interleaved",
       ["/task:1/gpu:0", "/task:0/gpu:0", "/task:1/gpu:1", "/task:0/gpu:1"],
       ((0, 2), (1, 3)), ("/task:1/device:CPU:0", "/task:0/device:CPU:0")),
      ("missing replica and task are 0",
       ["/job:a/gpu:0", "/job:a/task:0/gpu:1", "/job:a/replica:0/gpu:2"],
       ((0, 1, 2),), ("/job:a/device:CPU:0",)),
      ("a missing job is the only one there is",
       ["/gpu:0", "/job:a/gpu:1"], ((0, 1),), ("/device:CPU:0",)),
      ("jobs", ["/job:a/gpu:0", "/job:b/gpu:0"], ((0,), (1,)),
       ("/job:a/device:CPU:0", "/job:b/device:CPU:0")),
      ("replicas", ["/job:a/replica:0/gpu:0", "/job:a/replica:1/gpu:0"],
       ((0,), (1,)), ("/job:a/replica:0/device:CPU:0",
                      "/job:a/replica:1/device:CPU:0")),
      ("mixed kinds", ["/cpu:0", "/gpu:0"], ((0, 1),), ("/device:CPU:0",)))
  def test_groups_by_worker(self, names, workers, hosts):
    topology = tf_cdops.Topology.from_devices(names)
    self.assertEqual((topology.workers, topology.hosts), (workers, hosts))

  def test_names_are_made_uniform(self):
    topology = tf_cdops.Topology.from_devices(iter(["gpu:0", "/GPU:1"]))
    self.assertEqual(topology.devices, ("/device:GPU:0", "/device:GPU:1"))
    self.assertEqual(topology,
                     tf_cdops.Topology.from_devices(topology.devices))
    self.assertLen({topology, tf_cdops.Topology.from_devices(["/gpu:0",
                                                              "/gpu:1"])}, 1)

  @parameterized.named_parameters(
      ("halves", [["/cpu:0", "/cpu:1"], ["/cpu:2", "/cpu:3"]],
       ((0, 1), (2, 3)), ("/device:CPU:0", "/device:CPU:2")),
      ("uneven", [["cpu:0", "cpu:1", "cpu:2"], ["cpu:3"]],
       ((0, 1, 2), (3,)), ("/device:CPU:0", "/device:CPU:3")),
      ("in another order", [["/cpu:3", "/cpu:1"], ["/cpu:2", "/cpu:0"]],
       ((1, 3), (0, 2)), ("/device:CPU:1", "/device:CPU:0")),
      ("one", [_CPUS], ((0, 1, 2, 3),), ("/device:CPU:0",)),
      ("four", [[name] for name in _CPUS], ((0,), (1,), (2,), (3,)),
       tuple(f"/device:CPU:{i}" for i in range(4))))
  def test_virtual_workers(self, groups, workers, hosts):
    topology = tf_cdops.Topology.from_devices(_CPUS, workers=groups)
    self.assertEqual(topology.devices,
                     tuple(f"/device:CPU:{i}" for i in range(4)))
    self.assertEqual((topology.workers, topology.hosts), (workers, hosts))

  def test_virtual_workers_of_gpus_share_the_real_host(self):
    topology = tf_cdops.Topology.from_devices(
        ["/gpu:0", "/gpu:1"], [["/gpu:0"], ["/gpu:1"]])
    self.assertEqual(topology.hosts, ("/device:CPU:0", "/device:CPU:0"))

  @parameterized.parameters(
      ({}, {"GPU"}), ({"device_type": "CPU"}, {"CPU"}),
      ({"device_type": "TPU"}, {"TPU"}))
  def test_grid(self, kwargs, types):
    topology = tf_cdops.Topology.grid(2, 3, **kwargs)
    kind, = types
    self.assertEqual(topology.devices, tuple(
        _TASK.format(w, kind, d) for w in range(2) for d in range(3)))
    self.assertEqual(topology.workers, ((0, 1, 2), (3, 4, 5)))
    self.assertEqual(topology.hosts, (_TASK.format(0, "CPU", 0),
                                      _TASK.format(1, "CPU", 0)))
    self.assertEqual(topology.device_types, types)

  @parameterized.parameters(
      (["/cpu:0", "/gpu:0"], {"CPU", "GPU"}), (["/job:worker/task:3"], {"CPU"}))
  def test_device_types(self, names, types):
    self.assertEqual(tf_cdops.Topology.from_devices(names).device_types, types)

  @parameterized.parameters(
      (1, "CPU", True), (2, "CPU", False), (1, "GPU", False))
  def test_is_one_cpu(self, workers, kind, expected):
    topology = tf_cdops.Topology.grid(workers, 2, device_type=kind)
    self.assertEqual(topology.is_one_cpu, expected)

  @hypothesis.settings(deadline=None, derandomize=True, database=None)
  @hypothesis.given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9)),
                             min_size=1, unique=True))
  def test_every_device_is_on_its_worker(self, placed):
    topology = tf_cdops.Topology.from_devices(
        _TASK.format(task, "GPU", device) for task, device in placed)
    self.assertCountEqual(
        [rank for ranks in topology.workers for rank in ranks],
        range(len(placed)))
    for ranks, host in zip(topology.workers, topology.hosts, strict=True):
      task, = {placed[rank][0] for rank in ranks}
      self.assertEqual(host, _TASK.format(task, "CPU", 0))
      self.assertEqual(ranks, tuple(sorted(ranks)))

  @parameterized.parameters(
      ([], None, r"`names` \(none\) must name at least one device\."),
      (["/cpu:0", "nonsense"], None,
       r"`names` \('nonsense'\) must be a device name; write it as "),
      (["/cpu:0", ""], None, r"`names` \(''\) must be a device name; write "),
      ("cpu:0", None, r"`names` \('c'\) must be a device name; write it as "),
      ([5], None, r"`names` \(5\) must be a device name; write it as "),
      (["/cpu:0", "CPU:0"], None,
       r"`names` \(.*, .*\) must be distinct, and \S*/device:CPU:0 is there "
       r"twice\."),
      (["/cpu:0", "/job:localhost/replica:0/task:0/cpu:0"], None,
       r"`names` \(.*, .*\) must be distinct, and \S*/device:CPU:0 is there "
       r"twice\."),
      (_CPUS, [["/cpu:0", "/cpu:1"], ["/cpu:2"]],
       r"`workers` \(.*\) must group exactly the devices in `names` \(.*\), at "
       r"least one in each group\."),
      (_CPUS, [_CPUS, []], r"`workers` \(.*\) must group exactly the devices"),
      (_CPUS, [], r"`workers` \(\[\]\) must group exactly the devices"),
      (_CPUS, [[*_CPUS, "/cpu:4"]], r"`workers` \(.*\) must group exactly the"),
      (_CPUS, [_CPUS, ["/cpu:0"]],
       r"`workers` \(.*\) must be distinct, and /device:CPU:0 is there twice"),
      (_CPUS, [["no"]], r"`workers` \('no'\) must be a device name; write it"))
  def test_bad_devices(self, names, workers, message):
    with self.assertRaisesRegex(errors.DeviceError, f"^{message}"):
      tf_cdops.Topology.from_devices(names, workers)

  @parameterized.parameters(
      (0, 1, r"`workers` \(0\)"), (1, 0, r"`devices_per_worker` \(0\)"),
      (-1, 1, r"`workers` \(-1\)"), (1.5, 1, r"`workers` \(1\.5\)"),
      (True, 1, r"`workers` \(True\)"), ("2", 1, r"`workers` \('2'\)"),
      (1, None, r"`devices_per_worker` \(None\)"))
  def test_bad_grids(self, workers, devices_per_worker, where):
    with self.assertRaisesRegex(
        errors.DeviceError,
        rf"^{where} must be a whole number of at least 1\.$"):
      tf_cdops.Topology.grid(workers, devices_per_worker)


if __name__ == "__main__":
  absltest.main()

"""Tests of what tf_cdops.all_reduce takes, and what it refuses."""

from absl.testing import absltest
from absl.testing import parameterized
from tests import test_util
from tests import virtual_devices

import numpy as np
import tensorflow as tf

import tf_cdops
from tf_cdops.base import errors

_CPUS = virtual_devices.names(4)
_TWO_WORKERS = tf_cdops.Topology.from_devices(_CPUS, [_CPUS[:2], _CPUS[2:]])
_GPUS = ["/job:localhost/replica:0/task:0/device:GPU:0",
         "/job:localhost/replica:0/task:0/device:GPU:1"]
# A collective that waits in vain should fail its test, not outlast it.
_OPTIONS = tf.distribute.experimental.CommunicationOptions(
    implementation=(
        tf.distribute.experimental.CommunicationImplementation.RING))


def placed(*values, devices=_CPUS):
  tensors = []
  for value, device in zip(values, devices, strict=False):
    with tf.device(device):
      tensors.append(tf.identity(value))
  return tensors


def in_function(emit):
  """Runs `emit` while a tf.function is traced."""
  return tf.function(emit, autograph=False)()


class ArgumentsTest(parameterized.TestCase):

  @parameterized.parameters(
      "ps", "xring#2", "ps:4:pscpu/xring#2", "auto", (("rechd", 3),),
      ([("ps", 1, 4), ("xring", 2, -1)],),
      (tf_cdops.AllReduceSpecTuple("ps", 1, -1),))
  def test_forms_of_a_spec(self, spec):
    results = tf_cdops.all_reduce(placed([1.0, 2.0], [30.0, 40.0]), spec)
    self.assertEqual([result.numpy().tolist() for result in results],
                     [[31.0, 42.0]] * 2)

  def test_sums_by_default_and_chooses_by_itself(self):
    results = tf_cdops.all_reduce(placed(1.0, 2.0, 3.0))
    self.assertEqual([result.numpy() for result in results], [6.0] * 3)

  @parameterized.parameters("ps", "xring")
  def test_a_tape_sees_through_it_in_eager_mode(self, spec):
    tensors = placed([1.0, 2.0], [3.0, 4.0], [5.0, 6.0])
    with tf.GradientTape() as tape:
      tape.watch(tensors)
      results = tf_cdops.all_reduce(tensors, spec)
      loss = tf.add_n([tf.reduce_sum(result * result) for result in results])
    # Each of three results is the sum, [9, 12]; each adds twice itself.
    self.assertEqual([gradient.numpy().tolist()
                      for gradient in tape.gradient(loss, tensors)],
                     [[54.0, 72.0]] * 3)
    self.assertEqual([result.device for result in results], _CPUS[:3])

  def test_bytes_choose_the_algorithm(self):
    # 16 bytes are within the limit and 24 are not: nccl can't run here.
    spec = "ps:16:nccl"
    for value in ([1.0] * 4, np.ones(2)):
      self.assertLen(tf_cdops.all_reduce(placed(value, value), spec), 2)
    for value in ([1.0] * 6, np.ones(3)):
      with self.assertRaisesRegex(errors.AlgorithmError,
                                  r"`algorithm` \('nccl'\) can't run on"):
        tf_cdops.all_reduce(placed(value, value), spec)

  def test_topology_places_values_that_are_elsewhere(self):
    results = tf_cdops.all_reduce(
        [np.float32(i) for i in range(4)], "xring/ps", topology=_TWO_WORKERS)
    self.assertEqual([(result.numpy(), result.device) for result in results],
                     [(6.0, device) for device in _CPUS])

  @parameterized.parameters("nccl", "psgpu", "xring", "collective",
                            "nccl/psgpu", "auto")
  def test_one_device_is_the_identity(self, spec):
    value, = placed([1.0, 2.0])
    result, = tf_cdops.all_reduce([value], spec)
    self.assertEqual((result.numpy().tolist(), result.device),
                     ([1.0, 2.0], _CPUS[0]))

  @parameterized.product(
      spec=("collective", "ps/collective", "collective/xring"),
      dtype=("bfloat16", "complex64", "complex128", "int32"))
  def test_collective_carries_other_dtypes(self, spec, dtype):
    values = [tf.cast([[i, 2 * i], [3 * i, 4 * i]], dtype) for i in range(4)]
    for result in tf_cdops.all_reduce(placed(*values), spec,
                                      topology=_TWO_WORKERS, options=_OPTIONS):
      self.assertEqual(result.dtype, dtype)
      np.testing.assert_array_equal(
          result.numpy(), tf.cast([[6, 12], [18, 24]], dtype).numpy())

  @parameterized.parameters("ps", "xring", "rechd", "hierarchical_copy")
  def test_small_integers_on_the_fabric(self, spec):
    for dtype in ("int8", "uint8", "int32"):
      for result in tf_cdops.all_reduce(
          placed(*tf.constant([[1, 2], [3, 4], [5, 6]], dtype)), spec):
        self.assertEqual((result.dtype, result.numpy().tolist()),
                         (dtype, [9, 12]))


class BadTensorsTest(parameterized.TestCase):

  @parameterized.parameters(
      ([], "list: "), ((), "tuple: "), (None, "NoneType: None"),
      (5, "int: 5"), ({}, "dict: "), ("ps", "str: 'ps'"))
  def test_not_a_list_of_tensors(self, tensors, what):
    with self.assertRaisesRegex(
        errors.InputError, rf"^`tensors` \({what}.*\) must be a list with one "
        r"tensor per device\.$"):
      tf_cdops.all_reduce(tensors)

  def test_one_tensor_for_all(self):
    with self.assertRaisesRegex(
        errors.InputError, r"^`tensors` \(EagerTensor.*\) must be a list"):
      tf_cdops.all_reduce(tf.ones([4, 2]))

  @parameterized.parameters((None, "NoneType: None"), ("x", "str: 'x'"),
                            (object, "type: "))
  def test_not_a_tensor(self, value, what):
    with self.assertRaisesRegex(
        errors.InputError,
        rf"^`tensors\[1\]` \({what}.*\) must be a tensor, a variable"):
      tf_cdops.all_reduce([*placed(1.0), value])

  @parameterized.parameters("ps", "collective", "auto")
  def test_different_shapes(self, spec):
    for other in ([1.0] * 3, [[1.0, 2.0]], 1.0):
      with self.assertRaisesRegex(
          errors.InputError,
          r"^replica 0 has shape \(2,\) and replica 2 has \(.*\); all "
          r"replicas must have the same\.$"):
        tf_cdops.all_reduce(placed([1.0, 2.0], [1.0, 2.0], other), spec)

  def test_different_dtypes(self):
    with self.assertRaisesRegex(
        errors.InputError,
        r"^replica 0 has dtype float32 and replica 1 has float64; all replicas "
        r"must have the same dtype: cast them before the reduction\.$"):
      tf_cdops.all_reduce(placed(np.float32(1), np.float64(1)))

  @parameterized.parameters((True, "bool"), ("text", "string"))
  def test_no_numbers(self, value, dtype):
    with self.assertRaisesRegex(
        errors.InputError, f"has dtype {dtype}, which has no sum; cast it to"):
      tf_cdops.all_reduce(placed(tf.constant(value), tf.constant(value)))

  def test_indexed_slices(self):
    slices = [test_util.slices([[1.0]], [0], [2, 1], device=device)
              for device in _CPUS[:2]]
    with self.assertRaisesRegex(
        errors.InputError, r"^`tensors\[0\]` \(.*IndexedSlices.*\) must be"):
      tf_cdops.all_reduce(slices, "ps")

  def test_two_on_one_device(self):
    with self.assertRaisesRegex(
        errors.InputError,
        rf"^`tensors` 0 and 2 are both on {_CPUS[0]}; an all-reduce takes one "
        "tensor per device: place each with tf.device, or say with `topology` "
        r"where they are meant to be\.$"):
      tf_cdops.all_reduce(placed(1.0, 2.0, 3.0, devices=[
          _CPUS[0], _CPUS[1], _CPUS[0]]))

  @parameterized.parameters("/cpu:0", "/device:CPU:0", "/job:localhost/cpu:0",
                            "/task:0/device:CPU:0")
  def test_two_on_one_device_by_different_names(self, name):
    # Taken as two devices they would wait for each other in a collective.
    with self.assertRaisesRegex(errors.Error, r"CPU:0"):
      in_function(lambda: tf_cdops.all_reduce(
          placed(1.0, 2.0, devices=[_CPUS[0], name]), "ps"))


class BadArgumentsTest(parameterized.TestCase):

  @parameterized.parameters("sum", None, 0, tf.add_n)
  def test_reduce_op(self, reduce_op):
    with self.assertRaisesRegex(
        errors.InputError, r"(?s)^`reduce_op` \(.*\) must be "
        r"tf\.distribute\.ReduceOp\.SUM or tf\.distribute\.ReduceOp\.MEAN\."
        r"( Write tf\.distribute\.ReduceOp\.SUM\.)?$"):
      tf_cdops.all_reduce(placed(1.0), reduce_op=reduce_op)

  @parameterized.parameters(
      ("xring#0", r"shards of 'xring' \(0\) must be a whole number from 1 "),
      (("xring", -1), r"shards of 'xring' \(-1\) must be a whole number"),
      (("xring", 1.5), r"shards of 'xring' \(1\.5\) must be a whole number"),
      ("xring#x", r"has 'xring#x', which must be an algorithm's name"),
      ("", "has an empty part"), (None, "must be a text, a tuple"),
      ("nccl:32k", "must end with an algorithm"))
  def test_spec(self, spec, message):
    with self.assertRaisesRegex(errors.SpecError, message):
      tf_cdops.all_reduce(placed(1.0, 2.0), spec)

  def test_unknown_algorithm(self):
    with self.assertRaisesRegex(errors.AlgorithmError,
                                r"\('xrign'\) .* Did you mean 'xring'\?"):
      tf_cdops.all_reduce(placed(1.0, 2.0), "xrign")

  def test_topology_of_another_size(self):
    with self.assertRaisesRegex(
        errors.InputError, r"^`topology` has 4 devices and `tensors` 2; there "
        r"must be one tensor per device\.$"):
      tf_cdops.all_reduce(placed(1.0, 2.0), topology=_TWO_WORKERS)

  @parameterized.parameters("x", 5, [[_CPUS]])
  def test_topology_of_another_type(self, topology):
    with self.assertRaisesRegex(
        errors.InputError, r"^`topology` \(.*\) must be a tf_cdops\.Topology"):
      tf_cdops.all_reduce(placed(1.0), topology=topology)

  def test_topology_of_devices_that_are_not_here(self):
    # TensorFlow would quietly put the work on another device.
    topology = tf_cdops.Topology.from_devices(["/cpu:0", "/cpu:99"])
    with self.assertRaisesRegex(
        errors.DeviceError, r"^`topology` \('/device:CPU:99'\) must be a "
        "device of this program; choose one of /device:CPU:0, "):
      tf_cdops.all_reduce(placed(1.0, 2.0), topology=topology)

  @parameterized.parameters("int8", "uint8", "uint32", "int16")
  def test_collective_of_small_integers(self, dtype):
    for mode in (lambda emit: emit(), in_function):
      with self.assertRaisesRegex(
          errors.AlgorithmError,
          rf"^collective can't sum {dtype}; it sums (?!.*bfloat16.*bfloat16)"
          ".*int64.*: cast the values, or use another algorithm"):
        mode(lambda: tf_cdops.all_reduce(
            placed(*np.ones([2, 3], dtype)), "collective", options=_OPTIONS))


class UnmetNeedsTest(parameterized.TestCase):

  @parameterized.parameters(
      ("nccl", "nccl"), ("nccl#2", "nccl"), ("psgpu", "psgpu"),
      ("nccl/xring", "nccl"), ("psgpu/ps", "psgpu"), ("ps:1:nccl", "nccl"))
  def test_gpus_on_cpus(self, spec, name):
    algorithm = spec.split(":")[-1].split("#")[0]
    with self.assertRaisesRegex(
        errors.AlgorithmError,
        rf"^`algorithm` \('{algorithm}'\) can't run on {_CPUS[0]}, {_CPUS[1]}: "
        rf"{name} needs GPU devices only; use 'ps', 'xring' or 'rechd', which "
        r"run on any device\.$"):
      tf_cdops.all_reduce(placed([1.0, 2.0], [1.0, 2.0]), spec)

  def test_the_second_of_a_pair_counts_across_workers_only(self):
    values = placed(1.0, 2.0, 3.0, 4.0)
    self.assertLen(tf_cdops.all_reduce(values, "xring/psgpu"), 4)
    with self.assertRaisesRegex(
        errors.AlgorithmError, r"\('xring/psgpu'\) can't run on .* and 1 more: "
        "psgpu needs GPU devices only"):
      tf_cdops.all_reduce(values, "xring/psgpu", topology=_TWO_WORKERS)

  def test_nccl_across_workers(self):
    # Traced only: graphs may name devices that this machine hasn't got.
    with tf.Graph().as_default():
      workers = [f"/job:worker/replica:0/task:{i}/device:GPU:0"
                 for i in range(2)]
      for spec in ("nccl", "xring/nccl"):
        with self.assertRaisesRegex(
            errors.AlgorithmError, rf"\('{spec}'\) can't run on .*: nccl can't "
            "leave its worker; use a pair such as 'nccl/xring', whose second "
            "part runs across workers"):
          tf_cdops.all_reduce(placed(1.0, 2.0, devices=workers), spec)

  def test_nccl_without_its_kernel(self):
    with tf.Graph().as_default(), self.assertRaisesRegex(
        errors.AlgorithmError, r"\('nccl'\) can't run on .*: this TensorFlow "
        "has no NcclAllReduce kernel for it; install a build that has, or use "
        "'ps', 'xring' or 'rechd'"):
      tf_cdops.all_reduce(placed(1.0, 2.0, devices=_GPUS), "nccl")

  def test_a_mix_of_devices(self):
    with tf.Graph().as_default(), self.assertRaisesRegex(
        errors.AlgorithmError, "psgpu needs GPU devices only"):
      tf_cdops.all_reduce(
          placed(1.0, 2.0, devices=[_GPUS[0], _CPUS[0]]), "psgpu")

  def test_gpus_are_enough_for_psgpu(self):
    with tf.Graph().as_default():
      results = tf_cdops.all_reduce(placed(1.0, 2.0, devices=_GPUS), "psgpu")
      self.assertEqual([result.device for result in results], _GPUS)


if __name__ == "__main__":
  absltest.main()

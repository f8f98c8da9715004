"""What SpmdStrategy refuses, before anything is started; and one worker."""

import json
import os
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import tensorflow as tf

import tf_cdops
from tests import python_process
from tf_cdops.base import errors
from tf_cdops.cluster import spmd_arguments

_TWO = {"worker": ["127.0.0.1:23411", "127.0.0.1:23412"]}


def tf_config(cluster, job="worker", index=0):
  return mock.patch.dict(os.environ, TF_CONFIG=json.dumps(
      {"cluster": cluster, "task": {"type": job, "index": index}}))


class ArgumentsTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    # Nothing may come so far as to be started.
    self.enter_context(mock.patch.object(
        tf.distribute.Strategy, "__init__", side_effect=AssertionError))

  @parameterized.parameters(
      ({"all_reduce_spec": "nope"}, r"`algorithm` \('nope'\) must be one of"),
      ({"all_reduce_spec": None}, r"`all_reduce_spec` \(None\) must be a text"),
      ({"wire": "float8"}, r"`wire` \('float8'\) must be None, a codec.*Did "
       "you mean 'float16'"),
      ({"bytes_per_pack": 0}, r"`bytes_per_pack` \(0\) must be a whole number"),
      ({"bytes_per_pack": 1.5}, r"`bytes_per_pack` \(1.5\) must be"),
      ({"sparse": "x"}, r"`sparse` \('x'\) must be one of 'gather'"),
      ({"timeout": 0}, r"`timeout` \(0\) must be a number of seconds above 0"),
      ({"timeout": float("nan")}, r"`timeout` \(nan\) must be a number"),
      ({"timeout": True}, r"`timeout` \(True\) must be a number"),
      ({"timeout": "5"}, r"`timeout` \('5'\) must be a number"),
      ({"communication_options": 3}, r"`communication_options` \(3\) must be a "
       "tf.distribute.experimental.CommunicationOptions"),
      ({"cluster_resolver": 0}, r"`cluster_resolver` \(0\) must be a "
       "tf.distribute.cluster_resolver.ClusterResolver, or None"),
      ({"cluster_resolver": _TWO}, r"`cluster_resolver` \(\{'worker'.*must be"))
  def test_argument(self, arguments, message):
    with self.assertRaisesRegex(ValueError, message):
      tf_cdops.SpmdStrategy(**arguments)

  @parameterized.parameters(
      ("{", r"`TF_CONFIG` \('\{'\) isn't right JSON"),
      ("[]", r"`TF_CONFIG` \('\[\]'\) must be a JSON object"),
      ('{"cluster": {"worker": ["a:1"]}, "task": 3}',
       "`TF_CONFIG` has the task 3, which must be such as"),
      ('{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", '
       '"index": "x"}}', "`TF_CONFIG` has the task .*'x'.* must be such as"),
      ('{"cluster": {"worker": ["a:1"]}}', "TF_CONFIG, says that this program "
       "is task None of the job None, which must be one of the cluster's "
       "workers: /job:worker/task:0 at a:1"))
  def test_what_is_no_tf_config(self, text, message):
    with (mock.patch.dict(os.environ, TF_CONFIG=text),
          self.assertRaisesRegex(ValueError, message)):
      tf_cdops.SpmdStrategy()

  @parameterized.parameters(
      (_TWO, "worker", 2, "task 2 of the job 'worker', which must be one of"),
      (_TWO | {"evaluator": ["a:1"]}, "evaluator", 0,
       "job 'evaluator', which must be .* an evaluator needs no strategy"),
      (_TWO | {"ps": ["a:1"]}, "ps", 0, "job 'ps', which must be"),
      ({"worker": ["a:1", "a:1"]}, "worker", 0,
       "`cluster` has the address a:1 twice, for .*task:0 and .*task:1"),
      ({"worker": ["a"]}, "worker", 0, r"`address` \('a'\) must be host:port"),
      ({"worker": []}, "worker", 0, "for the job 'worker', which must be a "
       "list of addresses"),
      ({"ps": ["a:1"]}, "ps", 0, r"`cluster` \(jobs \['ps'\]\) must have"))
  def test_cluster(self, cluster, job, index, message):
    with (tf_config(cluster, job, index),
          self.assertRaisesRegex(ValueError, message)):
      tf_cdops.SpmdStrategy()

  @parameterized.parameters("0", "x", "-1", "1.5", "")
  def test_number_of_devices(self, text):
    with (mock.patch.dict(os.environ, TF_CDOPS_DEVICES=text),
          self.assertRaisesRegex(
              ValueError, rf"`TF_CDOPS_DEVICES` \('{text}'\) must be a whole "
              "number of at least 1")):
      tf_cdops.SpmdStrategy()

  def test_a_graph(self):
    with tf.Graph().as_default(), self.assertRaisesRegex(
        errors.ClusterError, "must be made in eager mode"):
      tf_cdops.SpmdStrategy()


class BegunTest(absltest.TestCase):
  """TensorFlow has begun: this process can't be a worker any more."""

  def setUp(self):
    super().setUp()
    tf.constant(1)

  def test_of_two_workers(self):
    with tf_config(_TWO), self.assertRaisesRegex(
        errors.ClusterError, "must be made before TensorFlow is used.* make "
        "it earlier, after the imports"):
      tf_cdops.SpmdStrategy()

  def test_more_devices(self):
    count = len(tf.config.list_logical_devices("CPU"))
    with (mock.patch.dict(os.environ, {
        spmd_arguments.DEVICES_VARIABLE: "2"}),
          mock.patch.object(tf.config, "list_logical_devices",
                            return_value=["CPU:0"]) as listed,
          self.assertRaisesRegex(errors.ClusterError, r"`TF_CDOPS_DEVICES` "
                                 r"\(2\) must be known before")):
      self.assertGreater(count, 0)
      tf_cdops.SpmdStrategy()
    listed.assert_called_once_with("CPU")


class OneWorkerTest(absltest.TestCase):

  def test_without_a_cluster_all_is_as_without_a_strategy(self):
    strategy = tf_cdops.SpmdStrategy(wire="bfloat16", timeout=60.0)
    replicas = strategy.num_replicas_in_sync  # As other tests left them.
    with strategy.scope():
      tf.keras.utils.set_random_seed(0)
      model = tf.keras.Sequential([
          tf.keras.layers.Input((2,)), tf.keras.layers.Dense(1)])
      model.compile(tf.keras.optimizers.SGD(0.1), "mse")
    weights, _ = model.get_weights()
    x = np.array([[1.0, 2.0], [3.0, -1.0]] * replicas, "float32")
    y = np.array([[1.001], [2.0]] * replicas, "float32")  # Not a round number.
    model.fit(x, y, batch_size=len(x), verbose=0, shuffle=False)
    gradient = 2 * x.T @ (x @ weights - y) / len(x)
    np.testing.assert_allclose(model.get_weights()[0],
                               weights - 0.1 * gradient, rtol=1e-5)
    self.assertEqual(strategy.tell_others([3]), [[3]])

  def test_messages_are_not_cut_into_pages(self):
    update = tf_cdops.SpmdStrategy().extended._update_config_proto
    config = tf.compat.v1.ConfigProto()
    self.assertEqual(update(config).experimental.recv_buf_max_chunk, 1 << 16)
    config.experimental.recv_buf_max_chunk = 5  # What a user wants, stays.
    self.assertEqual(update(config).experimental.recv_buf_max_chunk, 5)

  def test_clusters_of_one(self):
    # A port in use, one program that is a cluster, and a second strategy.
    done = python_process.run_script("""
        import json, os, socket
        import tensorflow as tf
        import tf_cdops
        from tf_cdops.base import errors

        server = socket.create_server(("", 0))
        port = server.getsockname()[1]
        os.environ["TF_CONFIG"] = json.dumps({
            "cluster": {"chief": [f"127.0.0.1:{port}"]},
            "task": {"type": "chief", "index": 0}})
        for _ in range(3):
          try:
            strategy = tf_cdops.SpmdStrategy(wire="int8", timeout=60.0)
            print(strategy.num_replicas_in_sync,
                  strategy.reduce("SUM", tf.constant([1.5]), axis=None).numpy())
          except errors.ClusterError as error:
            print(error)
          server.close()
        """)
    self.assertEqual(done.returncode, 0, done.stderr)
    in_use, fine, second = done.stdout.splitlines()
    self.assertRegex(in_use, "port .* must be free, and isn't: Address already "
                     "in use. End what uses it")
    self.assertEqual(fine, "1 [1.5]")
    self.assertRegex(second, "must be made once in a program, .* use the "
                     "strategy that there is")


class WaitingTest(absltest.TestCase):

  def test_who_does_not_begin_is_named_and_not_waited_for_for_ever(self):
    done = python_process.run_script("""
        import time
        from tf_cdops.cluster import addresses, joining, ports

        joining.JOIN_SECONDS, joining._PATIENCE, joining._AGAIN = 1, 0.1, 0.2
        port, = ports.find_free(1)
        cluster = addresses.described(
            {"worker": ["127.0.0.1:1", f"127.0.0.1:{port}"]}, "worker", 0)
        with joining.telling_who_is_missing(cluster):
          time.sleep(200)
        """)
    self.assertEqual(done.returncode, -9, done.stderr)
    first, *_, last = done.stderr.splitlines()
    self.assertRegex(
        first, "tf_cdops: SpmdStrategy waits for other programs, for 1 s in "
        r"all: /job:worker/task:1 at .* can't be reached \(Connection refused"
        r"\)\.$")
    self.assertRegex(
        last, "tf_cdops: SpmdStrategy has waited for 1 s for other programs: "
        r"/job:worker/task:1 at .*\. Killing this one \(SIGKILL, exit code 137"
        r"\); start all within that time\.$")


if __name__ == "__main__":
  absltest.main()

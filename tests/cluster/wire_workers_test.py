"""Wires between real workers: sums, bits, bytes on the network, and training.

Connecting changes TensorFlow for the rest of a process, so the script has its
own. Its network is its own, too: what its loopback carries is counted there.
"""

import functools
import json
from typing import Any

from absl.testing import absltest
from tests import python_process

import numpy as np

_SCRIPT = """\
    import json
    from tf_cdops.cluster import isolation
    # Before TensorFlow has any thread.
    is_private = isolation.enter_private_network()
    import numpy as np
    import tensorflow as tf
    import tf_cdops

    tf.get_logger().setLevel("ERROR")
    WIRES = None, "bfloat16", "float16", "int8"
    LENGTH, STEPS = 1 << 19, 4
    facts = {"is private": is_private}

    def loopback_bytes():
      for line in open("/proc/self/net/dev"):
        name, _, counts = line.partition(":")
        if name.strip() == "lo":
          return int(counts.split()[0])
      raise AssertionError("there is no loopback")

    def local(strategy, value):
      return [np.asarray(part) for part in
              strategy.experimental_local_results(value)]

    def summed(strategy):
      # Their reading is no part of a step: variables lie where they are used.
      with strategy.scope():
        number = tf.Variable(
            tf.zeros([LENGTH]), trainable=False,
            synchronization=tf.VariableSynchronization.ON_READ)
      @tf.function
      def fill():
        def of_replica():
          me = tf.distribute.get_replica_context().replica_id_in_sync_group
          number.assign(tf.random.stateless_normal(
              [LENGTH], tf.stack([7, me])))
        strategy.run(of_replica)
      fill()
      def reduced():
        return tf.distribute.get_replica_context().all_reduce(
            "sum", number.value())
      step = tf.function(lambda: strategy.run(reduced))
      # Uses the sum where it is: the client gets one number of each.
      used = tf.function(lambda: strategy.run(lambda: reduced()[:1]))
      used()
      before = loopback_bytes()
      for _ in range(STEPS):
        local(strategy, used())
      sent = loopback_bytes() - before
      terms = local(strategy, number)
      results = local(strategy, step())
      magnitudes = sum(np.abs(term) for term in terms)
      errors = np.abs(results[0] - sum(terms))
      return {
          "sent": sent / STEPS,
          "identical": len({part.tobytes() for part in results}) == 1,
          "error": float((errors / magnitudes).max()),
          "error of largest": float(errors.max() / sum(
              np.abs(term).max() for term in terms))}

    def trained(strategy):
      tf.keras.utils.set_random_seed(3)
      rng = np.random.default_rng(0)
      x = rng.normal(size=(64, 8)).astype("float32")
      y = (x @ rng.normal(size=(8, 1))).astype("float32")
      with strategy.scope():
        model = tf.keras.Sequential([tf.keras.layers.Dense(16, "relu"),
                                     tf.keras.layers.Dense(1)])
        model.compile(tf.keras.optimizers.SGD(0.05), "mse")
      history = model.fit(x, y, batch_size=16, epochs=4, shuffle=False,
                          verbose=0).history["loss"]
      identical = all(
          len({copy.tobytes() for copy in local(strategy, v.value)}) == 1
          for v in model.trainable_variables)
      return {"losses": history, "identical": identical}

    with tf_cdops.LocalCluster(2, 1, timeout=180) as cluster:
      for wire in WIRES:
        strategy = tf_cdops.multi_worker_strategy(
            cluster, tf_cdops.MultiWorkerAllReduce(
                all_reduce_spec="ps#2", wire=wire))
        facts[str(wire)] = {"summed": summed(strategy),
                            "trained": trained(strategy)}
    print(json.dumps(facts))
    """


@functools.cache  # One process for all tests here.
def facts() -> dict[str, Any]:
  outcome = python_process.run_script(_SCRIPT)
  if outcome.returncode:
    raise AssertionError(outcome.stderr[-4000:])
  return json.loads(outcome.stdout.splitlines()[-1])


class WorkersTest(absltest.TestCase):

  def test_replicas_have_the_same_bits(self):
    for wire in ("None", "bfloat16", "float16", "int8"):
      with self.subTest(wire):
        found = facts()[wire]
        self.assertTrue(found["summed"]["identical"])
        self.assertTrue(found["trained"]["identical"])

  def test_sums(self):
    self.assertLess(facts()["None"]["summed"]["error"], 1e-6)
    for wire, error, bound in (("bfloat16", "error", 0.0079),
                               ("float16", "error", 0.00098),
                               ("int8", "error of largest", 0.016)):
      found = facts()[wire]["summed"][error]
      self.assertBetween(found, 1e-5, bound, wire)

  def test_bytes_on_the_network(self):
    if not facts()["is private"]:
      self.skipTest("others' bytes can't be told apart here")
    plain = facts()["None"]["summed"]["sent"]
    # A worker sends half of its terms and half of the sums.
    self.assertBetween(plain / (4 * 2 * (1 << 19)), 0.99, 1.05)
    for wire, part in (("bfloat16", 0.5), ("float16", 0.5), ("int8", 0.251)):
      found = facts()[wire]["summed"]["sent"]
      self.assertBetween(found / plain, part - 0.01, part + 0.02, wire)

  def test_keras_fit(self):
    plain = facts()["None"]["trained"]["losses"]
    self.assertLess(plain[-1], plain[0])
    for wire in ("bfloat16", "float16", "int8"):
      np.testing.assert_allclose(facts()[wire]["trained"]["losses"], plain,
                                 rtol=0.05, err_msg=wire)


if __name__ == "__main__":
  absltest.main()

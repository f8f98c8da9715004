"""Trains over several TensorFlow servers and compares with one process.

Connecting changes TensorFlow for the rest of a process, so each script here
has its own, and checks many things in it.
"""

import functools
import json
import re
from concurrent import futures
from typing import Any

from absl.testing import absltest
from tests import python_process

import numpy as np

# It logs this, whatever its log level, when it lets go of what a worker has let
# go of already.
_OF_TENSORFLOW_2_16 = re.compile(
    r"^(?:WARNING: All log messages before absl::InitializeLog\(\).*\n)?"
    r"(?:W0000 .*destroy_tensor_handle_node\.h.*\n"
    r"Additional GRPC error information .*\n:\{.*\n?|"
    r"I0000 .*remote_tensor_handle_data\.cc.* no longer available.*\n?)+$")

# Float32 rounding: the sums of four replicas may be made in another order.
_CLOSE = {"rtol": 1e-4, "atol": 1e-6}

_COMMON = """\
    import json
    from tf_cdops.cluster import isolation
    isolation.enter_private_network()  # Before TensorFlow has any thread.
    import numpy as np
    import tensorflow as tf
    import tf_cdops

    tf.get_logger().setLevel("ERROR")  # It warns of so many tf.functions.
    facts = {}

    def strategy_over(cluster, spec, **kwargs):
      return tf_cdops.multi_worker_strategy(
          cluster, tf_cdops.MultiWorkerAllReduce(all_reduce_spec=spec),
          **kwargs)

    def failure(action):
      try:
        action()
      except Exception as error:
        return [isinstance(error, ValueError), str(error)]

    def local(strategy, value):
      return [np.asarray(v).tolist()
              for v in strategy.experimental_local_results(value)]
    """

_TRAINING = """
    layers = tf.keras.layers
    numbers = np.random.default_rng(0)
    x = numbers.normal(size=(40, 6, 6, 1)).astype("float32")
    y = numbers.integers(0, 3, 40)

    def new_model():
      tf.keras.utils.set_random_seed(3)
      model = tf.keras.Sequential([
          layers.Input((6, 6, 1)), layers.Conv2D(4, 3, activation="relu"),
          layers.Flatten(), layers.Dense(3)])
      model.compile(
          tf.keras.optimizers.SGD(0.1, momentum=0.9),
          tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
          metrics=["accuracy"])
      return model

    def train(strategy, use=False):
      with strategy.scope():
        model = new_model()
      # The last batch is a partial one: 12, 12, 12 and 4.
      model.fit(x, y, batch_size=12, epochs=2, shuffle=False, verbose=0)
      outcome = dict(
          weights=[w.ravel().tolist() for w in model.get_weights()],
          identical=all(
              len({np.asarray(copy).tobytes() for copy in
                   strategy.experimental_local_results(v.value)}) == 1
              for v in (*model.variables, *model.optimizer.variables)))
      if use:
        outcome |= dict(
            evaluated=model.evaluate(x, y, batch_size=12, verbose=0),
            predicted=model.predict(x[:11], batch_size=8, verbose=0).tolist())
      return outcome
    """

_FOUR_REPLICAS = _COMMON + _TRAINING + """
    import os, tempfile

    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0],
        [tf.config.LogicalDeviceConfiguration()] * 4)
    facts["alone"] = train(tf.distribute.MirroredStrategy(
        [f"CPU:{i}" for i in range(4)]), use=True)

    def summed(strategy):
      values = strategy.experimental_distribute_values_from_function(
          lambda context: tf.range(7.0) * (
              1.0 + context.replica_id_in_sync_group))
      def step(value):
        context = tf.distribute.get_replica_context()
        return context.all_reduce("sum", [value, value[:1] + 1.0])
      sums = tf.function(lambda v: strategy.run(step, args=(v,)))(values)
      return [local(strategy, each) for each in sums]

    def check_strategies(cluster):
      addresses = cluster.as_dict()
      facts["wrong"] = failure(lambda: tf_cdops.multi_worker_strategy(
          cluster, devices_per_worker=3))
      facts["no such kind"] = failure(lambda: tf_cdops.multi_worker_strategy(
          cluster, device_type="XPU"))
      facts["CPUs"] = list(tf_cdops.multi_worker_strategy(
          cluster, device_type="CPU").extended.worker_devices)
      facts["replicas"] = [
          tf_cdops.multi_worker_strategy(
              description, devices_per_worker=2).num_replicas_in_sync
          for description in (
              cluster, addresses, tf.train.ClusterSpec(addresses),
              tf.distribute.cluster_resolver.SimpleClusterResolver(
                  tf.train.ClusterSpec(addresses)))]
      strategy = tf_cdops.multi_worker_strategy(cluster)
      facts["devices"] = list(strategy.extended.worker_devices)
      facts["class"] = type(strategy.extended._cross_device_ops).__name__
      pieces = strategy.experimental_distribute_values_from_function(
          lambda context: tf.fill([context.replica_id_in_sync_group + 1, 2],
                                  float(context.replica_id_in_sync_group)))
      facts["gathered"] = strategy.gather(pieces, axis=0).numpy().tolist()
      facts["summed"] = {
          spec: summed(strategy_over(cluster, spec))
          for spec in ("auto", "pscpu/pscpu#2", "xring", "pscpu/xring",
                       "xring/xring", "rechd", "collective")}
      # One spec for all devices, and a pair in shards; sums are the same for
      # the others, and the example of a v1 graph trains with the default.
      facts["trained"] = {
          spec: train(strategy_over(cluster, spec), use=spec == "rechd")
          for spec in ("rechd", "xring/rechd#2")}

    IDS = 25  # Batches of 8: the last has one example, for four replicas.

    class Recorder(tf.keras.Model):
      # Counts each example's uses in a variable that replicas add to.
      def __init__(self):
        super().__init__()
        self.seen = tf.Variable(
            tf.zeros([IDS]), trainable=False,
            synchronization=tf.VariableSynchronization.ON_READ,
            aggregation=tf.VariableAggregation.SUM)
        self.dense = tf.keras.layers.Dense(1)

      def call(self, ids):
        return self.dense(tf.cast(ids, tf.float32)[:, None])

      def note(self, ids):
        self.seen.assign_add(tf.reduce_sum(
            tf.one_hot(tf.cast(ids, tf.int32), IDS), axis=0))

      def train_step(self, data):
        self.note(data[0])
        return super().train_step(data)

      def test_step(self, data):
        self.note(data[0])
        return super().test_step(data)

      def counts(self):
        return self.seen.read_value().numpy().tolist()

    class Order(tf.keras.Model):
      def call(self, ids):
        return tf.cast(ids, tf.float32)[:, None] * 2.0

    def each_id(strategy, iterable):
      return sorted(
          int(i) for batch in iterable
          for part in strategy.experimental_local_results(batch)
          for i in np.asarray(part).ravel())

    def check_input(cluster):
      strategy = tf_cdops.multi_worker_strategy(cluster)
      ids = np.arange(IDS)
      with strategy.scope():
        model = Recorder()
        model.compile("sgd", "mse")
        order = Order()
        order.compile()
      for shuffle in (True, False):
        model.seen.assign(tf.zeros([IDS]))
        model.fit(ids, ids * 0.0, batch_size=8, epochs=2, shuffle=shuffle,
                  verbose=0)
        facts[f"fit {shuffle}"] = model.counts()
      model.seen.assign(tf.zeros([IDS]))
      model.evaluate(ids, ids * 0.0, batch_size=8, verbose=0)
      facts["evaluate"] = model.counts()
      facts["predict"] = order.predict(
          ids, batch_size=8, verbose=0).ravel().tolist()
      dataset = tf.data.Dataset.range(IDS).batch(8)
      facts["distributed"] = each_id(
          strategy, strategy.experimental_distribute_dataset(dataset))
      shuffled = tf.data.Dataset.range(IDS).shuffle(IDS).batch(8)
      facts["shuffled"] = each_id(
          strategy, strategy.experimental_distribute_dataset(shuffled))

    def check_pipelines(cluster, per_worker):
      strategy = tf_cdops.multi_worker_strategy(
          cluster, input_per_worker=per_worker)
      contexts = []
      def dataset_fn(context):
        contexts.append([context.num_input_pipelines,
                         context.input_pipeline_id])
        return tf.data.Dataset.range(IDS).shard(*contexts[-1]).batch(2)
      dataset = strategy.distribute_datasets_from_function(dataset_fn)
      return [contexts, each_id(strategy, dataset)]

    def check_files(cluster, folder):
      strategy = tf_cdops.multi_worker_strategy(cluster)
      x = np.arange(24.0, dtype="float32").reshape(12, 2)
      def new_model(seed):
        tf.keras.utils.set_random_seed(seed)
        with strategy.scope():
          model = tf.keras.Sequential([
              tf.keras.layers.Input((2,)), tf.keras.layers.Dense(3)])
          model.compile(tf.keras.optimizers.Adam(), "mse")
        return model
      def state(model):
        return [[np.asarray(copy).tolist() for copy in
                 strategy.experimental_local_results(v.value)]
                for v in (*model.variables, *model.optimizer.variables)]
      model = new_model(1)
      model.fit(x, x[:, :1], batch_size=8, verbose=0)
      wanted = state(model)

      with strategy.scope():
        saved = tf.train.Checkpoint(
            model=model, optimizer=model.optimizer).save(
                os.path.join(folder, "checkpoint"))
      other = new_model(2)
      with strategy.scope():
        other.optimizer.build(other.trainable_variables)
      before = state(other)
      with strategy.scope():
        tf.train.Checkpoint(model=other, optimizer=other.optimizer).restore(
            saved).assert_existing_objects_matched()
      facts["checkpoint"] = [before != wanted, state(other) == wanted]

      file = os.path.join(folder, "x.weights.h5")
      model.save_weights(file)
      other = new_model(3)
      with strategy.scope():
        other.optimizer.build(other.trainable_variables)
      other.load_weights(file)
      facts["h5"] = [
          np.array_equal(a, b) for a, b in zip(
              model.get_weights(), other.get_weights(), strict=True)]

      file = os.path.join(folder, "x.keras")
      model.save(file)
      with strategy.scope():
        other = tf.keras.models.load_model(file)
      facts["keras"] = state(other) == wanted
      other.fit(x, x[:, :1], batch_size=8, verbose=0)
      model.fit(x, x[:, :1], batch_size=8, verbose=0)
      facts["goes on"] = state(other) == state(model) != wanted

    with (tf_cdops.LocalCluster(2, 2) as cluster,
          tempfile.TemporaryDirectory() as folder):
      check_strategies(cluster)
      check_input(cluster)
      facts["pipelines"] = [check_pipelines(cluster, per_worker)
                            for per_worker in (False, True)]
      check_files(cluster, folder)
    print(json.dumps(facts))
    """


# A program that is itself a task of its cluster: TF_CONFIG says which.
_OWN_TASK = _COMMON + _TRAINING + """
    import os, subprocess, sys
    from tf_cdops.cluster import ports

    def config(job, index):
      return json.dumps({"cluster": cluster,
                         "task": {"type": job, "index": index}})

    first, second = (f"127.0.0.1:{port}" for port in ports.find_free(2))
    if JOB == "chief":
      cluster, other = {"chief": [first], "worker": [second]}, 0
    else:
      cluster, other = {"worker": [first, second]}, 1
    worker = subprocess.Popen(
        [sys.executable, "-m", "tf_cdops", "worker", "--until_stdin_closes"],
        env=os.environ | {"TF_CONFIG": config("worker", other)},
        stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    os.environ["TF_CONFIG"] = config(JOB, 0)
    strategy = tf_cdops.multi_worker_strategy(
        tf.distribute.cluster_resolver.TFConfigClusterResolver())
    facts["devices"] = list(strategy.extended.worker_devices)
    facts["trained"] = {"auto": train(strategy)}
    worker.kill()
    worker.wait()
    print(json.dumps(facts))
    """


@functools.cache  # One process serves several classes of tests.
def facts_of(script: str) -> Any:
  outcome = python_process.run_script(script)
  if outcome.returncode:
    raise AssertionError(outcome.stderr[-4000:])
  facts = json.loads(outcome.stdout.splitlines()[-1])
  facts["stderr"] = python_process.without_warning(outcome.stderr)
  return facts


class _FourReplicasTestCase(absltest.TestCase):

  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    cls.facts = facts_of(_FOUR_REPLICAS)


class TrainingTest(_FourReplicasTestCase):

  def test_nothing_is_printed(self):
    self.assertEqual(_OF_TENSORFLOW_2_16.sub("", self.facts["stderr"]), "")

  def test_replicas(self):
    self.assertEqual(self.facts["replicas"], [4, 4, 4, 4])
    self.assertEqual(
        self.facts["devices"],
        [f"/job:worker/replica:0/task:{task}/device:CPU:{device}"
         for task in range(2) for device in range(2)])
    self.assertEqual(self.facts["CPUs"], self.facts["devices"])
    self.assertEqual(self.facts["class"], "MultiWorkerAllReduce")

  def test_a_kind_of_device_that_is_not_there(self):
    is_value_error, said = self.facts["no such kind"]
    self.assertTrue(is_value_error)
    self.assertRegex(
        said, r"^`device_type` \('XPU'\) must be a kind of device that every "
        r"worker has: /job:worker/task:0 at 127\.0\.0\.1:\d+ has 2 CPU; "
        r"/job:worker/task:1 at 127\.0\.0\.1:\d+ has 2 CPU; choose one ")

  def test_another_number_of_devices(self):
    is_value_error, said = self.facts["wrong"]
    self.assertTrue(is_value_error)
    self.assertRegex(
        said, r"^`devices_per_worker` \(3\) must be what each worker has, and "
        r"/job:worker/task:0 at 127\.0\.0\.1:\d+ has 2: /job:worker/")

  def test_gather(self):
    self.assertEqual(self.facts["gathered"],
                     [[float(i)] * 2 for i in range(4) for _ in range(i + 1)])

  def test_all_reduce(self):
    expected = [[[10.0 * i for i in range(7)]] * 4, [[4.0]] * 4]
    for spec, sums in self.facts["summed"].items():
      with self.subTest(spec):
        self.assertEqual(sums, expected)

  def test_weights_equal_those_of_one_process(self):
    for spec, together in self.facts["trained"].items():
      with self.subTest(spec):
        self.assertTrue(together["identical"])
        for ours, theirs in zip(together["weights"],
                                self.facts["alone"]["weights"], strict=True):
          np.testing.assert_allclose(ours, theirs, **_CLOSE)

  def test_evaluate_and_predict_equal_those_of_one_process(self):
    alone, together = self.facts["alone"], self.facts["trained"]["rechd"]
    for name in ("evaluated", "predicted"):
      np.testing.assert_allclose(together[name], alone[name], err_msg=name,
                                 rtol=1e-3, atol=1e-5)


class InputAndFilesTest(_FourReplicasTestCase):

  def test_fit_uses_every_example_once_an_epoch(self):
    self.assertEqual(self.facts["fit True"], [2.0] * 25)
    self.assertEqual(self.facts["fit False"], [2.0] * 25)

  def test_evaluate_uses_every_example_once(self):
    self.assertEqual(self.facts["evaluate"], [1.0] * 25)

  def test_predict_keeps_the_order(self):
    self.assertEqual(self.facts["predict"], [2.0 * i for i in range(25)])

  def test_distributed_datasets_have_every_example_once(self):
    self.assertEqual(self.facts["distributed"], list(range(25)))
    self.assertEqual(self.facts["shuffled"], list(range(25)))

  def test_one_pipeline_or_one_for_each_worker(self):
    (one, one_ids), (two, two_ids) = self.facts["pipelines"]
    self.assertEqual(one, [[1, 0]])
    self.assertEqual(two, [[2, 0], [2, 1]])
    self.assertEqual(one_ids, list(range(25)))
    self.assertEqual(two_ids, list(range(25)))

  def test_checkpoint(self):
    self.assertEqual(self.facts["checkpoint"], [True, True])

  def test_keras_files(self):
    self.assertEqual(self.facts["h5"], [True, True])
    self.assertTrue(self.facts["keras"])
    self.assertTrue(self.facts["goes on"])


class OwnTaskTest(absltest.TestCase):

  def test_the_client_can_be_a_task_that_holds_replicas(self):
    jobs = ("chief", "worker")
    with futures.ThreadPoolExecutor() as pool:
      chief, worker = pool.map(
          lambda job: facts_of(_OWN_TASK.replace("JOB", repr(job))), jobs)
    name = "/job:{}/replica:0/task:{}/device:CPU:0".format
    self.assertEqual(chief["devices"], [name("chief", 0), name("worker", 0)])
    self.assertEqual(worker["devices"], [name("worker", 0), name("worker", 1)])
    self.assertEqual(chief["trained"], worker["trained"])
    self.assertTrue(chief["trained"]["auto"]["identical"])


if __name__ == "__main__":
  absltest.main()

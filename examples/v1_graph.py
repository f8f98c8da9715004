"""Several workers in v1 graph mode, with a session: TensorFlow 1's way.

    python examples/v1_graph.py

The graph spans two workers; `MultiWorkerAllReduce` sums the gradients.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf

import tf_cdops

v1 = tf.compat.v1


def main():
  with tf_cdops.LocalCluster(num_workers=2) as cluster:
    devices = [f"/job:worker/replica:0/task:{task}/device:CPU:0"
               for task in range(cluster.num_workers)]
    with tf.Graph().as_default():
      strategy = tf.distribute.MirroredStrategy(
          devices, cross_device_ops=tf_cdops.MultiWorkerAllReduce(
              worker_devices=["/job:worker/task:0", "/job:worker/task:1"],
              num_gpus_per_worker=0))
      with strategy.scope():
        weight = v1.get_variable("weight", initializer=0.0)
        optimizer = v1.train.GradientDescentOptimizer(0.25)

      def step():
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        target = tf.cast(replica, tf.float32) * 2.0 + 2.0  # 2 and 4.
        loss = (weight - target) ** 2 / 2.0
        with tf.control_dependencies([optimizer.minimize(loss)]):
          return tf.identity(loss)

      losses = strategy.experimental_local_results(strategy.run(step))
      with v1.Session(cluster.target(0)) as session:
        session.run(v1.global_variables_initializer())
        for _ in range(20):
          shown = session.run(losses)
        values = session.run([v.read_value() for v in
                              strategy.experimental_local_results(weight)])
  print(f"losses: {[round(float(loss), 3) for loss in shown]}")
  print(f"weight on each worker: {[round(float(v), 3) for v in values]}")


if __name__ == "__main__":
  main()

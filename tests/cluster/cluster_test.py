"""Tests of cluster descriptions and probing; starts no TensorFlow server."""

import contextlib
import os
import socket
import threading
import time
from collections.abc import Iterator
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized

import tensorflow as tf

import tf_cdops
from tf_cdops.base import errors
from tf_cdops.cluster import addresses
from tf_cdops.cluster import connecting
from tf_cdops.cluster import probing

resolvers = tf.distribute.cluster_resolver

_SETTINGS = b"\0\0\0\4\0\0\0\0\0"
# Far above every limit below, far under the minutes that TensorFlow waits.
_GENEROUS = 20.0


def task_at(port: int, index: int = 0) -> addresses.Task:
  return addresses.Task("worker", index, f"127.0.0.1:{port}")


def dead_port() -> int:
  with socket.socket() as unused:
    unused.bind(("127.0.0.1", 0))
    return unused.getsockname()[1]


@contextlib.contextmanager
def silent_port() -> Iterator[int]:
  """A port that takes connections and says nothing, as a stopped process."""
  with socket.create_server(("127.0.0.1", 0), backlog=64) as listening:
    yield listening.getsockname()[1]


@contextlib.contextmanager
def port_that_says(reply: bytes, port: int = 0) -> Iterator[int]:
  """A port that answers whatever it hears with `reply`."""
  def answer() -> None:
    with contextlib.suppress(OSError):
      while True:
        connection, _ = listening.accept()
        with connection:
          connection.recv(100)
          connection.sendall(reply)

  with socket.create_server(("127.0.0.1", port)) as listening:
    thread = threading.Thread(target=answer, daemon=True)
    thread.start()
    try:
      yield listening.getsockname()[1]
    finally:
      listening.shutdown(socket.SHUT_RDWR)  # Ends the accept.
      thread.join(_GENEROUS)


class ResolveTest(parameterized.TestCase):

  @parameterized.named_parameters(
      ("dict", lambda d: d),
      ("tuples", lambda d: {job: tuple(a) for job, a in d.items()}),
      ("cluster_spec", tf.train.ClusterSpec),
      ("resolver",
       lambda d: resolvers.SimpleClusterResolver(tf.train.ClusterSpec(d))))
  def test_ways_to_describe_a_cluster(self, describe):
    cluster = addresses.resolve(describe({"worker": ["a:1", "b:2"]}))
    self.assertEqual(cluster.tasks, (addresses.Task("worker", 0, "a:1"),
                                     addresses.Task("worker", 1, "b:2")))
    self.assertEqual(cluster.workers, cluster.tasks)
    self.assertEqual(cluster.others, cluster.tasks)
    self.assertIsNone(cluster.own)
    self.assertEqual(cluster.as_dict(), {"worker": ["a:1", "b:2"]})

  def test_names(self):
    task = addresses.Task("worker", 1, "b:2")
    self.assertEqual(task.name, "/job:worker/replica:0/task:1")
    self.assertEqual(str(task), "/job:worker/task:1 at b:2")

  def test_tf_config_says_which_task_this_process_is(self):
    config = ('{"cluster": {"chief": ["a:1"], "worker": ["b:2", "c:3"]}, '
              '"task": {"type": "worker", "index": 1}}')
    with mock.patch.dict(os.environ, {"TF_CONFIG": config}):
      resolved = [
          addresses.resolve(resolvers.TFConfigClusterResolver()),
          addresses.from_tf_config()]
    for cluster in resolved:
      self.assertEqual(cluster.own, addresses.Task("worker", 1, "c:3"))
      self.assertEqual([task.address for task in cluster.others],
                       ["a:1", "b:2"])

  def test_a_client_is_no_task_of_its_cluster(self):
    config = ('{"cluster": {"worker": ["b:2"]}, '
              '"task": {"type": "client", "index": 0}}')
    with mock.patch.dict(os.environ, {"TF_CONFIG": config}):
      cluster = addresses.resolve(resolvers.TFConfigClusterResolver())
    self.assertIsNone(cluster.own)
    self.assertLen(cluster.others, 1)

  def test_no_tf_config(self):
    self.assertIsNone(addresses.from_tf_config({}))
    for text in ("", "{}", '{"task": {"type": "worker", "index": 0}}'):
      self.assertIsNone(addresses.from_tf_config({"TF_CONFIG": text}))

  @parameterized.parameters(
      ("{", "`TF_CONFIG` .* isn't right JSON"),
      ("nonsense", "nonsense"),
      ("a:1,b:2", "TF_CONFIG"),
      ("[1, 2]", "TF_CONFIG|address"),
      ('{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", '
       '"index": "x"}}', "TF_CONFIG|index"),
      ('{"cluster": {"worker": ["a:1"]}, "task": 3}', "TF_CONFIG|task"),
      ('{"cluster": 3}', "`cluster` .* must be a dict"))
  def test_bad_tf_config(self, text, regex):
    with self.assertRaisesRegex(errors.InputError, regex):
      addresses.from_tf_config({"TF_CONFIG": text})

  def test_the_chief_comes_first_and_others_hold_no_replicas(self):
    cluster = addresses.resolve(
        {"ps": ["p:1"], "worker": ["w:1", "w:2"], "evaluator": ["e:1"],
         "chief": ["c:1"]})
    self.assertEqual([task.address for task in cluster.workers],
                     ["c:1", "w:1", "w:2"])
    self.assertLen(cluster.others, 5)

  @parameterized.named_parameters(
      ("dict", lambda d: d), ("cluster_spec", tf.train.ClusterSpec))
  def test_sparse_jobs_keep_their_numbers(self, describe):
    sparse = {"worker": {3: "d:4", 1: "b:2"}}
    cluster = addresses.resolve(describe(sparse))
    self.assertEqual(cluster.workers, (addresses.Task("worker", 1, "b:2"),
                                       addresses.Task("worker", 3, "d:4")))
    # TensorFlow is given them with their numbers, too.
    spec = tf.train.ClusterSpec(cluster.as_dict())
    self.assertEqual(spec.task_indices("worker"), [1, 3])

  @parameterized.parameters(
      (None, r"`cluster` \(None\) must be a dict such as .*ClusterSpec, a "
       r"tf_cdops.LocalCluster or a .*ClusterResolver\."),
      ({}, r"`cluster` \({}\) must be a dict"),
      ("a:1", r"`cluster` \('a:1'\) must be a dict"),
      (["a:1"], r"`cluster` \(\['a:1'\]\) must be a dict"),
      (tf.train.ClusterSpec({}), r"`cluster` .* must be a dict"),
      ({"worker": []}, r"has \[\] for the job 'worker', which must be a list"),
      ({"worker": "a:1"}, r"has 'a:1' for the job 'worker'"),
      ({"worker": None}, r"has None for the job 'worker'"),
      ({"ps": ["a:1"]}, r"\(jobs \['ps'\]\) must have a job 'worker'"),
      ({"worker": {}}, r"worker"),
      ({"worker": ["a"]}, r"`address` \('a'\) must be host:port, such as"),
      ({"worker": [2222]}, r"`address` \(2222\) must be host:port"),
      ({"worker": [None]}, r"`address` \(None\) must be host:port"),
      ({"worker": {"x": "a:1"}}, r"worker"))
  def test_bad_descriptions(self, cluster, regex):
    with self.assertRaisesRegex(errors.InputError, regex):
      addresses.resolve(cluster)

  def test_a_bad_description_is_a_value_error_of_the_strategy(self):
    with self.assertRaisesRegex(ValueError, r"`cluster` \(3\) must be"):
      tf_cdops.multi_worker_strategy(3)


class TwiceTest(absltest.TestCase):

  def test_an_address_belongs_to_one_task(self):
    with self.assertRaisesRegex(
        errors.InputError, r"the address a:1 twice, for /job:chief/replica:0/"
        r"task:0 and /job:worker/replica:0/task:1; each task must have its"):
      addresses.resolve({"chief": ["a:1"], "worker": ["b:1", "a:1"]})


class AddressTest(parameterized.TestCase):

  @parameterized.parameters(
      ("host:2222", "host", 2222), ("10.0.0.5:1", "10.0.0.5", 1),
      ("[::1]:65535", "::1", 65535), ("worker-0.workers:80", "worker-0.workers",
                                      80))
  def test_split(self, address, host, port):
    self.assertEqual(addresses.split_address(address), (host, port))

  @parameterized.parameters(
      "", "host", ":2222", "host:", "host:0", "host:65536", "host:-1",
      "host:x", "host:1.5", "grpc://host")
  def test_bad(self, address):
    with self.assertRaisesRegex(
        errors.InputError, r"`address` \('.*'\) must be host:port, such as "
        r"10\.0\.0\.5:2222, with a port from 1 to 65535\."):
      addresses.split_address(address)

  @parameterized.parameters(
      ("a:1", {"worker": ["a:1"]}),
      ("a:1, b:2 ,c:3", {"worker": ["a:1", "b:2", "c:3"]}),
      ('{"chief": ["a:1"]}', {"chief": ["a:1"]}),
      (' {"cluster": {"worker": ["a:1"]}, "task": {}}', {"worker": ["a:1"]}))
  def test_parse_text(self, text, expected):
    self.assertEqual(addresses.parse_text(text), expected)

  def test_parse_text_names_the_argument(self):
    with self.assertRaisesRegex(
        errors.InputError, r"`--cluster` \('{\"a\"'\) isn't right JSON: Exp"):
      addresses.parse_text('{"a"', "--cluster")


class ProbingTest(parameterized.TestCase):

  def test_an_answer(self):
    with port_that_says(_SETTINGS) as port:
      self.assertIsNone(probing.answers(task_at(port), _GENEROUS))
      probing.wait([task_at(port)], _GENEROUS)

  def test_nobody_to_wait_for(self):
    probing.wait([], 0.0)

  def test_a_dead_port(self):
    port = dead_port()
    start = time.monotonic()
    with self.assertRaisesRegex(
        errors.ClusterError,
        rf"^after 0\.5 s: /job:worker/task:0 at 127\.0\.0\.1:{port} can't be "
        r"reached \(Connection refused\)\. Start it with `python -m tf_cdops "
        "worker`, or "):
      probing.wait([task_at(port)], 0.5)
    self.assertLess(time.monotonic() - start, _GENEROUS)

  def test_the_strategy_probes_before_it_connects(self):
    port = dead_port()
    start = time.monotonic()
    with self.assertRaisesRegex(
        errors.ClusterError, rf"task:0 at 127\.0\.0\.1:{port} can't be reach"):
      tf_cdops.multi_worker_strategy({"worker": [f"127.0.0.1:{port}"]},
                                     timeout=0.5)
    self.assertLess(time.monotonic() - start, _GENEROUS)

  def test_one_that_never_answers(self):
    with silent_port() as port, self.assertRaisesRegex(
        errors.ClusterError, rf"task:0 at 127\.0\.0\.1:{port} does not answer"):
      probing.wait([task_at(port)], 0.5)

  @parameterized.parameters(
      b"HTTP/1.1 400 Bad Request\r\n\r\n", b"", b"\0\0", b"SSH-2.0-x\r\n")
  def test_no_tensorflow_server(self, reply):
    with port_that_says(reply) as port:
      self.assertEqual(probing.answers(task_at(port), _GENEROUS),
                       "is no TensorFlow server")

  @parameterized.parameters("no-such-host.invalid", "a..b", "x" * 70)
  def test_a_host_that_does_not_exist(self, host):
    task = addresses.Task("worker", 0, f"{host}:2222")
    self.assertRegex(probing.answers(task, _GENEROUS), r"^can't be reached \(")

  def test_all_missing_are_named(self):
    with (silent_port() as silent, port_that_says(b"HTTP/1.1 ") as other,
          port_that_says(_SETTINGS) as well):
      ports = [dead_port(), silent, well, other]
      with self.assertRaisesRegex(
          errors.ClusterError,
          rf"task:0 at 127\.0\.0\.1:{ports[0]} can't be reached .*; "
          rf"/job:worker/task:1 at 127\.0\.0\.1:{silent} does not answer; "
          rf"/job:worker/task:3 at 127\.0\.0\.1:{other} is no TensorFlow "
          "server") as caught:
        probing.wait([task_at(port, i) for i, port in enumerate(ports)], 0.5)
    self.assertNotIn("task:2", str(caught.exception))

  def test_the_limit_is_for_all_together(self):
    start = time.monotonic()
    with silent_port() as port, self.assertRaisesRegex(
        errors.ClusterError, r"^after 1 s: .*task:0 .*task:15 at"):
      probing.wait([task_at(port, i) for i in range(16)], 1.0)
    self.assertLess(time.monotonic() - start, 10.0)

  def test_waits_for_one_that_comes_later(self):
    port = dead_port()
    came = []

    with contextlib.ExitStack() as stack:
      def come() -> None:
        came.append(stack.enter_context(port_that_says(_SETTINGS, port)))
      probing.wait([task_at(port)], _GENEROUS, come)
    self.assertEqual(came, [port])

  def test_give_up_ends_the_wait(self):
    def give_up() -> None:
      raise errors.ClusterError("it has ended")
    start = time.monotonic()
    with self.assertRaisesRegex(errors.ClusterError, "^it has ended$"):
      probing.wait([task_at(dead_port())], 600.0, give_up)
    self.assertLess(time.monotonic() - start, _GENEROUS)


class ClientAddressTest(absltest.TestCase):

  def test_is_kept_for_a_cluster_and_new_for_another(self):
    with port_that_says(_SETTINGS) as one, port_that_says(_SETTINGS) as two:
      first, again, *others = (
          connecting.client_address(addresses.Cluster((task_at(port),)))
          for port in (one, one, two, one, two, one))
    self.assertRegex(first, r"^127\.0\.0\.1:\d+$")
    self.assertEqual(again, first)
    # TensorFlow never closes the first, so that its port can't be had again.
    # The system may choose one of these twice, but not each.
    self.assertGreater(len({first, *others}), 2)

  def test_ipv6(self):
    try:
      listening = socket.create_server(("::1", 0), family=socket.AF_INET6)
    except OSError:
      self.skipTest("this system has no IPv6")
    with listening:
      task = addresses.Task("worker", 0, f"[::1]:{listening.getsockname()[1]}")
      self.assertRegex(connecting.client_address(addresses.Cluster((task,))),
                       r"^\[::1\]:\d+$")

  def test_an_address_that_others_reach_is_preferred(self):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
      try:
        probe.connect(("192.0.2.1", 9))  # Sends nothing; finds the route.
      except OSError:
        self.skipTest("this machine has no network")
      host = probe.getsockname()[0]
    with (port_that_says(_SETTINGS) as near,
          socket.create_server((host, 0)) as far):
      cluster = addresses.Cluster((task_at(near), addresses.Task(
          "worker", 1, f"{host}:{far.getsockname()[1]}")))
      self.assertStartsWith(connecting.client_address(cluster), f"{host}:")


class LocalClusterTest(parameterized.TestCase):

  @parameterized.product(name=["num_workers", "devices_per_worker"],
                         value=[0, -1, 65, 1.0, "2", None, True])
  def test_bad_arguments(self, name, value):
    with self.assertRaisesRegex(
        errors.InputError, rf"`{name}` \({value!r}\) must be from 1 to 64\."):
      tf_cdops.LocalCluster(**{name: value})

  def test_use_before_start(self):
    cluster = tf_cdops.LocalCluster(3, 2)
    self.assertEqual(repr(cluster), "LocalCluster(3, 2)")
    for use in (cluster.as_dict, cluster.target, lambda: cluster.pid(0),
                lambda: cluster.restart(0),
                lambda: tf_cdops.multi_worker_strategy(cluster)):
      with self.assertRaisesRegex(
          errors.ClusterError, "doesn't run; use it in a `with` block"):
        use()

  def test_stop_before_start(self):
    tf_cdops.LocalCluster().stop()


if __name__ == "__main__":
  absltest.main()

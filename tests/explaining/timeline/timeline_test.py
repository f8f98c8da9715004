"""A timeline from made-up events: exact, and without TensorFlow."""

import json

from absl.testing import absltest
from absl.testing import parameterized
from tests import timeline_events as made
from tests import timeline_format

from tf_cdops.explaining.timeline import advice
from tf_cdops.explaining.timeline import aligning
from tf_cdops.explaining.timeline import assembling
from tf_cdops.explaining.timeline import chrome
from tf_cdops.explaining.timeline import intervals
from tf_cdops.explaining.timeline import reading
from tf_cdops.explaining.timeline import summary as summary_lib
from tf_cdops.explaining.timeline import trace as trace_lib
from tf_cdops.explaining.timeline import wording


def read(threads, end=100.0, origin=0):
  return reading.read(threads, end, made.GRAPH, origin=origin)


def trace_of(late=0.0, **kwargs):
  return assembling.assemble([read(made.one_step(late))], [made.BUCKET],
                             made.DEVICES, 3, **kwargs)


class IntervalsTest(parameterized.TestCase):

  @parameterized.parameters(
      ([(0, 4)], [], [(0, 4)]), ([(0, 4)], [(1, 2)], [(0, 1), (2, 4)]),
      ([(0, 4)], [(-1, 5)], []), ([(0, 4), (6, 8)], [(3, 7)], [(0, 3), (7, 8)]),
      ([(0, 2), (3, 5)], [(1, 4)], [(0, 1), (4, 5)]), ([], [(1, 4)], []),
      ([(0, 9)], [(1, 2), (3, 4), (8, 9)], [(0, 1), (2, 3), (4, 8)]))
  def test_minus(self, these, those, expected):
    self.assertEqual(intervals.minus(these, those), expected)

  def test_union(self):
    self.assertEqual(
        intervals.union([(3, 4), (0, 1), (1, 2), (3.5, 5), (7, 7)]),
        [(0, 2), (3, 5)])

  def test_within(self):
    self.assertEqual(intervals.within([(0, 3), (5, 9)], 2, 6),
                     [(2, 3), (5, 6)])
    self.assertEqual(intervals.length([(2, 3), (5, 6.5)]), 2.5)


class ReadingTest(absltest.TestCase):

  def test_finds_what_ran_where(self):
    found = read(made.one_step())
    self.assertEqual(found.runs, {5: (0.5, 7.5)})
    self.assertEqual(found.marks, (reading.Mark(7, 0, 8),))
    self.assertEqual(
        [(one.op, one.device, one.start, one.end, one.waits)
         for one in found.kernels],
        [("MatMul", made.DEVICES[0], 1, 3, False),
         ("MatMul", made.DEVICES[1], 1, 3, False),
         ("_Recv", made.DEVICES[0], 1, 4, True),
         ("_Send", made.DEVICES[1], 3, 3.25, False),
         ("AddN", made.DEVICES[0], 4.5, 6.5, False)])

  def test_a_key_goes_before_the_graph(self):
    edge = made.GRADIENT.format(0)
    found = reading.read([[
        made.loop(1, 1, 0, 9), made.kernel(edge, "MatMul", 1, 2),
        made.kernel(edge, "MatMul", 2, 3),
        made.send(f"{edge}/_1", "x", (made.DEVICES[1], made.DEVICES[0]), 3, 4)
    ]], 9, made.GRAPH)
    self.assertEqual({one.device for one in found.kernels},
                     {made.DEVICES[1]})

  def test_leaves_out_what_runs_in_no_function(self):
    found = reading.read([[made.kernel("a", "AddN", 1, 2)]], 9, {})
    self.assertEqual(found.kernels, ())

  def test_survives_json(self):
    found = read(made.one_step(), origin=12)
    self.assertEqual(reading.Reading.from_json(
        json.loads(json.dumps(found.to_json()))), found)

  def test_counts_from_another_moment(self):
    found = read(made.one_step(), origin=3_000_000_000).since(1_000_000_000)
    self.assertEqual((found.start, found.origin, found.runs[5]),
                     (2.0, 1_000_000_000, (2.5, 9.5)))


class AligningTest(absltest.TestCase):

  def reading(self, start, end):
    return reading.Reading((reading.Kernel("a", "AddN", "d", start, end, 1),),
                           {1: (10.0, 20.0)}, (), 0, 100)

  def clock(self, start, end):
    return aligning.worker_with_client("w", self.reading(11, 12),
                                       self.reading(start, end))

  def test_a_clock_that_may_be_right_is_left(self):
    self.assertEqual(self.clock(11, 18), trace_lib.Clock("w", 0.0, 2.0))

  def test_one_that_is_wrong_is_moved_as_little_as_it_must(self):
    self.assertEqual(self.clock(4, 9), trace_lib.Clock("w", 6.0, 5.0))
    self.assertEqual(self.clock(114, 118), trace_lib.Clock("w", -98.0, 6.0))

  def test_nothing_tells(self):
    empty = self.reading(1, 2)._replace(kernels=())
    self.assertEqual(
        aligning.worker_with_client("w", self.reading(1, 2), empty),
        trace_lib.Clock("w", 0.0, None))

  def test_programs(self):
    # It asks at 3 and 13 by a clock that is 100 ahead.
    self.assertEqual(
        aligning.programs("w", [(1, 5), (11, 14)], [(103, 106), (113, 115)]),
        trace_lib.Clock("w", -99.0, 5.0))


class AssemblingTest(absltest.TestCase):

  def test_spans_transfers_and_buckets(self):
    trace = trace_of()
    self.assertEqual(trace.steps, (trace_lib.Step(7, 0, 8),))
    self.assertEqual(
        [(span.kind, span.bucket, span.device[-1]) for span in trace.spans],
        [("computing", None, "0"), ("computing", None, "1"),
         ("communication", 0, "1"), ("communication", 0, "0")])
    self.assertEqual([(one.start, one.end, one.bucket)
                      for one in trace.transfers], [(3, 4, 0)])
    self.assertEqual(trace.buckets, (made.BUCKET,))

  def test_a_bucket_of_which_nothing_is_known(self):
    trace = assembling.assemble([read(made.one_step())], [], made.DEVICES, 3)
    self.assertEqual(trace.buckets, (trace_lib.Bucket(
        "PartitionedCall/adam/tf_cdops", 0, "ps"),))

  def test_batches_are_told_apart(self):
    threads = [[made.mark(0, 0, 9), *made.call(5, 0, 9)],
               [made.loop(5, 1, 0, 9), *(
                   made.kernel(f"{made.GRADIENT.format(0)}", "MatMul", i, i + 1)
                   for i in range(2)),
                made.kernel("adam/tf_cdops_1/bucket_0/ps/AddN", "AddN", 3, 4),
                made.kernel("adam/tf_cdops/bucket_0/ps/AddN", "AddN", 4, 5)]]
    other = trace_lib.Bucket("adam/tf_cdops_1", 0, "xring")
    trace = assembling.assemble([read(threads)], [made.BUCKET, other],
                                made.DEVICES, 3)
    self.assertEqual([span.bucket for span in trace.spans],
                     [None, None, 1, 0])

  def test_without_marks_each_run_that_all_reduces_is_a_step(self):
    threads = [[event for event in events if event.name != reading.MARK]
               for events in made.one_step()]
    trace = assembling.assemble([read(threads)], [made.BUCKET], made.DEVICES,
                                3)
    self.assertEqual(trace.steps, (trace_lib.Step(0, 0, 7),))

  def test_steps_that_a_worker_saw_in_part_are_left_out(self):
    client = read(made.one_step())
    worker = client._replace(kernels=(), marks=(), runs={}, end=7.0)
    trace = assembling.assemble([client, worker], [made.BUCKET],
                                made.DEVICES, 3)
    self.assertEqual((trace.steps, trace.spans), ((), ()))

  def test_programs_that_are_not_in_step(self):
    def program(start):
      return read([[made.mark(0, start, start + 4), *made.call(5, start, 9),
                    made.mark(1, start + 5, start + 8)],
                   [made.loop(5, 1, start, 9), made.kernel(
                       made.GRADIENT.format(0), "MatMul", start, start + 3)]])
    trace = assembling.assemble([program(2.0), program(0.0)], [],
                                made.DEVICES, 3)
    self.assertEqual(trace.steps, (trace_lib.Step(0, 0, 6),
                                   trace_lib.Step(1, 6, 10)))
    self.assertEqual([span.start for span in trace.spans], [2, 0])

  def test_links(self):
    devices = [made.worker_device(0), made.worker_device(1)]
    edge = made.GRADIENT.format(1)
    client = read([[made.mark(0, 0, 9), *made.call(5, 0, 9)]])
    first = read([[made.loop(5, 3, 0, 9), *made.receive(f"{edge}/_4", 5, 1, 6),
                   made.send("x/_9", "y", (devices[0], devices[1]), 7, 8)]])
    second = read([[made.loop(5, 4, 0, 9), made.send(
        f"{edge}/_3", made.OP.format(0), (devices[1], devices[0]), 2, 3)]])
    trace = assembling.assemble([client, first, second], [made.BUCKET],
                                devices, 3)
    self.assertEqual(
        {summary_lib.link_name(ends): [(one.start, one.end) for one in some]
         for ends, some in summary_lib.links(trace).items()},
        {"worker 1 → worker 0": [(2, 6)]})


class SummaryTest(absltest.TestCase):

  def test_figures(self):
    found = summary_lib.summarize(trace_of())
    self.assertEqual((found.num_steps, found.step, found.computing),
                     (1, 8, 2))
    # The transfer from 3 to 4, and the sum from 4.5 to 6.5.
    self.assertEqual((found.communication, found.exposed), (3, 3))
    self.assertEqual([(times.seconds, times.exposed, times.by_prediction)
                      for times in found.buckets], [(3, 3, 6)])
    self.assertEqual([(lane.busy, lane.waiting) for lane in found.lanes],
                     [(4, 4), (2.25, 5.75)])

  def test_blames_the_last_replica(self):
    late = summary_lib.summarize(trace_of(late=5.0)).late
    self.assertEqual((late.replica, late.device, late.by, late.waiting,
                      late.steps), (1, made.DEVICES[1], 5, 5, 1))

  def test_hidden_communication(self):
    threads = made.one_step()
    threads.append([made.loop(5, 2, 3, 7),
                    made.kernel(made.GRADIENT.format(1), "MatMul", 3.5, 5.5)])
    trace = assembling.assemble([read(threads)], [made.BUCKET], made.DEVICES,
                                3)
    found = summary_lib.summarize(trace)
    self.assertEqual((found.communication, found.exposed), (3, 1.5))


class AdviceTest(parameterized.TestCase):

  @parameterized.parameters(
      (5.0, (), r"^Replica 1 \(CPU:1\) is late by 5 s of a step of 13 s"),
      (0.0, (), r"3 s of a step of 8 s are communication that nothing hides, "
       r"most of them \(3 s\) for bucket 0"),
      (0.0, (trace_lib.Saving("wire='bfloat16'", 0.5),),
       r"^wire='bfloat16' would save about 1.5 s: 3 s .* 50% of the time"),
      (0.0, (trace_lib.Saving("wire='bfloat16'", 0.95),), "nothing hides"))
  def test_has_the_figure(self, late, savings, expected):
    trace = trace_of(late, savings=savings)
    self.assertRegex(advice.advise(trace, summary_lib.summarize(trace)),
                     expected)


class WordingTest(absltest.TestCase):

  def test_report(self):
    clock = trace_lib.Clock("worker 1", -0.002, 0.001)
    trace = trace_of(clocks=(clock,))
    text = wording.report(trace, summary_lib.summarize(trace))
    for words in ("exposed communication", "38% of the step",
                  "4,096", "dense/kernel", "waiting for the last replica",
                  "worker 1's clock was moved back by 2 ms, known to within "
                  "1 ms."):
      self.assertIn(words, " ".join(text.split()))
    self.assertLessEqual(max(map(len, text.splitlines())), 100)

  def test_as_data(self):
    trace = trace_of()
    content = json.loads(json.dumps(
        wording.to_dict(trace, summary_lib.summarize(trace))))
    self.assertEqual(content["buckets"], [{
        "scope": "adam/tf_cdops", "bucket": 0, "algorithm": "ps",
        "bytes": 4096, "variables": ["dense/kernel"], "seconds": 3,
        "exposed_seconds": 3, "predicted_seconds": 0.5}])
    self.assertEqual(content["last_replica"]["replica"], 0)


class ChromeTest(absltest.TestCase):

  def test_is_in_the_format(self):
    content = json.loads(json.dumps(chrome.events(trace_of())))
    timeline_format.check(self, content)
    names = [event["name"] for event in content["traceEvents"]]
    self.assertIn("ps, 4 KiB: dense/kernel", names)

  def test_overlapping_kernels_get_lanes_of_their_own(self):
    threads = made.one_step()
    threads.append([made.loop(5, 2, 1, 5),
                    made.kernel(made.GRADIENT.format(1), "MatMul", 2, 5)])
    trace = assembling.assemble([read(threads)], [made.BUCKET], made.DEVICES,
                                3)
    content = chrome.events(trace)
    timeline_format.check(self, content)
    lanes = [event["args"]["name"] for event in content["traceEvents"]
             if event["name"] == "thread_name"]
    self.assertIn("CPU:1, replica 1 (2)", lanes)


if __name__ == "__main__":
  absltest.main()

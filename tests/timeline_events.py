"""Made-up profiles and traces, for the tests of timelines."""

from tf_cdops.explaining.timeline import reading
from tf_cdops.explaining.timeline import trace

DEVICES = tuple(f"/job:localhost/replica:0/task:0/device:CPU:{i}"
                for i in range(2))
GRADIENT = "PartitionedCall/gradient_tape/replica_{}/dense/MatMul"
SCOPE = "adam/tf_cdops"
OP = "PartitionedCall/adam/tf_cdops/bucket_{}/ps/AddN"


def worker_device(task: int) -> str:
  return f"/job:worker/replica:0/task:{task}/device:CPU:0"


def loop(run: int, number: int, start: float,
         end: float) -> reading.Event:
  """A device's loop in an executor."""
  return reading.Event("ExecutorState::Process", start, end,
                       {"id": run, "_c": number})


def kernel(name: str, op: str, start: float, end: float) -> reading.Event:
  return reading.Event(f"{name}:{op}", start, end)


def send(name: str, to: str, ends: tuple[str, str], start: float,
         end: float) -> reading.Event:
  return reading.Event(f"{name}:_Send", start, end, {
      "from": name, "to": to, "key": f"{ends[0]};1;{ends[1]};edge;0:0"})


def receive(name: str, run: int, start: float,
            end: float) -> list[reading.Event]:
  stats = {"name": name, "kernel_type": "_Recv", "step_id": run}
  return [reading.Event("ExecutorState::ProcessAsync::Start", start, start,
                        stats),
          reading.Event("ExecutorState::ProcessAsync::Done", end, end, stats)]


def call(run: int, start: float, end: float) -> list[reading.Event]:
  """A call of a function, in the thread of the program."""
  return [reading.Event("EagerLocalExecute: __inference_step", start, end),
          reading.Event("FunctionRun", start, start, {"id": run})]


def mark(number: int, start: float, end: float) -> reading.Event:
  return reading.Event(reading.MARK, start, end, {"step_num": number})


def one_step(late: float = 0.0) -> list[list[reading.Event]]:
  """Threads: two devices compute, one sends to the other, which adds up.

  Computing takes from 1 to 3 on both, on the second `late` more; then a
  transfer takes 1, and the sum 2.
  """
  at = 3 + late
  end = at + 4
  edge = GRADIENT.format(1)
  return [
      [mark(7, 0, end + 1), *call(5, 0.5, end + 0.5)],
      [loop(5, 1, 0.9, 3), kernel(GRADIENT.format(0), "MatMul", 1, 3),
       *receive(f"{edge}/_8", 5, 1, at + 1),
       loop(5, 1, at + 1, end),
       kernel(OP.format(0), "AddN", at + 1.5, at + 3.5)],
      [loop(5, 2, 0.9, at + 0.5), kernel(edge, "MatMul", 1, at),
       send(f"{edge}/_7", OP.format(0), (DEVICES[1], DEVICES[0]), at,
            at + 0.25)]]


# By the names in the function's own graph.
GRAPH = {GRADIENT.format(0).partition("/")[2]: DEVICES[0]}
BUCKET = trace.Bucket(SCOPE, 0, "ps", 4096, ("dense/kernel",), 0.5)

"""The targets for the spec "auto", as data, and whether they are met.

Each is a ratio of ours to the best of others in the same cell of the same run.
"""

import dataclasses
from collections.abc import Sequence

from benchmarks import cells

TIME, NODES, BUILD = "median", "nodes", "build_seconds"
_AUTO = "auto"


@dataclasses.dataclass(frozen=True)
class Target:
  """A limit for some cells.

  Attributes:
    text: what it is about, for people.
    mode: of the cells.
    loads: of the cells.
    devices: of the cells.
    limit: the largest ratio that meets it.
    against: the family whose best it is held against.
    quantity: what is compared, a field of `cells.Result`.
  """

  text: str
  mode: str
  loads: tuple[str, ...]
  devices: tuple[int, ...]
  limit: float
  against: str = cells.TENSORFLOW
  quantity: str = TIME

  def covers(self, cell: cells.Cell) -> bool:
    return (cell.mode == self.mode and cell.load in self.loads
            and cell.devices in self.devices)


_G, _EVERY = cells.GRAPH, (2, 4, 8)
TARGETS = (
    Target("resnet, N = 2", _G, ("resnet",), (2,), 1.0),
    Target("resnet, N = 2, of the floor", _G, ("resnet",), (2,), 1.15,
           cells.FLOOR),
    Target("resnet, N = 4 and 8", _G, ("resnet",), (4, 8), 0.75),
    Target("big, every N", _G, ("big",), _EVERY, 1.0),
    Target("big, every N, of the floor", _G, ("big",), _EVERY, 1.1,
           cells.FLOOR),
    Target("small, every N", _G, ("small",), _EVERY, 0.8),
    Target("nodes, resnet, every N, of the leanest", _G, ("resnet",), _EVERY,
           0.4, quantity=NODES),
    Target("build time, resnet and small, of the quickest", _G,
           ("resnet", "small"), _EVERY, 0.4, quantity=BUILD),
    Target("eager: resnet, N = 8", cells.EAGER, ("resnet",), (8,), 0.6),
    Target("eager: small, N = 8", cells.EAGER, ("small",), (8,), 0.25),
    Target("two workers: resnet", cells.WORKERS, ("resnet",), (2,), 0.4,
           cells.MULTI_WORKER),
    Target("two workers: small", cells.WORKERS, ("small",), (2,), 1.0,
           cells.MULTI_WORKER),
    Target("two workers: big", cells.WORKERS, ("big",), (2,), 0.4,
           cells.MULTI_WORKER),
    Target("two workers: resnet, no slower than Gloo", cells.WORKERS,
           ("resnet",), (2,), 1.0, cells.GLOO),
)


@dataclasses.dataclass(frozen=True)
class Verdict:
  """A target held against one cell.

  Attributes:
    target: what was wanted.
    cell: where.
    ours: our figure; None if it wasn't measured.
    best: theirs; None if it wasn't measured.
    rival: whose figure that is.
    wrong: elements of ours that weren't the exact sum.
    nothing: the time of a step that reduces nothing, which is part of both;
      None if it wasn't measured.
    between: where the ratio of times is, with a confidence of at least 90%.
  """

  target: Target
  cell: cells.Cell
  ours: float | None
  best: float | None
  rival: str
  wrong: int
  nothing: float | None = None
  between: tuple[float, float] | None = None

  @property
  def ratio(self) -> float | None:
    if self.ours is None or not self.best:
      return None
    return self.ours / self.best

  @property
  def met(self) -> bool | None:
    """None if it wasn't measured."""
    if self.ratio is None:
      return None
    return self.ratio <= self.target.limit and not self.wrong


def judge(measured: Sequence[cells.Measured]) -> list[Verdict]:
  """Returns a verdict for each target in each cell it covers."""
  by_cell = {one.cell: one for one in measured}
  return [_verdict(target, cell, by_cell.get(cell))
          for target in TARGETS
          for cell in sorted(cells.all_cells(), key=lambda c: (c.load, c))
          if target.covers(cell)]


def _verdict(target: Target, cell: cells.Cell,
             measured: cells.Measured | None) -> Verdict:
  """A rival whose own sums are wrong isn't one."""
  ours = [r for r in (measured.of(cells.OURS) if measured else ())
          if r.contender == _AUTO]
  rivals = [r for r in (measured.of(target.against) if measured else ())
            if not r.wrong]
  figure = lambda result: getattr(result, target.quantity)
  best = min(rivals, key=figure, default=None)
  between = None
  if ours and best and target.quantity == TIME:
    between = ours[0].low / best.high, ours[0].high / best.low
  return Verdict(
      target, cell, figure(ours[0]) if ours else None,
      figure(best) if best else None, best.contender if best else "",
      sum(r.wrong for r in ours), next(
          (r.median for r in (measured.of(cells.NOTHING) if measured else ())
           if target.quantity == TIME), None), between)

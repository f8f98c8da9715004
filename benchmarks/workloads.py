"""What is all-reduced: the gradients of some models, and extremes.

Shapes alone, with no TensorFlow, so that any process can ask for them. A test
holds those of ResNet-50 and MobileNetV2 equal to the ones that Keras makes.
"""

from collections.abc import Callable, Iterable

from tf_cdops.cli import loads
from tf_cdops.planning import planner

_Shapes = list[tuple[int, ...]]


def named(name: str) -> loads.Load:
  """Returns a load by its name, or what `of_count` can make."""
  known: dict[str, Callable[[], _Shapes]] = {
      "resnet": resnet50, "mobilenet": mobilenet_v2, "bert": bert_base,
      "one": lambda: [(16 << 20,)],
      "uneven": lambda: [(1024,)] * 60 + [(4 << 20,)],
      "small": lambda: [(256,)] * 500,
      "big": lambda: [(2048, 2048)] * 4}
  if name in known:
    return _load(name, known[name]())
  return of_count(int(name.removeprefix("mixed")))


def of_count(count: int) -> loads.Load:
  """Returns matrices, every other one small enough to be packed by "auto"."""
  return _load(f"mixed{count}", (
      [(8, 32), (128, 256), (64,), (256, 128)] * (count // 4 + 1))[:count])


def _load(name: str, shapes: Iterable[tuple[int, ...]]) -> loads.Load:
  return loads.Load(name, tuple(
      planner.TensorSize.from_shape(shape, "float32") for shape in shapes))


def resnet50() -> _Shapes:
  """The trainable variables of tf.keras.applications.ResNet50: 214, 102 MB."""
  shapes = _convolution(7, 3, 64) + _norm(64)
  channels = 64
  for filters, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
    for block in range(blocks):
      shapes += _bottleneck(channels, filters, shortcut=block == 0)
      channels = 4 * filters
  return [*shapes, (channels, 1000), (1000,)]


def _bottleneck(channels: int, filters: int, shortcut: bool) -> _Shapes:
  wide = 4 * filters
  shapes = _convolution(1, channels, filters) + _norm(filters)
  shapes += _convolution(3, filters, filters) + _norm(filters)
  if shortcut:
    shapes += _convolution(1, channels, wide)
  shapes += _convolution(1, filters, wide) + _norm(wide)
  return shapes + (_norm(wide) if shortcut else [])


def _convolution(size: int, channels: int, filters: int) -> _Shapes:
  return [(size, size, channels, filters), (filters,)]


def _norm(size: int) -> _Shapes:
  return [(size,), (size,)]


def mobilenet_v2() -> _Shapes:
  """Those of tf.keras.applications.MobileNetV2: 158, 14 MB, most are tiny."""
  shapes: _Shapes = [(3, 3, 3, 32), *_norm(32)]
  channels = 32
  for expansion, filters, blocks in ((1, 16, 1), (6, 24, 2), (6, 32, 3),
                                     (6, 64, 4), (6, 96, 3), (6, 160, 3),
                                     (6, 320, 1)):
    for _ in range(blocks):
      wide = expansion * channels
      if expansion > 1:
        shapes += [(1, 1, channels, wide), *_norm(wide)]
      shapes += [(3, 3, wide, 1), *_norm(wide)]
      shapes += [(1, 1, wide, filters), *_norm(filters)]
      channels = filters
  return [*shapes, (1, 1, channels, 1280), *_norm(1280), (1280, 1000), (1000,)]


def bert_base() -> _Shapes:
  """The weights of BERT-base, uncased: 199 tensors, 438 MB."""
  hidden, inner = 768, 3072
  shapes: _Shapes = [(30522, hidden), (512, hidden), (2, hidden)]
  shapes += _norm(hidden)
  for _ in range(12):
    shapes += 4 * [(hidden, hidden), (hidden,)] + _norm(hidden)
    shapes += [(hidden, inner), (inner,), (inner, hidden), (hidden,)]
    shapes += _norm(hidden)
  return [*shapes, (hidden, hidden), (hidden,)]

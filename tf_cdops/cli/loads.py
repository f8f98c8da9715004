"""What a command is to reduce: given sizes, or the gradients of a model."""

import argparse
import dataclasses
import os
import re
from collections.abc import Iterable
from typing import Any

from tf_cdops.base import errors
from tf_cdops.planning import planner
from tf_cdops.planning import spec

DEFAULT_SIZES = "500x1k,4x16m"
# Bytes an element, of the types that gradients have.
DTYPES = {name: planner.ITEMSIZES[name] for name in (
    "float16", "bfloat16", "float32", "float64", "int32", "int64",
    "complex64", "complex128")}
# More than any model has; beyond it a number was mistyped.
_MAX_TENSORS = 100_000
_ITEM = re.compile(r"(?:(?P<count>\d{1,18})x)?(?P<bytes>\d{1,18}[kmg]?)",
                   re.IGNORECASE)


@dataclasses.dataclass(frozen=True)
class Load:
  """The tensors that are reduced together, and what to call them."""

  name: str
  sizes: tuple[planner.TensorSize, ...]

  @property
  def num_bytes(self) -> int:
    """The bytes of all tensors, on one replica."""
    return planner.total_bytes(self.sizes)


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds --sizes, --model, --saved_model and --dtype."""
  group = parser.add_argument_group(
      "what to reduce", "One of --sizes, --model and --saved_model.")
  one = group.add_mutually_exclusive_group()
  one.add_argument("--sizes", metavar="LIST",
                   help="tensors, as counts and bytes: 500x1k,4x16m")
  one.add_argument("--model", metavar="NAME",
                   help="a model of tf.keras.applications, such as ResNet50")
  one.add_argument("--saved_model", metavar="PATH",
                   help="a .keras file or the folder of a SavedModel, which "
                   "you trust: a model is a program")
  group.add_argument(
      "--dtype", choices=sorted(DTYPES), metavar="TYPE",
      help="the tensors' type (default: float32, or the model's own)")


def given(args: argparse.Namespace) -> bool:
  """Whether the user said what to reduce."""
  return any(value is not None
             for value in (args.sizes, args.model, args.saved_model))


def from_args(args: argparse.Namespace,
              default: str = DEFAULT_SIZES) -> Load:
  """Returns what the flags ask for; `default` are sizes if they don't.

  TensorFlow is loaded only for a model.
  """
  if args.model is not None:
    return _of_variables(args.model, _application(args.model), args.dtype)
  if args.saved_model is not None:
    return _of_variables(os.path.basename(os.path.normpath(args.saved_model)),
                         _saved(args.saved_model), args.dtype)
  return parse_sizes(default if args.sizes is None else args.sizes,
                     args.dtype or "float32")


def parse_sizes(text: str, dtype: str = "float32") -> Load:
  """Returns a load from "500x1k,4x16m": counts and bytes."""
  sizes: list[planner.TensorSize] = []
  for item in text.split(","):
    match = _ITEM.fullmatch(item.strip())
    if not match:
      raise errors.InputError(
          f"`--sizes` ({text!r}) must be counts and bytes such as "
          f"{DEFAULT_SIZES}, and {item!r} isn't: both are whole numbers, and "
          "bytes may end in k, m or g, up to "
          f"{spec.format_bytes(planner.MOST_BYTES)}.")
    count = int(match["count"] or 1)
    num_bytes = spec.parse_bytes(match["bytes"], "--sizes")
    if not 1 <= count <= _MAX_TENSORS - len(sizes):
      raise errors.InputError(
          f"`--sizes` ({text!r}) must be at least 1 and at most "
          f"{_MAX_TENSORS:,} tensors in all.")
    elements = _elements(num_bytes, dtype, text, item)
    sizes += [planner.TensorSize.from_shape((elements,), dtype)] * count
  return Load(text, tuple(sizes))


def _elements(num_bytes: int, dtype: str, text: str, item: str) -> int:
  elements, rest = divmod(num_bytes, DTYPES[dtype])
  if rest or not 1 <= num_bytes <= planner.MOST_BYTES:
    raise errors.InputError(
        f"`--sizes` ({text!r}): the bytes of {item!r} must be a multiple of "
        f"{DTYPES[dtype]}, the size of a {dtype}, and from {DTYPES[dtype]} to "
        f"{spec.format_bytes(planner.MOST_BYTES)}.")
  return elements


def _of_variables(name: str, variables: Iterable[Any],
                  dtype: str | None) -> Load:
  sizes = []
  for variable in variables:
    # A Keras variable's dtype is a text, TensorFlow's has a name.
    own = getattr(variable.dtype, "name", variable.dtype)
    if (dtype or own) not in DTYPES:
      raise errors.InputError(
          f"the model ({name}) must have variables of a known type, and one is "
          f"of {own}; give a --dtype.")
    sizes.append(planner.TensorSize.from_shape(tuple(variable.shape),
                                               dtype or own))
  if not sizes:
    raise errors.InputError(
        f"the model ({name}) must have trainable variables, and has none.")
  return Load(name, tuple(sizes))


def _application(name: str) -> list[Any]:
  import tensorflow as tf
  models = sorted(found for found in dir(tf.keras.applications)
                  if found[0].isupper())
  if name not in models:
    raise errors.InputError(
        f"`--model` ({name!r}) must be a model of tf.keras.applications."
        + (errors.did_you_mean(name, models)
           or f" They are {', '.join(models)}."))
  # Only shapes are wanted: in this scope variables get no memory.
  with tf.keras.StatelessScope(initialize_variables=False):
    model = getattr(tf.keras.applications, name)(weights=None)
  return model.trainable_variables


def _saved(path: str) -> list[Any]:
  """Returns the trainable variables of a .keras file or a SavedModel."""
  if not os.path.exists(path):
    raise errors.InputError(
        f"`--saved_model` ({path!r}) must be a .keras file or the folder of a "
        "SavedModel, and there is nothing.")
  import tensorflow as tf
  try:
    if os.path.isdir(path):
      return list(_trainable(tf.saved_model.load(path)))
    return tf.keras.models.load_model(path, compile=False).trainable_variables
  except (OSError, ValueError, TypeError) as error:
    reason = (str(error).strip() or type(error).__name__).splitlines()[0]
    raise errors.InputError(
        f"`--saved_model` ({path!r}) must be a .keras file or the folder of a "
        f"SavedModel that TensorFlow can load: {reason}") from None


def _trainable(model: Any) -> Iterable[Any]:
  """Keras keeps lists of variables; a plain SavedModel has only signatures."""
  found = getattr(model, "trainable_variables", None)
  if found:
    return found
  by_id = {id(variable): variable for function in model.signatures.values()
           for variable in function.trainable_variables}
  return by_id.values()

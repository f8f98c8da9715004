"""Tests of what commands reduce: sizes, and gradients of models."""

import argparse
import os

from absl.testing import absltest
from absl.testing import parameterized
from tests import python_process
from tests import virtual_devices  # noqa: F401

import tensorflow as tf

from tf_cdops.base import errors
from tf_cdops.cli import loads
from tf_cdops.planning import planner


def from_flags(*flags: str) -> loads.Load:
  parser = argparse.ArgumentParser()
  loads.add_arguments(parser)
  return loads.from_args(parser.parse_args(flags))


def small_model() -> tf.keras.Model:
  return tf.keras.Sequential([
      tf.keras.Input((3,)), tf.keras.layers.Dense(4),
      tf.keras.layers.BatchNormalization()])


# The kernel and bias of Dense, then scale and offset of BatchNormalization;
# its moving averages aren't trained.
_SHAPES = [(3, 4), (4,), (4,), (4,)]


class SizesTest(parameterized.TestCase):

  @parameterized.parameters(
      ("1k", [(256,)]), ("2x1K", [(256,)] * 2), ("4", [(1,)]),
      ("2x8,1x1m", [(2,), (2,), (1 << 18,)]), (" 1x4 , 8", [(1,), (2,)]))
  def test_counts_and_bytes(self, text, shapes):
    load = loads.parse_sizes(text)
    self.assertEqual([size.shape for size in load.sizes], shapes)
    self.assertEqual({size.dtype for size in load.sizes}, {"float32"})
    self.assertEqual(load.name, text)

  def test_bytes(self):
    load = from_flags("--sizes=3x1k,1x4k", "--dtype=float64")
    self.assertEqual(load.sizes[0],
                     planner.TensorSize.from_shape((128,), "float64"))
    self.assertEqual([size.num_bytes for size in load.sizes],
                     [1024] * 3 + [4096])
    self.assertEqual(load.num_bytes, 7 * 1024)

  def test_default(self):
    self.assertEqual(from_flags(), loads.parse_sizes("500x1k,4x16m"))
    self.assertLen(from_flags().sizes, 504)

  @parameterized.parameters(
      ("", "`--sizes` \\(''\\) must be counts and bytes"),
      ("4x", "must be counts and bytes such as 500x1k,4x16m, and '4x' isn't"),
      ("1k,,1k", "and '' isn't"),
      ("1xx4", "and '1xx4' isn't"),
      ("-1x4", r"`--sizes` \('-1x4'\) must be counts"),
      ("4x1q", "and '4x1q' isn't: both are whole numbers, and bytes may end in "
       "k, m or g, up to 1024g"),
      ("-1k", "and '-1k' isn't: both are whole numbers"),
      ("999999999999999t", "bytes may end in k, m or g, up to 1024g"),
      ("10", "bytes of '10' must be a multiple of 4, the size of a float32"),
      ("0", "from 4 to 1024g"),
      ("1x2000g", "from 4 to 1024g"),
      ("0x4", "must be at least 1 and at most 100,000 tensors in all"),
      ("99999x4,2x4", "at most 100,000 tensors in all"))
  def test_wrong(self, text, message):
    with self.assertRaisesRegex(errors.Error, message):
      loads.parse_sizes(text)

  def test_needs_no_tensorflow(self):
    done = python_process.run("-c", (
        "import sys, argparse\n"
        "from tf_cdops.cli import loads\n"
        "parser = argparse.ArgumentParser()\n"
        "loads.add_arguments(parser)\n"
        "print(loads.from_args(parser.parse_args(['--sizes=8'])).num_bytes)\n"
        "assert 'tensorflow' not in sys.modules"))
    self.assertEqual((done.returncode, done.stdout), (0, "8\n"), done.stderr)


class GivenTest(parameterized.TestCase):

  @parameterized.parameters(
      ([], False), (["--dtype=float16"], False), (["--sizes=4"], True),
      (["--model=X"], True), (["--saved_model=x"], True))
  def test_given(self, flags, expected):
    parser = argparse.ArgumentParser()
    loads.add_arguments(parser)
    self.assertEqual(loads.given(parser.parse_args(flags)), expected)


class ModelTest(absltest.TestCase):

  def test_shapes_of_the_trainable_variables(self):
    load = from_flags("--model=MobileNetV2")
    model = tf.keras.applications.MobileNetV2(weights=None)
    self.assertEqual(
        load, loads.Load("MobileNetV2", tuple(
            planner.TensorSize.from_shape(tuple(variable.shape), "float32")
            for variable in model.trainable_variables)))

  def test_another_type(self):
    load = from_flags("--model=MobileNetV2", "--dtype=bfloat16")
    self.assertEqual({size.dtype for size in load.sizes}, {"bfloat16"})

  def test_wrong_names(self):
    with self.assertRaisesRegex(
        errors.InputError,
        r"^`--model` \('Resnet50'\) must be a model of "
        r"tf\.keras\.applications\. Did you mean 'ResNet50' or"):
      from_flags("--model=Resnet50")
    with self.assertRaisesRegex(
        errors.InputError, r"tf\.keras\.applications\. They are .*VGG16"):
      from_flags("--model=.")


class SavedModelTest(absltest.TestCase):

  def path(self, name: str) -> str:
    return os.path.join(self.create_tempdir().full_path, name)

  def check(self, path: str, shapes: list[tuple[int, ...]]) -> None:
    load = from_flags(f"--saved_model={path}")
    self.assertEqual([size.shape for size in load.sizes], shapes)
    self.assertEqual(load.name, os.path.basename(path))

  def test_keras_file(self):
    path = self.path("model.keras")
    small_model().save(path)
    self.check(path, _SHAPES)

  def test_exported_keras_model(self):
    path = self.path("exported")
    small_model().export(path, verbose=False)
    self.check(path, _SHAPES)

  def test_saved_model_with_signatures_only(self):
    module = tf.Module()
    module.kept = tf.Variable([1.0], trainable=False)
    module.trained = tf.Variable([[1.0, 2.0]])
    path = self.path("module")

    @tf.function(input_signature=[tf.TensorSpec([1, 2])])
    def call(x):
      return x * module.trained + module.kept

    module.call = call
    tf.saved_model.save(module, path)
    self.check(path, [(1, 2)])

  def test_nothing_there(self):
    with self.assertRaisesRegex(
        errors.InputError, r"^`--saved_model` \('/no/such'\) must be a "
        r"\.keras file or the folder of a SavedModel, and there is nothing"):
      from_flags("--saved_model=/no/such")

  def test_no_model(self):
    empty = self.create_tempdir().full_path
    with self.assertRaisesRegex(
        errors.InputError, "that TensorFlow can load: SavedModel file does"):
      from_flags(f"--saved_model={empty}")
    text = self.create_tempfile("model.keras", "no zip").full_path
    with self.assertRaisesRegex(errors.InputError, "TensorFlow can load: "):
      from_flags(f"--saved_model={text}")

  def test_nothing_to_train(self):
    path = self.path("model.keras")
    tf.keras.Sequential([tf.keras.Input((3,)),
                         tf.keras.layers.Flatten()]).save(path)
    with self.assertRaisesRegex(
        errors.InputError, "must have trainable variables, and has none"):
      from_flags(f"--saved_model={path}")


if __name__ == "__main__":
  absltest.main()

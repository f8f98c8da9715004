"""Writes a timeline of a contender's steps."""

import json

from tf_cdops.base import output_files
from tf_cdops.cli.measuring import contenders
from tf_cdops.cli.measuring import exact_inputs
from tf_cdops.cli.measuring import steps as steps_lib
from tf_cdops.cluster import capturing
from tf_cdops.explaining.timeline import advice
from tf_cdops.explaining.timeline import chrome
from tf_cdops.explaining.timeline import summary as summary_lib

_STEPS = 3


def write(path: str, contender: contenders.Contender,
          inputs: exact_inputs.Inputs) -> str:
  """Writes the file; returns what is to be said of it."""
  output_files.replace(path, json.dumps(chrome.NOTHING))
  step = steps_lib.build(contender, inputs)
  step.run()
  trace = capturing.capture_calls(step.strategy, step.run, _STEPS)
  if trace is None or not trace.steps:
    return f"{path}: no whole step of {contender.name} was seen."
  output_files.replace(path, json.dumps(chrome.events(trace)))
  said = advice.advise(trace, summary_lib.summarize(trace))
  return f"{path} has a timeline of {contender.name}. {said}"

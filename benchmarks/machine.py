"""Where a run was made: figures mean little without it."""

import importlib.metadata
import os
import pathlib
import platform
import re


def facts() -> dict[str, str]:
  """Returns the machine and the versions, by label."""
  return {
      "CPU": _find("/proc/cpuinfo", r"^model name\s*:\s*(.+)$"),
      "cores": str(len(os.sched_getaffinity(0))
                   if hasattr(os, "sched_getaffinity") else os.cpu_count()),
      "memory": _gigabytes(_find("/proc/meminfo", r"^MemTotal:\s*(\d+) kB")),
      "system": f"{platform.system()} {_release()}",
      "Python": platform.python_version(),
      "TensorFlow": _tensorflow(),
      "tf_cdops": _version("tf-cdops"),
  }


def _release() -> str:
  """The kernel's version without its build, which changes no figures."""
  return ".".join(platform.release().split(".")[:2])


def _find(path: str, pattern: str) -> str:
  try:
    text = pathlib.Path(path).read_text(encoding="utf-8", errors="replace")
  except OSError:
    return "unknown"
  match = re.search(pattern, text, re.MULTILINE)
  return match[1].strip() if match else "unknown"


def _gigabytes(kilobytes: str) -> str:
  return (f"{int(kilobytes) / (1 << 20):.0f} GiB" if kilobytes.isdigit()
          else kilobytes)


def _tensorflow() -> str:
  """TensorFlow has several distributions."""
  found = (_version(name) for name in ("tensorflow", "tensorflow-cpu"))
  return next((version for version in found if version != "unknown"),
              "unknown")


def _version(distribution: str) -> str:
  try:
    return importlib.metadata.version(distribution)
  except importlib.metadata.PackageNotFoundError:
    return "unknown"

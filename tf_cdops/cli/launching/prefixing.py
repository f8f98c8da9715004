"""Puts a worker's name before each line of what its program prints."""

_LONGEST = 65_536  # Of a line, in bytes; what is longer comes in pieces.
_NEWLINE, _RETURN, _BACKSPACE = b"\n", b"\r", b"\b"


class Prefixer:
  r"""Makes whole lines of what a program writes in pieces of any size.

  A progress bar writes "\r" and then over itself. So of what is between two
  newlines only the last state is shown, as on a terminal in the end.
  """

  def __init__(self, prefix: bytes):
    self._prefix = prefix
    self._held = b""  # The beginning of a line whose end isn't there yet.
    # Whether a part of that line was given out as a line of its own: then a
    # newline that follows at once only ends it.
    self._cut = False

  @property
  def holds(self) -> bool:
    """Whether something of a line was written, and not yet given out."""
    return bool(self._held)

  def feed(self, data: bytes) -> bytes:
    """Takes what was written; returns the lines that are whole by now."""
    lines, newline, rest = (self._held + data).rpartition(_NEWLINE)
    given = self._prefixed(lines) if newline else b""
    if _RETURN in rest:
      rest = _last_state(rest) + _RETURN * rest.endswith(_RETURN)
    pieces = []
    while len(rest) > _LONGEST:
      length = _whole_characters(rest[:_LONGEST]) or _LONGEST
      pieces.append(self._prefix + rest[:length] + _NEWLINE)
      rest = rest[length:]
      self._cut = True
    self._held = rest
    return given + b"".join(pieces)

  def flush(self, final: bool = False) -> bytes:
    """Returns what there is of a line, as a line, or nothing.

    Args:
      final: whether nothing more comes. If not, a letter of which only some
        bytes are there waits for the others.
    """
    text = _last_state(self._held)
    length = len(text) if final else _whole_characters(text)
    self._held = text[length:]
    if not length:
      return b""
    self._cut = True
    return self._prefix + text[:length] + _NEWLINE

  def _prefixed(self, lines: bytes) -> bytes:
    """Returns lines, whose last newline is left out, with their prefixes."""
    if _RETURN in lines:
      lines = _NEWLINE.join(map(_last_state, lines.split(_NEWLINE)))
    if self._cut:
      self._cut = False
      if not lines:
        return b""
      lines = lines.removeprefix(_NEWLINE)
    return (self._prefix + lines.replace(_NEWLINE, _NEWLINE + self._prefix)
            + _NEWLINE)


def _last_state(line: bytes) -> bytes:
  """Returns what is left of a line that is written over itself."""
  if _RETURN not in line:
    return line
  return line.rstrip(_RETURN + _BACKSPACE).rpartition(_RETURN)[2].strip(
      _BACKSPACE)


def _whole_characters(text: bytes) -> int:
  """Returns how many bytes there are up to the end of UTF-8's last letter."""
  for back in range(1, min(4, len(text)) + 1):
    byte = text[-back]
    if byte & 0xC0 != 0x80:  # The letter begins here.
      size = 1 + (byte >= 0xC0) + (byte >= 0xE0) + (byte >= 0xF0)
      return len(text) - back if back < size else len(text)
  return len(text)  # It isn't UTF-8.

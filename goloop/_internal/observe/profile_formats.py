"""Formats of a profile: text, folded stacks, pprof's protobuf and a flame graph.

The methods of profiling.Profile, which programs call, call these functions, and these functions
read a Profile: the two files form a circle. This one imports the other for its types only.
"""

from __future__ import annotations

import binascii

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..frames import Frame
    from .profiling import Profile, ProfileStack

# ---- text ------------------------------------------------------------------------------------


def _elapsed(profile: Profile) -> float:
    """Return the elapsed time of all loops that were sampled, of which an entry has a share.

    A sample stands for the time up to the next one, so the sum of all can exceed the elapsed time.
    """
    loops = max(1, len({each.loop for each in profile.stacks}))
    return max(profile.seconds * loops, profile.busy) or 1.0


def table(profile: Profile, most: int = 20) -> str:
    """Return a table of the `most` entries with the most time, one per line.

    Shares are of the elapsed time of all loops that were sampled.
    """
    whole = _elapsed(profile)
    entries = profile.entries[:most]
    width = min(40, max([len("TASK"), *(len(each.task) for each in entries)]))
    lines = [f"{profile.samples} samples in {profile.seconds:.1f} s, busy {profile.busy:.2f} s"]
    lines.append(f"{'%LOOP':>6} {'%CPU':>6} {'SECONDS':>8}  {'TASK':<{width}}  FUNCTION")
    for each in entries:
        where = f"{each.function} {each.file}:{each.line}" if each.file else each.function
        lines.append(
            f"{each.seconds / whole:6.1%} {each.cpu / whole:6.1%} {each.seconds:8.2f}  "
            f"{each.task:<{width}}  {where}"
        )
    return "\n".join(lines)


def _frame_text(frame: Frame) -> str:
    """Return a frame as "function (file:line)"."""
    if not frame.file:
        return frame.function
    return f"{frame.function} ({frame.file.rpartition('/')[2]}:{frame.line})"


def _call_names(stack: ProfileStack) -> list[str]:
    """Return the task and the calls of a stack as text, outermost first."""
    return [_task_text(stack), *map(_frame_text, stack.frames)]


def _task_text(stack: ProfileStack) -> str:
    """Return the text for a stack's task or callback."""
    callback = stack.task.startswith("callback ") or not stack.frames
    return stack.task if callback else f"task {stack.task}"


def folded(profile: Profile) -> str:
    """Return a line for each stack: its calls, separated by ";", and its time in microseconds."""
    lines = []
    for stack in profile.stacks:
        calls = [call.replace(";", ",") for call in _call_names(stack)]
        lines.append(f"{';'.join(calls)} {stack.seconds * 1e6:.0f}\n")
    return "".join(lines)


# ---- pprof --------------------------------------------------------------------------------------
# profile.proto of github.com/google/pprof; the numbers below are the numbers of its fields.


# zlib's code for the format of gzip, with the largest window.
_GZIP = 31


def _varint(value: int) -> bytes:
    """Encode an integer as a protobuf varint."""
    out = bytearray()
    value &= (1 << 64) - 1
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def _varint_field(field: int, value: int) -> bytes:
    """Encode an integer field."""
    return _varint(field << 3) + _varint(value)


def _bytes_field(field: int, value: bytes) -> bytes:
    """Encode a field of bytes, a string or a message."""
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def _packed_field(field: int, values: Iterable[int]) -> bytes:
    """Encode a packed repeated field of integers."""
    return _bytes_field(field, b"".join(map(_varint, values)))


class _Numbering(dict[object, int]):
    """Numbers objects in the order of their first use, from `first` on."""

    def __init__(self, first: int) -> None:
        """Give the number `first` to the first object."""
        self._first = first

    def of(self, thing: object) -> int:
        """Return the number of an object, a new one if it has none."""
        return self.setdefault(thing, self._first + len(self))


def pprof(profile: Profile) -> bytes:
    """Return the profile in pprof's format, compressed with gzip."""
    import zlib  # some Pythons lack it, and nothing else here needs it

    strings, functions, locations = _Numbering(0), _Numbering(1), _Numbering(1)
    strings.of("")
    out = bytearray()
    for name, unit in (("samples", "count"), ("loop", "nanoseconds"), ("cpu", "nanoseconds")):
        out += _bytes_field(
            1, _varint_field(1, strings.of(name)) + _varint_field(2, strings.of(unit))
        )
    for stack in profile.stacks:
        frames: list[tuple[str, str, int]] = [(_task_text(stack), "", 0), *stack.frames]
        ids = [locations.of(tuple(frame)) for frame in reversed(frames)]
        sample = _packed_field(1, ids)
        sample += _packed_field(2, (stack.samples, int(stack.seconds * 1e9), int(stack.cpu * 1e9)))
        label = _varint_field(1, strings.of("task")) + _varint_field(2, strings.of(stack.task))
        sample += _bytes_field(3, label)
        label = _varint_field(1, strings.of("event loop")) + _varint_field(3, stack.loop)
        out += _bytes_field(2, sample + _bytes_field(3, label))
    for location, number in locations.items():
        assert isinstance(location, tuple)
        at = _varint_field(1, functions.of(location[:2])) + _varint_field(2, location[2])
        out += _bytes_field(4, _varint_field(1, number) + _bytes_field(4, at))
    for named, number in functions.items():
        assert isinstance(named, tuple)
        function = strings.of(named[0])
        fields = _varint_field(1, number) + _varint_field(2, function) + _varint_field(3, function)
        out += _bytes_field(5, fields + _varint_field(4, strings.of(named[1])))
    period = _varint_field(1, strings.of("loop")) + _varint_field(2, strings.of("nanoseconds"))
    default = strings.of("loop")
    for text in strings:
        out += _bytes_field(6, str(text).encode())
    out += _varint_field(9, int((profile.ended - profile.seconds) * 1e9))
    out += _varint_field(10, int(profile.seconds * 1e9))
    out += _bytes_field(11, period)
    out += _varint_field(12, int(profile.busy / (profile.samples or 1) * 1e9))
    out += _varint_field(14, default)
    return zlib.compress(bytes(out), wbits=_GZIP)


# ---- flame graph -------------------------------------------------------------------------

_WIDE, _HIGH, _MIN_WIDTH = 1200, 17, 0.1

_SCRIPT = """
var all = Array.from(document.querySelectorAll("g.call"));
function show(zoomed) {
  var from = +zoomed.dataset.x, wide = +zoomed.dataset.w, to = from + wide;
  all.forEach(function (g) {
    var x = +g.dataset.x, w = +g.dataset.w;
    var seen = x < to - 1e-6 && x + w > from + 1e-6;
    g.style.display = seen ? "" : "none";
    if (!seen) return;
    var left = Math.max(0, (x - from) / wide * WIDE);
    var right = Math.min(WIDE, (x + w - from) / wide * WIDE);
    var rect = g.querySelector("rect"), text = g.querySelector("text");
    rect.setAttribute("x", left);
    rect.setAttribute("width", Math.max(0, right - left));
    text.setAttribute("x", left + 3);
    var room = Math.floor((right - left - 6) / 6.6), name = g.dataset.name;
    text.textContent = room < 3 ? "" : name.length <= room ? name : name.slice(0, room - 1) + "…";
  });
}
all.forEach(function (g) { g.addEventListener("click", function () { show(g); }); });
"""


class _Box:
    """A call in the flame graph, with its callees."""

    def __init__(self, name: str) -> None:
        """Create a call of the function `name`, without time and callees."""
        self.name = name
        self.seconds = self.cpu = 0.0
        self.below: dict[str, _Box] = {}

    def depth(self) -> int:
        """Return the height of this subtree in calls."""
        return 1 + max((each.depth() for each in self.below.values()), default=0)


def flame_graph(profile: Profile, title: str) -> str:
    """Return a flame graph as one SVG file; the width of a call is its time."""
    root = _Box("all")
    for stack in profile.stacks:
        path = [root]
        for name in _call_names(stack):
            path.append(path[-1].below.setdefault(name, _Box(name)))
        for box in path:
            box.seconds += stack.seconds
            box.cpu += stack.cpu
    high = (root.depth() + 2) * _HIGH + 20
    scale = _WIDE / root.seconds if root.seconds else 0.0
    whole = _elapsed(profile)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDE}" height="{high}" '
        f'viewBox="0 0 {_WIDE} {high}" font-family="monospace" font-size="11">',
        "<style>g.call{cursor:pointer} g.call:hover rect{stroke:#000} "
        "text{pointer-events:none}</style>",
        f'<rect width="{_WIDE}" height="{high}" fill="#fcfcfa"/>',
        f'<text x="{_WIDE / 2}" y="18" text-anchor="middle" font-size="14">{_escape(title)}: '
        f"{profile.samples} samples in {profile.seconds:.1f} s, busy {profile.busy:.2f} s</text>",
    ]

    def draw(box: _Box, left: float, row: int) -> None:
        """Append the SVG elements of a call and its callees."""
        width = box.seconds * scale
        if width < _MIN_WIDTH:
            return
        name = _escape(box.name)
        share = box.seconds / whole
        top = 28 + row * _HIGH
        room = int((width - 6) / 6.6)
        shown = box.name if len(box.name) <= room else box.name[: room - 1] + "…"
        lines.append(
            f'<g class="call" data-x="{left:.3f}" data-w="{width:.3f}" data-name="{name}">'
            f"<title>{name}\n{box.seconds:.3f} s of the loop ({share:.1%}), {box.cpu:.3f} s on a "
            f'processor</title><rect x="{left:.2f}" y="{top}" width="{width:.2f}" '
            f'height="{_HIGH - 1}" fill="{_colour(box.name, row)}" rx="1"/>'
            f'<text x="{left + 3:.2f}" y="{top + 12}">'
            f"{_escape(shown) if room >= 3 else ''}</text></g>"
        )
        for each in sorted(box.below.values(), key=lambda each: -each.seconds):
            draw(each, left, row + 1)
            left += each.seconds * scale

    draw(root, 0.0, 0)
    script = _SCRIPT.replace("WIDE", str(_WIDE))
    lines.append(f"<script><![CDATA[{script}]]></script>\n</svg>\n")
    return "\n".join(lines)


def _escape(text: str) -> str:
    """Return a text for an XML document, like html.escape(), whose module takes long to import."""
    for each, name in (("&", "amp"), ("<", "lt"), (">", "gt"), ('"', "quot"), ("'", "#x27")):
        text = text.replace(each, f"&{name};")
    return text


def _colour(name: str, row: int) -> str:
    """Return a color for a function, always the same for the same name."""
    if row < 2:
        return "#c8d8e8"
    spread = binascii.crc32(name.partition(" (")[0].encode())
    return f"hsl({10 + spread % 45},{70 + spread // 45 % 20}%,{62 + spread // 900 % 14}%)"

#!/usr/bin/env bash
# A .zst file of several frames, as parallel compressors and `cat a.zst b.zst` make it, read by the Python package zstandard 0.25.0.
# decompress() and read_to_iter() give the first frame and end without an error, so that a corpus is cut silently; stream_reader() and
# copy_stream() give all frames, and stream_reader() does so whatever read_across_frames says. A skippable frame in front, in which tools
# keep notes or an index, makes decompress() raise, read_to_iter() give nothing, and stream_reader() give the text.
set -euo pipefail
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
python3 -m venv "$scratch/venv"
"$scratch/venv/bin/pip" install -q zstandard==0.25.0
"$scratch/venv/bin/python" - <<'PYTHON'
import io

import zstandard

two_frames = zstandard.compress(b"first ") + zstandard.compress(b"second")
with_note = b"\x50\x2a\x4d\x18" + (4).to_bytes(4, "little") + b"note" + zstandard.compress(b"text")


def copied(data):
    output = io.BytesIO()
    zstandard.ZstdDecompressor().copy_stream(io.BytesIO(data), output)
    return output.getvalue()


def decompressed(data):
    try:
        return zstandard.ZstdDecompressor().decompress(data)
    except zstandard.ZstdError:
        return "ZstdError"


def iterated(data):
    return b"".join(zstandard.ZstdDecompressor().read_to_iter(data))


def streamed(data, **options):
    return zstandard.ZstdDecompressor().stream_reader(io.BytesIO(data), **options).read()


found = {
    "decompress": (decompressed(two_frames), decompressed(with_note)),
    "read_to_iter": (iterated(two_frames), iterated(with_note)),
    "stream_reader": (streamed(two_frames), streamed(with_note)),
    "stream_reader, read_across_frames=False": (streamed(two_frames, read_across_frames=False), streamed(with_note)),
    "copy_stream": (copied(two_frames), copied(with_note)),
}
for name, (frames, note) in found.items():
    print(f"{name}: two frames give {frames!r}, a note before a frame {note!r}")
assert found["decompress"] == (b"first ", "ZstdError")
assert found["read_to_iter"] == (b"first ", b"")
assert all(found[name] == (b"first second", b"text") for name in found if name.startswith(("stream_reader", "copy")))
PYTHON

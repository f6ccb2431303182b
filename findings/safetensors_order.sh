#!/usr/bin/env bash
# What save_file of safetensors.numpy writes of a transposed array. One would expect its values, as version 0.7.0 writes them. Version 0.8.0
# writes the shape of the array as it is seen and the values in the order in which they lie in memory, and says nothing: a matrix that is
# transposed on its way from one library to another, as GPT-2's are for nn.Linear, comes back as a scrambled one of the right shape. The same
# holds for arrays in Fortran's order. save_file of safetensors.torch refuses such tensors. numpy.ascontiguousarray before it avoids the loss.
set -euo pipefail
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
for version in 0.7.0 0.8.0; do
  python3 -m venv "$scratch/$version"
  "$scratch/$version/bin/pip" install -q safetensors==$version numpy==2.4.6
  "$scratch/$version/bin/python" - $version "$scratch/file" <<'PYTHON'
import sys

import numpy
from safetensors.numpy import load_file, save_file

version, path = sys.argv[1:]
matrix = numpy.arange(6, dtype=numpy.float32).reshape(2, 3)
written = {"rows": matrix, "transposed": matrix.T, "fortran": numpy.asfortranarray(matrix), "copied": numpy.ascontiguousarray(matrix.T)}
save_file(written, path)
read = load_file(path)
for name, values in written.items():
    print(f"safetensors {version}, {name}: {values.tolist()} is read as {read[name].tolist()}")
    assert read[name].shape == values.shape
same = [name for name, values in written.items() if numpy.array_equal(values, read[name])]
assert same == (["rows", "copied"] if version == "0.8.0" else list(written)), same
PYTHON
done

#!/usr/bin/env bash
# The bases of RoPE that transformers 5.24.0 reads from a config.json of model_type olmo3 as version 4 writes it: one rope_theta for the whole
# model, no rope_parameters. One would expect it in all layers, as version 4.57 computes it. But the windowed layers get 500000 whatever the
# file says, because reading rope_theta for the layers that see everything takes it out of the settings. With the published base, 500000,
# nothing shows; a model with another one computes something else than it learned. Gemma 3's class, which has the same two kinds of layers,
# keeps its own default for the windows. rope_parameters with an object for each kind of layer is read as it says.
set -euo pipefail
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
python3 -m venv "$scratch/venv"
"$scratch/venv/bin/pip" install -q transformers==5.24.0
"$scratch/venv/bin/python" - "$scratch" <<'PYTHON'
import json
import pathlib
import sys

from transformers import AutoConfig

KINDS = ("full_attention", "sliding_attention")


def bases(**settings):
    (pathlib.Path(sys.argv[1]) / "config.json").write_text(json.dumps({"model_type": "olmo3", **settings}))
    read = AutoConfig.from_pretrained(sys.argv[1]).rope_parameters
    return tuple(read[kind]["rope_theta"] for kind in KINDS)


for settings, expected in (({"rope_theta": 10000.0}, (10000.0, 500000.0)),
                           ({"rope_parameters": {kind: {"rope_type": "default", "rope_theta": 10000.0} for kind in KINDS}},
                            (10000.0, 10000.0))):
    seen = bases(**settings)
    print(f"{json.dumps(settings)}: layers that see everything have {seen[0]}, windowed ones {seen[1]}")
    assert seen == expected, seen
PYTHON

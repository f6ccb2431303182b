#!/usr/bin/env python3
"""Writes tests/fixtures/format_1.pt and format_1.json with programs of commit 25e837c, which wrote checkpoints of format 1.

usage: GPT_BIN=FOLDER_OF_THESE_PROGRAMS GPT_SOURCE_DIR=. scripts/make_format_1_fixture.py
"""

import json
import pathlib
import shutil
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests/e2e"))
import format_1
import programs


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        format_1.write_texts(folder)
        options = {**format_1.OPTIONS, "training.checkpoint_interval": format_1.STEP, "training.keep_last": 2}
        programs.run("gpt-train", *programs.flags(options), cwd=folder, check_code=0)
        checkpoint = folder / f"run/ckpt_step_{format_1.STEP:08}.pt"
        generated = programs.run("gpt-generate", "--checkpoint", checkpoint, *format_1.PROMPT, check_code=0).stdout
        shutil.copy(checkpoint, format_1.CHECKPOINT)
        expected = {"val_loss": programs.losses(folder / "run")["val", format_1.STEP], "text": generated}
        format_1.CHECKPOINT.with_suffix(".json").write_text(json.dumps(expected, indent=2) + "\n")


main()

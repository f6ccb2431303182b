"""A run of the first format of checkpoints: tests/fixtures/format_1.pt holds its 60th of 120 updates, and format_1.json what was measured
then. scripts/make_format_1_fixture.py wrote both."""

import pathlib

import programs

CHECKPOINT = programs.SOURCE / "tests/fixtures/format_1.pt"
STEP, STEPS = 60, 120
# Dropout, moments of 8 bits, and stages, which go on until the end.
OPTIONS = {
    **programs.TINY, "model.n_embd": 16, "training.use_8bit": "true", "training.max_steps": STEPS,
    "training.eval_interval": STEP, "training.eval_batches": 0,
    "data.text": "text.txt", "output_dir": "run",
    "data.stages": "[{from: 0, block_size: 8}, {from: 30, mix: {main: 1, hard.txt: 3}}, {from: 90, mix: {hard.txt: 1}}]",
}
PROMPT = ["7: the ", "--temperature", 0, "--max-new-tokens", 40, "--device", "cpu"]


def write_texts(folder: pathlib.Path):
    programs.write_text(folder)
    (folder / "hard.txt").write_text("".join(f"{i * 7919 % 1000}: the lazy dog jumps over {i % 31} foxes.\n" for i in range(150)))

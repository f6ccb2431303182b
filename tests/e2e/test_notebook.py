"""The notebook's code, run cell by cell as Colab does; a folder stands for Google Drive, and what is built already for what it installs."""

import contextlib
import io
import json
import pathlib
import tempfile
import unittest

import programs


def cells(tags=()):
    """The code of each cell that has one of the tags, or that has none."""
    notebook = json.loads((programs.SOURCE / "configs/recipes/colab.ipynb").read_text())
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    return ["".join(cell["source"]) for cell in code if set(cell["metadata"].get("tags", ())) & set(tags) or not (tags or "tags" in cell["metadata"])]


FORM = {"TEXT": "text.txt", "NAME": "fox", "PROMPT": "7: the", "SETTINGS": "--device cpu --threads 1"}


class Notebook(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.drive = pathlib.Path(folder.name)
        programs.write_text(self.drive)

    def session(self, printed, **form) -> int:
        """What training ends with in a session whose form is filled in so."""
        names = {"DRIVE": str(self.drive), "PROGRAMS": str(programs.BIN)}
        for code in cells(["parameters"]):
            exec(code, names)
        self.assertLessEqual(form.keys(), names.keys(), "the form has these fields")
        names.update(FORM, **form)
        with contextlib.redirect_stdout(printed):
            for code in cells():
                exec(code, names)
        return names["status"]

    def test_a_session_trains_and_the_next_one_goes_on(self):
        first, second = io.StringIO(), io.StringIO()
        self.assertEqual(self.session(first, STEPS=2), 0, first.getvalue())
        self.assertIn("2 steps done", first.getvalue())
        self.assertIn("7: the", first.getvalue().split("steps done")[1], "a text follows")
        self.assertTrue((self.drive / "gpt-train/fox/report.html").exists())
        self.assertEqual(self.session(second, STEPS=3), 0, second.getvalue())
        self.assertIn("after step 2", second.getvalue())
        self.assertIn("3 steps done", second.getvalue())

    def test_a_cell_that_is_stopped_leaves_a_run_that_can_go_on(self):
        class StopAtTheFirstStep(io.StringIO):
            is_stopped = False

            def write(self, text):
                super().write(text)
                if text.startswith("step") and not self.is_stopped:
                    self.is_stopped = True
                    raise KeyboardInterrupt

        printed = StopAtTheFirstStep()
        self.assertEqual(self.session(printed, STEPS=1_000_000), 130, printed.getvalue())
        self.assertTrue((self.drive / "gpt-train/fox/ckpt.pt").exists())

    def test_what_is_only_for_colab_is_python(self):
        for tag in ("drive", "install"):
            for code in cells([tag]):
                compile(code, tag, "exec")


if __name__ == "__main__":
    unittest.main()

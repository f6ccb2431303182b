"""What the README says of the configuration is what the program says, and so are its examples of what is planned without the data."""

import re
import shlex
import unittest

import programs


class Readme(unittest.TestCase):
    def test_reference_is_current(self):
        readme = (programs.SOURCE / "README.md").read_text()
        shown = readme.split("<!-- gpt-train --print-reference -->\n")[1].split("\n<!-- end of reference -->")[0]
        self.assertEqual(shown, programs.run("gpt-train", "--print-reference", check_code=0).stdout.rstrip())

    def test_examples_that_need_no_data_are_what_the_program_prints(self):
        """Of the clock alone they cannot know anything."""
        clock = re.compile(r"done (on \w+ \d+ \w+ )?at \d\d:\d\d if")
        readme = (programs.SOURCE / "README.md").read_text()
        examples = re.findall(r"^```\n\$ (gpt-diagnose (?:.|\\\n)*--steps-per-epoch(?:.|\\\n)*)\n((?:.*\n)*?)```", readme, re.M)
        self.assertEqual(len(examples), 4)
        for command, shown in examples:
            with self.subTest(command):
                printed = clock.sub("", programs.run(*shlex.split(command.replace("\\\n", " "))).stdout).splitlines()
                at = 0
                for line in filter(lambda line: line.strip() not in ("", "..."), clock.sub("", shown).splitlines()):
                    self.assertIn(line, printed[at:])
                    at += printed[at:].index(line) + 1

    def test_every_config_is_named(self):
        readme = (programs.SOURCE / "README.md").read_text()
        for config in (programs.SOURCE / "configs").glob("*.yaml"):
            self.assertIn(f"configs/{config.name}", readme)


if __name__ == "__main__":
    unittest.main()

"""What the documents say of the configuration is what the program says, and so are their examples of what is planned without the data."""

import functools
import json
import re
import shlex
import unittest

import programs

CONFIGS = programs.SOURCE / "configs"


def all_readmes():
    """The one at the top, and those of the folders that have one."""
    folders = ("configs", "scripts", "src", "tests")
    return [programs.SOURCE / "README.md", *(path for folder in folders for path in sorted((programs.SOURCE / folder).rglob("README.md")))]


@functools.cache
def flags_of(program):
    """All flags of --help and their other names, without dashes; gpt-bench takes those of its commands and of a run."""
    shown = programs.run(program, "--help", check_code=0).stdout
    if program == "gpt-bench":
        commands = re.findall(r"^  ([a-z]+)  ", shown, re.M)
        shown = "\n".join(programs.run(program, command, "--help", check_code=0).stdout for command in commands)
    names = re.findall(r"(?<![\w-])--?([\w.-]+)", shown) + [name for names in re.findall(r"\(([\w, \n-]+)\)", shown) for name in re.split(r"[,\s]+", names)]
    return {name.split(".")[-1].replace("_", "-") for name in names} | (flags_of("gpt-train") if program == "gpt-bench" else set())


class Readme(unittest.TestCase):
    def test_flags_that_documents_name_exist(self):
        named = 0
        for document in [*programs.SOURCE.glob("*.md"), *all_readmes()]:
            text = document.read_text().replace("\\\n", " ")
            for program, rest in re.findall(r"\b(gpt-(?:train|generate|serve|prepare|export|eval|prune|diagnose|bench|board))\b([^`\n|;&()#]*)", text):
                for flag in re.findall(r"(?<![\w-])--([a-z][\w.-]*\w)", rest):
                    named += 1
                    with self.subTest(document=document.name, program=program):
                        self.assertIn(flag.split(".")[-1].replace("_", "-"), flags_of(program))
        self.assertGreater(named, 300)

    def test_reference_is_current(self):
        readme = (CONFIGS / "README.md").read_text()
        shown = readme.split("<!-- gpt-train --print-reference -->\n")[1].split("\n<!-- end of reference -->")[0]
        self.assertEqual(shown, programs.run("gpt-train", "--print-reference", check_code=0).stdout.rstrip())

    def test_table_of_families_is_current(self):
        readme = (programs.SOURCE / "src/exchange/README.md").read_text()
        shown = readme.split("<!-- gpt-export --print-families -->\n")[1].split("\n<!-- end of families -->")[0]
        self.assertEqual(shown, programs.run("gpt-export", "--print-families", check_code=0).stdout.rstrip())

    def test_examples_that_need_no_data_are_what_the_program_prints(self):
        """The program prints the time of day, which no document can know."""
        clock = re.compile(r"done (on \w+ \d+ \w+ )?at \d\d:\d\d if")
        example = re.compile(r"^```\n\$ (gpt-diagnose (?:.|\\\n)*--steps-per-epoch(?:.|\\\n)*)\n((?:.*\n)*?)```", re.M)
        examples = [found for readme in all_readmes() for found in example.findall(readme.read_text())]
        self.assertEqual(len(examples), 5)
        for command, shown in examples:
            with self.subTest(command):
                printed = clock.sub("", programs.run(*shlex.split(command.replace("\\\n", " "))).stdout).splitlines()
                at = 0
                for line in filter(lambda line: line.strip() not in ("", "..."), clock.sub("", shown).splitlines()):
                    self.assertIn(line, printed[at:])
                    at += printed[at:].index(line) + 1

    def test_the_table_of_divided_models_is_what_is_planned(self):
        """The first column has the settings, as `zero: 1`; the others gigabytes that a process needs and sends, and the gain."""
        readme = (programs.SOURCE / "src/distributed/README.md").read_text().split("\n## Which to use\n")[1]
        command = shlex.split(re.search(r"^gpt-diagnose (?:\\\n|.)*", readme, re.M).group().replace("\\\n", " "))
        rows = re.findall(r"^\| (\S.*) \| ([\d.]+) GB \| ([\d.]+) GB \| ([\d.]+) \|$", readme, re.M)
        self.assertEqual(len(rows), 8)
        for settings, *shown in rows:
            with self.subTest(settings):
                flags = [word for key, value in re.findall(r"`(\w+): (\d+)`", settings) for word in (f"--{key}", value)]
                checks = json.loads(programs.run(*command, *flags, "--json").stdout)["checks"]
                planned = next(check["values"] for check in checks if check["name"] == "processes")
                numbers = planned["bytes_of_each"] / 1e9, planned["bytes_sent_per_update"] / 1e9, planned["gain"]
                self.assertEqual([f"{number:.1f}" for number in numbers], shown)

    def test_every_config_is_named(self):
        readme = (CONFIGS / "README.md").read_text()
        for config in CONFIGS.glob("*.yaml"):
            self.assertIn(f"configs/{config.name}", readme)


if __name__ == "__main__":
    unittest.main()

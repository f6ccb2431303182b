"""What the README says of the configuration is what the program says."""

import unittest

import programs


class Readme(unittest.TestCase):
    def test_reference_is_current(self):
        readme = (programs.SOURCE / "README.md").read_text()
        shown = readme.split("<!-- gpt-train --print-reference -->\n")[1].split("\n<!-- end of reference -->")[0]
        self.assertEqual(shown, programs.run("gpt-train", "--print-reference", check_code=0).stdout.rstrip())

    def test_every_config_is_named(self):
        readme = (programs.SOURCE / "README.md").read_text()
        for config in (programs.SOURCE / "configs").glob("*.yaml"):
            self.assertIn(f"configs/{config.name}", readme)


if __name__ == "__main__":
    unittest.main()

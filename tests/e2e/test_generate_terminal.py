"""gpt-generate --interactive at a terminal: keys, history, signals, and the terminal as it was afterwards."""

import signal
import subprocess
import termios
import unittest

import generating
import programs


class Interactive(generating.TrainedModel):
    def open(self, *words, **options):
        terminal = generating.Terminal(programs.command("gpt-generate", *self.words("--interactive", "--verbose", *words)), **options)
        self.addCleanup(terminal.close)
        return terminal

    def typed(self, lines, **options):
        """What the program took each of `lines` (keys, then Enter) for: what Up brings back."""
        terminal = self.open("-n", 1, **options)
        taken = []
        for keys in lines:
            terminal.read_until("> ")
            terminal.send(keys + "\r")
            terminal.read_until("ended")  # a line that is too long may be broken between any two of its words
            terminal.read_until("> ")
            terminal.send("\x1b[A|")  # the bar shows where the line ends; Ctrl-U and Down take both away
            taken.append(terminal.read_until("|").rpartition("> ")[2].removesuffix("|"))
            terminal.send("\x15\x1b[B")
        terminal.send("\x04")
        self.assertEqual(terminal.wait(), 0)
        return taken

    def test_it_says_first_what_it_does_and_how_to_leave(self):
        welcome = " ".join(self.open().read_until("\n> ").split())  # lines are broken to the terminal's width
        for part in ("continues what you type", "does not answer", "Ctrl-C stops a text", "Ctrl-D leaves"):
            self.assertIn(part, welcome)

    def test_a_line_is_the_prompt(self):
        terminal = self.open("-n", 30, "--seed", 5, stdout=subprocess.PIPE)
        terminal.read_until("> ")
        terminal.send("quck\x1b[D\x1b[Di\r")
        self.assertIn("prompt of 5 tokens", terminal.read_until("ended"))
        terminal.read_until("> ")
        terminal.send("\x04")
        self.assertEqual(terminal.wait(), 0)
        text = terminal.process.stdout.read().decode()
        self.assertEqual(text, self.generate("quick", "-n", 30, "--seed", 5, "--no-display-prompt").stdout)

    def test_lines_can_be_edited(self):
        cases = (("fx\x1b[Do", "fox"),                             # left
                 ("fx\x1b[D\x1b[Co", "fxo"),                       # right
                 ("ox\x01f\x05y", "foxy"),                         # Ctrl-A, Ctrl-E
                 ("ox\x1b[Hf\x1b[Fz", "foxz"),                     # Home and End
                 ("ox\x1bOHf\x1bOFy", "foxy"),                     # the same of a terminal in application mode
                 ("ox\x1b[1~f\x1b[4~z", "foxz"),                   # and of other terminals
                 ("fooox\x1b[D\x1b[D\x1b[D\x1b[3~\x7f", "fox"),    # Delete, Backspace
                 ("the lazy\x17fox", "the fox"),                   # Ctrl-W
                 ("the\x1b[1;5D fox\x1b[1;5Cy", " foxthey"),       # Ctrl-Left, Ctrl-Right
                 ("café ï\x02\x02\x7fe 語\x06\x06", "cafe 語 ï"))  # Ctrl-B and Ctrl-F over characters of several bytes
        self.assertEqual(self.typed(keys for keys, _ in cases), [line for _, line in cases])

    def test_earlier_lines_come_back(self):
        up, down, ctrl_r = "\x1b[A", "\x1b[B", "\x12"
        lines = ["the", "fox", up + up, up + "y", up + up + up + down + "z", ctrl_r + "they\x05."]
        self.assertEqual(self.typed(lines), ["the", "fox", "the", "they", "thez", "they."])

    def test_utf8_whatever_the_locale_says(self):
        for locale in ("C", "de_DE.ISO-8859-1"):
            with self.subTest(locale=locale):
                self.assertEqual(self.typed(["語 cafée\x7f"], environment={"LC_ALL": locale}), ["語 café"])

    def test_ctrl_c_ends_a_text_but_not_the_program(self):
        terminal = self.open("-n", 10**9)
        for _ in range(2):
            terminal.read_until("> ")
            terminal.send("the\r")
            terminal.read_until("the\r\n")
            terminal.read_until("e")  # a letter of the text
            terminal.send("\x03")
            self.assertIn("; interrupted", " ".join(terminal.read_until("interrupted\r\n").split()))
        terminal.read_until("> ")
        terminal.send("\x04")
        self.assertEqual(terminal.wait(), 0)
        self.assertEqual(terminal.modes(), terminal.modes_before)

    def test_a_signal_at_the_prompt_leaves_and_restores_the_terminal(self):
        for how, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
            terminal = self.open()
            terminal.read_until("> ")
            terminal.send("the")
            terminal.read_until("the")
            self.assertFalse(terminal.modes()[3] & termios.ICANON)  # else there was nothing to restore
            if how == signal.SIGINT:
                terminal.send("\x03")
            else:
                terminal.process.send_signal(how)
            self.assertEqual(terminal.wait(), code)
            self.assertEqual(terminal.modes(), terminal.modes_before)
            self.assertTrue(terminal.shown.endswith(b"\n"))

    def test_sigterm_ends_text_and_program(self):
        terminal = self.open("-n", 10**9)
        terminal.read_until("> ")
        terminal.send("the\r")
        terminal.read_until("the\r\n")
        terminal.read_until("e")
        terminal.process.send_signal(signal.SIGTERM)
        self.assertEqual(terminal.wait(), 143)
        self.assertIn(b"; interrupted", b" ".join(terminal.shown.split()))

    def test_ctrl_z_gives_the_terminal_back_until_fg(self):
        command = " ".join(f"'{word}'" for word in programs.command("gpt-generate", *self.words("--interactive", "--verbose", "-n", 30)))
        shell = generating.Terminal(["bash", "--norc", "--noprofile", "--noediting", "-i"], environment={"PS1": "shell$ "})
        self.addCleanup(shell.close)
        shell.read_until("shell$ ")
        shell.send(command + "\n")
        shell.read_until("\n> ")
        shell.send("the f\x1a")
        shell.read_until("Stopped")
        shell.read_until("shell$ ")
        self.assertTrue(shell.modes()[3] & termios.ICANON and shell.modes()[3] & termios.ECHO)
        shell.send("fg\n")
        shell.read_until("> the f")
        shell.send("ox\r")
        shell.read_until("30 tokens in")
        self.assertIn("prompt of 7 tokens", shell.read_until("ended"))
        shell.read_until("> ")
        shell.send("\x04")
        shell.read_until("shell$ ")
        shell.send("exit\n")
        self.assertEqual(shell.wait(), 0)

    def test_the_prompt_is_on_the_screen_wherever_standard_error_goes(self):
        terminal = self.open("-n", 5, stderr=subprocess.DEVNULL)
        terminal.read_until("> ")
        terminal.send("fx\x1b[Do")
        terminal.read_until("o")
        terminal.send("\r")
        terminal.read_until("\n")
        terminal.read_until("\n> ")

    def test_a_terminal_that_can_do_nothing_has_its_own_editing(self):
        terminal = self.open("-n", 5, environment={"TERM": "dumb"})
        terminal.read_until("> ")
        terminal.send("fxx\x7f\x7fox\r")
        self.assertIn("prompt of 3 tokens", terminal.read_until("ended"))
        terminal.read_until("> ")
        terminal.send("\x04")
        self.assertEqual(terminal.wait(), 0)

    def test_without_a_terminal_there_is_no_prompt(self):
        done = self.generate("--interactive", "-n", 30, "--seed", 1, stdin="the\nfox\n")
        text = lambda prompt, seed: self.generate(prompt, "-n", 30, "--seed", seed, "--no-display-prompt").stdout
        self.assertEqual(done.stdout, text("the", 1) + text("fox", 2))
        self.assertNotIn("> ", done.stderr)
        self.assertNotIn("Ctrl-D", done.stderr)

    def test_line_editing_is_linked_statically(self):
        libraries = subprocess.run(["ldd", str(programs.BIN / "gpt-generate")], capture_output=True, text=True, check=True).stdout
        for name in ("libedit", "libtinfo", "libncurses", "libbsd"):
            self.assertNotIn(name, libraries)


if __name__ == "__main__":
    unittest.main()

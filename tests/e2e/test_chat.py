"""Talking with a model that has a chat template: gpt-generate --chat, /v1/chat/completions, and the page of gpt-serve."""

import json
import pathlib
import tempfile
import unittest

import browser
import programs
import serving

# A template of our own: a letter says who speaks.
TEMPLATE = """{% for message in messages -%}
  {%- if message.role == 'narrator' %}{{ raise_exception('nobody narrates here') }}{% endif -%}
  {{ {'user': 'q ', 'assistant': 'a ', 'system': 's '}[message.role] ~ message.content ~ '\\n' }}
{%- endfor -%}
{%- if add_generation_prompt %}{{ 'a ' }}{% endif -%}
"""


def write_talker(folder, **options):
    """A model of Hugging Face's form with this template, trained for some steps on bytes; its path."""
    programs.train(folder / "run", programs.write_text(folder), data__tokenizer="byte", **options)
    model = folder / "talker"
    programs.run("gpt-export", "--checkpoint", folder / "run", "--output", model, check_code=0)
    (model / "chat_template.jinja").write_text(TEMPLATE)
    return model


class Chat(unittest.TestCase):
    """cls.model is a folder of Hugging Face's form, whose model has a context of 128."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.model = write_talker(cls.folder, model__block_size=128, training__max_steps=30)
        cls.server = serving.Server("--checkpoint", cls.model, "--device", "cpu", "--threads", 1, "--slots", 2)
        cls.addClassCleanup(cls.server.close)

    def chat(self, *words, code=0, **options):
        return programs.run("gpt-generate", "--checkpoint", self.model, "--device", "cpu", "--threads", 1, "--chat", *words,
                            check_code=code, **options)

    def ask(self, messages, **fields):
        status, answer = self.server.ask("POST", "/v1/chat/completions", {"messages": messages, **fields})
        self.assertEqual(status, 200, answer)
        return answer

    def refused(self, status, **fields):
        got, answer = self.server.ask("POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": "the"}], **fields})
        self.assertEqual(got, status, answer)
        return answer["error"]

    def test_a_served_answer_is_that_of_gpt_generate(self):
        said = json.loads(self.chat("the quick", "-n", 20, "--seed", 5, "--system", "fox", "--json").stdout)
        self.assertEqual(said["prompt"], "the quick")
        self.assertGreater(len(said["text"]), 0)
        messages = [{"role": "system", "content": "fox"}, {"role": "user", "content": [{"type": "text", "text": "the "}, {"type": "text", "text": "quick"}]}]
        answer = self.ask(messages, max_completion_tokens=20, seed=5)
        self.assertEqual(list(answer), ["id", "object", "created", "model", "choices", "usage"])
        self.assertEqual((answer["object"], answer["id"][:9]), ("chat.completion", "chatcmpl-"))
        choice = answer["choices"][0]
        self.assertEqual(choice["message"], {"role": "assistant", "content": said["text"], "refusal": None})
        self.assertEqual(choice["finish_reason"], "length" if said["stop_reason"] == "length" else "stop")
        self.assertEqual(answer["usage"]["prompt_tokens"], said["prompt_tokens"])
        self.assertEqual(answer["usage"]["completion_tokens"], said["tokens"])
        self.assertEqual(self.chat("--prompt", "the quick", "-n", 20, "--seed", 5, "--system", "fox").stdout, said["text"].removesuffix("\n") + "\n")

    def test_a_dialogue_goes_on_and_is_saved(self):
        saved = self.folder / "saved.jsonl"
        lines = f"the\nfox\n/nonsense\n/save {saved}\n/reset\nthe\n/save {saved}\n/quit\nnever read\n"
        done = self.chat("-n", 12, "--stop", "\n", "--temperature", 0, "--system", "dog", stdin=lines)
        first, second = [json.loads(line)["messages"] for line in saved.read_text().splitlines()]
        self.assertEqual([m["role"] for m in first], ["system", "user", "assistant", "user", "assistant"])
        self.assertEqual([m["content"] for m in first[:2]], ["dog", "the"])
        self.assertEqual(second, first[:3])
        self.assertEqual(done.stdout, "".join(first[i]["content"] + "\n" for i in (2, 4, 2) if first[i]["content"]))
        self.assertIn("there is no command like that", done.stderr)
        for i in (2, 4):  # the server is told all that was said before
            answer = self.ask(first[:i], max_tokens=12, stop="\n", temperature=0)
            self.assertEqual(answer["choices"][0]["message"]["content"], first[i]["content"])

    def test_a_dialogue_that_outgrows_the_context_loses_its_oldest_turns(self):
        done = self.chat("-n", 10, stdin="the quick brown fox jumps over the lazy dog\n" * 4)
        self.assertIn("The dialogue has outgrown the model's context: its oldest turn was dropped", done.stderr)
        done = self.chat(stdin="the " * 60 + "\nfox\n")
        self.assertRegex(done.stderr, r"error: the message has \d+ tokens with what the template adds, and the model sees only 128")

    def test_without_a_template_one_line_says_what_to_do(self):
        words = ("--checkpoint", self.folder / "run", "--device", "cpu", "--chat", "the")
        done = programs.run("gpt-generate", *words, check_code=2)
        self.assertEqual((done.stdout, len([l for l in done.stderr.splitlines() if l.startswith("error: ")])), ("", 1))
        self.assertIn("this model has no chat template", done.stderr)
        self.assertIn("name a template with --chat-template", done.stderr)
        programs.run("gpt-generate", *words, "-n", 5, "--chat-template", self.model / "chat_template.jinja", check_code=0)
        (self.folder / "bad.jinja").write_text("\n{% include 'x' %}")
        done = programs.run("gpt-generate", *words, "--chat-template", self.folder / "bad.jinja", check_code=3)
        self.assertIn("the chat template, line 2: the block {% include %} is not supported", done.stderr)
        for more in (("--interactive",), ("--num-samples", 2), ("--no-display-prompt",)):
            self.assertIn("--chat", self.chat(*more, code=2).stderr)
        self.assertIn("--system is for --chat", programs.run("gpt-generate", "the", "--system", "x", check_code=2).stderr)

    def test_a_stream_begins_with_the_role_and_ends_with_a_reason(self):
        fields = {"messages": [{"role": "user", "content": "the"}], "max_tokens": 8, "seed": 3, "n": 2}
        whole = self.ask(**fields)
        answer = self.server.begin("POST", "/v1/chat/completions", {**fields, "stream": True, "stream_options": {"include_usage": True}})
        self.addCleanup(answer.connection.close)
        *pieces, usage, done = serving.events(answer)
        self.assertEqual(done, "[DONE]")
        self.assertEqual((usage["choices"], usage["usage"]), ([], whole["usage"]))
        for choice in whole["choices"]:
            mine = [piece["choices"][0] for piece in pieces if piece["choices"][0]["index"] == choice["index"]]
            self.assertEqual(mine[0]["delta"]["role"], "assistant")
            self.assertTrue(all("role" not in piece["delta"] for piece in mine[1:]))
            self.assertEqual("".join(piece["delta"].get("content", "") for piece in mine), choice["message"]["content"])
            self.assertEqual([piece["finish_reason"] for piece in mine], [None] * (len(mine) - 1) + [choice["finish_reason"]])
        self.assertEqual({piece["object"] for piece in pieces}, {"chat.completion.chunk"})

    def test_log_probabilities_are_those_of_the_tokens(self):
        answer = self.ask([{"role": "user", "content": "the"}], max_tokens=3, logprobs=True, top_logprobs=2, temperature=0)
        tokens = answer["choices"][0]["logprobs"]["content"]
        self.assertEqual(len(tokens), answer["usage"]["completion_tokens"])
        for token in tokens:
            self.assertEqual(sorted(token), ["bytes", "logprob", "token", "top_logprobs"])
            self.assertEqual(token["top_logprobs"][0]["token"], token["token"])  # the likeliest was taken
            self.assertEqual(len(token["top_logprobs"]), 2)

    def test_an_answer_ends_where_the_context_does(self):
        answer = self.ask([{"role": "user", "content": "the"}], seed=1, ignore_eos=True)
        self.assertEqual(answer["choices"][0]["finish_reason"], "length")
        self.assertEqual(answer["usage"]["total_tokens"], 128)
        error = self.refused(400, messages=[{"role": "user", "content": "x" * 200}])
        self.assertEqual((error["param"], error["code"]), ("messages", "context_length_exceeded"))

    def test_what_is_not_there_is_refused_by_name(self):
        for fields, message in (
                ({"tools": [{"type": "function"}]}, "tools is not supported"),
                ({"response_format": {"type": "json_object"}}, "response_format is not supported"),
                ({"presence_penalty": 0.5}, "presence_penalty is not supported"),
                ({"logprobs": 3}, "logprobs must be true or false"),
                ({"messages": []}, "messages must be a list"),
                ({"messages": [{"role": "tool", "content": "x"}]}, r'messages[0].role "tool" is not supported'),
                ({"messages": [{"role": "user"}]}, "messages[0].content must be a text"),
                ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, 'part of type "image_url" is not supported')):
            self.assertIn(message, self.refused(400, **fields)["message"])
        self.ask([{"role": "developer", "content": "s"}, {"role": "user", "content": "the", "name": "me", "novel": 1}], max_tokens=1,
                 tools=[], tool_choice="auto", response_format={"type": "text"}, unheard_of=1)
        self.server.wait_for_line("'unheard_of'")
        self.server.wait_for_line(r"'messages\[\]\.novel'")
        other = serving.Server("--checkpoint", self.folder / "run", "--device", "cpu", "--threads", 1)
        self.addCleanup(other.close)
        status, answer = other.ask("POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": "the"}]})
        self.assertEqual((status, answer["error"]["code"]), (400, "no_chat_template"))

    @unittest.skipUnless(browser.DRIVER, browser.DRIVER_MISSING)
    def test_the_page_keeps_a_dialogue(self):
        page = browser.Session(self.folder / "profile")
        self.addCleanup(page.close)
        page.open(f"http://127.0.0.1:{self.server.port}/")
        page.wait_for(lambda: page.text("model") == "talker")
        page.click("settings")
        page.type("seed", "5")
        page.type("max_tokens", "20")
        for turn in (1, 2):
            page.type("words", f"the {turn}")
            page.click("send")
            page.wait_for(lambda: page.is_enabled("send"))
        said = page.text("dialogue")
        self.assertRegex(said, "the 1.+the 2")
        page.type("words", "unsent")
        page.reload()
        page.wait_for(lambda: page.text("dialogue") == said)
        self.assertEqual(page.value("words"), "unsent")
        page.click("clear")
        page.wait_for(lambda: page.text("dialogue") == "")


if __name__ == "__main__":
    unittest.main()

"""gpt-serve as its clients see it: OpenAI's completions, errors, keys, limits, slow clients and signals."""

import concurrent.futures
import contextlib
import json
import math
import signal
import socket
import unittest

import browser
import generating
import programs
import serving

LONG = 1_000_000_000  # tokens: a text that ends only where something ends it


class Serve(generating.TrainedModel):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.server = serving.Server("--checkpoint", cls.root / "run", "--device", "cpu", "--threads", 1, "--slots", 4, "--queue", 8,
                                    "--max-tokens", LONG)
        cls.addClassCleanup(cls.server.close)

    def serve(self, *words, **options):
        server = serving.Server(*self.words("--threads", 1, *words), **options)
        self.addCleanup(server.close)
        return server

    def generated(self, prompt, *words):
        return json.loads(self.generate(prompt, "--json", "--threads", 1, *words).stdout)

    def test_a_text_is_that_of_gpt_generate(self):
        for prompt, flags, fields in (
                ("the quick", ("-n", 40, "--seed", 5), dict(max_tokens=40, seed=5)),
                ("a", ("-n", 30, "--seed", 6, "--temperature", 0.7, "--top-k", 4), dict(max_tokens=30, seed=6, temperature=0.7, top_k=4)),
                ("", ("-n", 30, "--seed", 7, "--top-p", 0.8), dict(max_tokens=30, seed=7, top_p=0.8)),
                ("a", ("-n", 60, "--seed", 8, "--stop", "o", "--stop", "x"), dict(max_tokens=60, seed=8, stop=["o", "x"])),
                ("caf", ("-n", 50, "--temperature", 0), dict(max_tokens=50, temperature=0))):
            expected = self.generated(prompt, *flags)
            answer = self.server.complete(prompt=prompt, **fields)
            choice, usage = answer["choices"][0], answer["usage"]
            self.assertEqual(choice["text"], expected["text"], flags)
            self.assertEqual(choice["finish_reason"], "length" if expected["stop_reason"] == "length" else "stop")
            self.assertEqual((usage["prompt_tokens"], usage["completion_tokens"]), (expected["prompt_tokens"], expected["tokens"]))
            self.assertEqual(usage["total_tokens"], expected["prompt_tokens"] + expected["tokens"])
            streamed = self.server.stream(prompt=prompt, **fields)
            self.assertEqual("".join(piece["choices"][0]["text"] for piece in streamed[:-1]), expected["text"])

    def test_an_answer_has_openais_form(self):
        answer = self.server.complete(model="run", prompt="a", user="me")
        self.assertEqual(list(answer), ["id", "object", "created", "model", "choices", "usage"])
        self.assertEqual((answer["object"], answer["model"]), ("text_completion", "run"))
        self.assertEqual(list(answer["choices"][0]), ["index", "text", "logprobs", "finish_reason"])
        self.assertEqual(answer["usage"]["completion_tokens"], 16)
        models = self.server.ask("GET", "/v1/models")[1]
        self.assertEqual([list(model) for model in models["data"]], [["id", "object", "created", "owned_by", "root", "parent"]])
        self.assertEqual((models["object"], models["data"][0]["id"]), ("list", "run"))
        self.assertEqual(self.server.ask("GET", "/v1/models/%72un")[1], models["data"][0])
        status, answer = self.server.ask("GET", "/v1/models/ru")
        self.assertEqual((status, answer["error"]["code"]), (404, "model_not_found"))

    def test_several_prompts_and_texts(self):
        answer = self.server.complete(prompt=["the", [1, 2], ""], n=2, max_tokens=10, seed=3, echo=True)
        self.assertEqual([choice["index"] for choice in answer["choices"]], list(range(6)))
        for index, choice in enumerate(answer["choices"]):
            prompt = ["the", None, ""][index // 2]
            if prompt is None:
                continue
            expected = self.generated(prompt, "-n", 10, "--seed", 3 + index)["text"]
            self.assertEqual(choice["text"], prompt + expected)

    def test_a_stream_ends_with_its_reason_and_its_usage(self):
        events = self.server.stream(prompt="the", max_tokens=12, seed=1, n=2, echo=True, stream_options={"include_usage": True})
        self.assertEqual(events.pop(), "[DONE]")
        last = events.pop()
        self.assertEqual((last["choices"], last["usage"]), ([], {"prompt_tokens": 3, "completion_tokens": 24, "total_tokens": 27}))
        for index in range(2):
            choices = [event["choices"][0] for event in events if event["choices"][0]["index"] == index]
            self.assertEqual([choice["finish_reason"] for choice in choices], [None] * (len(choices) - 1) + ["length"])
            self.assertGreater(len(choices), 6)
            self.assertTrue("".join(choice["text"] for choice in choices).startswith("the"))
        self.assertEqual({event["id"] for event in events}, {last["id"]})
        self.assertTrue(all(event["usage"] is None for event in events))
        *told, done = self.server.stream(prompt="the", max_tokens=12, stream_options={"continuous_usage_stats": True}, ignore_eos=True)
        self.assertEqual([event["usage"]["completion_tokens"] for event in told if event["choices"][0]["text"]][-1:], [12])
        self.assertTrue(all(event["usage"]["prompt_tokens"] == 3 for event in told))

    def test_logprobs_of_the_prompt_are_those_of_a_forward_pass(self):
        vocabulary = 44
        asked = dict(prompt="the quick br", max_tokens=1, temperature=0, logprobs=5, echo=True, seed=1234)
        choice = self.server.complete(**asked)["choices"][0]
        logprobs = choice["logprobs"]
        self.assertEqual("".join(logprobs["tokens"]), choice["text"])
        self.assertEqual(logprobs["text_offset"], list(range(13)))
        self.assertIsNone(logprobs["token_logprobs"][0])
        self.assertIsNone(logprobs["top_logprobs"][0])
        for token, logprob, top in list(zip(logprobs["tokens"], logprobs["token_logprobs"], logprobs["top_logprobs"]))[1:]:
            self.assertEqual(top[token], logprob)
            self.assertIn(len(top), (5, 6))
            self.assertLessEqual(logprob, 0)
        # The greedy token is the likeliest, as lm_eval looks for it, and its logprob has all digits of a float32.
        self.assertEqual(logprobs["token_logprobs"][-1], max(logprobs["top_logprobs"][-1].values()))
        # The same positions as ends of prompts of their own, which the cache computes.
        for end in (1, 5, 11):
            next_one = self.server.complete(prompt=asked["prompt"][:end], max_tokens=1, temperature=0, logprobs=5)["choices"][0]["logprobs"]
            for token, logprob in next_one["top_logprobs"][0].items():
                if token in logprobs["top_logprobs"][end]:
                    self.assertAlmostEqual(logprob, logprobs["top_logprobs"][end][token], delta=1e-4)
        # Together the probabilities of all tokens are 1: they are not those that it draws from.
        ids = self.server.complete(prompt="a", max_tokens=1, temperature=0.1, top_k=1, logprobs=20)["choices"][0]["logprobs"]
        self.assertLess(sum(map(math.exp, ids["top_logprobs"][0].values())), 1 + 1e-5)
        self.assertGreater(vocabulary, 20)
        # A prompt of ids alone, as lm_eval sends it.
        scored = self.server.complete(prompt=[[3, 4, 5], [6]], max_tokens=0, logprobs=1, echo=True)
        self.assertEqual([len(c["logprobs"]["tokens"]) for c in scored["choices"]], [3, 1])
        self.assertEqual(scored["usage"]["completion_tokens"], 0)
        self.assertEqual(len(self.server.complete(prompt="a", max_tokens=4, logprobs=0)["choices"][0]["logprobs"]["tokens"]), 4)

    def test_logprobs_are_streamed_with_their_texts(self):
        asked = dict(prompt="the", max_tokens=9, seed=2, logprobs=2, echo=True)
        whole = self.server.complete(**asked)["choices"][0]["logprobs"]
        pieces = [event["choices"][0]["logprobs"] for event in self.server.stream(**asked)[:-1]]
        for name in whole:
            self.assertEqual([value for piece in pieces for value in piece[name]], whole[name], name)

    def test_refused_requests_name_what_is_wrong(self):
        error = self.server.refused(400, prompt="a", temperature=-1)
        self.assertEqual((error["type"], error["param"], error["code"]), ("invalid_request_error", "temperature", None))
        self.assertIn("suffix is not supported", self.server.refused(400, prompt="a", suffix="b")["message"])
        self.assertEqual(self.server.refused(404, prompt="a", model="gpt-4")["code"], "model_not_found")
        self.assertEqual(self.server.refused(400, prompt="a" * 17)["code"], "context_length_exceeded")
        self.assertIn("is not in the vocabulary", self.server.refused(400, prompt="Ä")["message"])
        self.assertIn("outside the vocabulary", self.server.refused(400, prompt=[1000])["message"])
        for method, path, status, allowed in (("GET", "/v1/completions", 405, "POST"), ("POST", "/health", 405, "GET, HEAD"),
                                              ("HEAD", "/v1/completions", 405, "POST"), ("PUT", "/", 405, "GET, HEAD"),
                                              ("GET", "/v1", 404, None), ("HEAD", "/health", 200, None), ("HEAD", "/v1/models", 200, None)):
            answer = self.server.begin(method, path, b"")
            with contextlib.closing(answer.connection):
                self.assertEqual((answer.status, answer.getheader("Allow")), (status, allowed), (method, path))
        for body in (b"", b"{", b"[" * 100_000, b"\xff\xfe", b'{"prompt": "a", "n": 1e999}', b'{"prompt": "\\ud800"}', b"null"):
            status, answer = self.server.ask("POST", "/v1/completions", body)
            self.assertEqual((status, answer["error"]["type"]), (400, "invalid_request_error"), body[:50])
            self.assertNotIn("exception", answer["error"]["message"])
        self.assertEqual(self.server.ask("POST", "/v1/completions", b"x" * (5 << 20))[0], 413)
        for head in (b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\r\n\r\n", b"POST / HTTP/1.1\r\nHost: a\r\n\r\n"):
            with self.server.send_raw(head) as connection:
                self.assertRegex(connection.recv(100), rb"^HTTP/1.1 4\d\d ")
        self.server.complete(prompt="a")  # it is still there

    def test_fields_that_change_nothing_are_named_once(self):
        for _ in range(2):
            self.server.complete(prompt="a", max_tokens=1, langs=1, cache_prompt=True, lang=None, stop="", top_k=-1)
        self.server.complete(prompt="a", max_tokens=1, last_of_all=1)
        self.server.wait_for_line("'last_of_all'")  # then the others are there, too
        named = [line for line in self.server.log if "have the field" in line]
        self.assertEqual(len(named), 3, self.server.log)
        self.assertIn("'cache_prompt', which changes nothing here", named[0])
        self.assertRegex(named[1], "^warning: .*'langs', which this server does not know.* --strict-fields")

    def test_a_body_may_come_in_chunks_and_a_client_may_send_no_more(self):
        whole = serving.raw_completion(prompt="the", max_tokens=5, seed=1)
        head, _, body = whole.partition(b"\r\n\r\n")
        head = head.rpartition(b"\r\n")[0] + b"\r\nTransfer-Encoding: chunked\r\n\r\n"
        chunks = b"".join(b"%x\r\n%s\r\n" % (len(body[i:i + 7]), body[i:i + 7]) for i in range(0, len(body), 7)) + b"0\r\n\r\n"
        answers = []
        for request in (whole, head + chunks):
            with self.server.send_raw(request) as connection:
                connection.shutdown(socket.SHUT_WR)
                answers.append(b"".join(iter(lambda: connection.recv(4096), b"")))
        texts = [json.loads(answer.rpartition(b"\r\n\r\n")[2])["choices"][0]["text"] for answer in answers]
        self.assertEqual(texts, [self.generated("the", "-n", 5, "--seed", 1)["text"]] * 2)

    def test_the_end_of_a_long_prompt_is_continued_on_request(self):
        asked = dict(max_tokens=5, temperature=0)
        expected = self.server.complete(prompt="the quick brown ", **asked)
        answer = self.server.complete(prompt="abc" * 20 + "the quick brown ", truncate_prompt_tokens=-1, echo=True, **asked)
        self.assertEqual(answer["choices"][0]["text"], "the quick brown " + expected["choices"][0]["text"])
        self.assertEqual(answer["usage"], expected["usage"])

    def test_pages_of_other_sites_are_turned_away(self):
        ask = lambda **headers: self.server.ask("POST", "/v1/completions", {"prompt": "a"}, headers)[0]
        self.assertEqual(ask(Origin="http://example.org"), 403)
        self.assertEqual(ask(Host="example.org"), 403)
        self.assertEqual(ask(Host="example.org://127.0.0.1"), 400)
        self.assertEqual(ask(Origin=f"http://example.org://127.0.0.1:{self.server.port}"), 403)
        self.assertEqual(ask(Host=f"LOCALHOST:{self.server.port}"), 200)
        self.assertEqual(ask(Origin=f"http://127.0.0.1:{self.server.port}"), 200)
        answer = self.server.begin("GET", "/")
        with contextlib.closing(answer.connection):
            self.assertIn("default-src 'none'", answer.getheader("Content-Security-Policy"))
            self.assertIsNone(answer.getheader("Access-Control-Allow-Origin"))
            page = answer.read().decode()
        self.assertNotIn("innerHTML", page)
        self.assertNotRegex(page, r"(src|href)=.?https?:")

    def test_a_key_is_asked_for(self):
        refused = programs.run("gpt-serve", *self.words("--host", "0.0.0.0"), check_code=2)
        self.assertRegex(refused.stderr, r"^error: --host 0\.0\.0\.0: other machines could reach the model: set an API key")
        server = self.serve("--host", "0.0.0.0", env={"GPT_SERVE_API_KEY": "se-cret"})
        self.assertRegex(server.log[-1], "an API key needed$")
        for key in ("", "Bearer ", "Bearer se-cre", "Bearer se-cretx", "Bearer xe-cret", "Basic se-cret", "se-cret"):
            for method, path in (("POST", "/v1/completions"), ("GET", "/v1/models")):
                status, answer = server.ask(method, path, {"prompt": "a"}, {"Authorization": key})
                self.assertEqual((status, answer["error"]["code"]), (401, "invalid_api_key"), key)
        for scheme in ("Bearer ", "bearer ", "BEARER  "):
            self.assertEqual(server.ask("POST", "/v1/completions", {"prompt": "a"}, {"Authorization": scheme + "se-cret"})[0], 200)
        self.assertEqual(server.ask("GET", "/health")[0], 200)
        self.assertFalse(any("cret" in line for line in server.log))

    def test_many_at_once_get_the_texts_of_their_seeds(self):
        ask = lambda seed: self.server.complete(prompt="the", max_tokens=20 + seed, seed=seed)["choices"][0]["text"]
        with concurrent.futures.ThreadPoolExecutor(10) as clients:
            together = list(clients.map(ask, range(10)))
        self.assertEqual(together, [ask(seed) for seed in range(10)])

    def test_more_than_the_queue_holds_are_told_to_come_again(self):
        server = self.serve("--slots", 1, "--queue", 1, "--max-tokens", LONG, "--strict-fields")
        self.assertIn("'langs' is no field", server.refused(400, prompt="a", langs=1)["message"])
        with server.send_raw(serving.raw_completion(prompt="a", max_tokens=LONG, stream=True)) as running:
            running.recv(1)
            with server.send_raw(serving.raw_completion(prompt="a", max_tokens=5)) as waiting:
                server.wait_until(slots_in_use=1, queued=1)
                answer = server.begin("POST", "/v1/completions", {"prompt": "a"})
                with contextlib.closing(answer.connection):
                    self.assertEqual(answer.status, 429)
                    self.assertIn(int(answer.getheader("Retry-After")), range(1, 61))
                    self.assertEqual(json.load(answer)["error"]["code"], "queue_full")
                running.close()  # its slot is the next one's
                self.assertTrue(waiting.recv(100).startswith(b"HTTP/1.1 200 OK"))

    def test_who_reads_slowly_or_leaves_stops_nobody(self):
        with contextlib.ExitStack() as slow:
            for _ in range(3):  # they never read; the fourth slot is left
                slow.enter_context(self.server.send_raw(serving.raw_completion(prompt="a", max_tokens=LONG, stream=True)))
            for seed in range(3):
                self.server.complete(prompt="the", max_tokens=50, seed=seed)
        self.server.wait_until(slots_in_use=0, queued=0)
        with self.server.send_raw(serving.raw_completion(prompt="a", max_tokens=LONG)):  # not streamed: it is seen to leave too
            self.server.wait_until(slots_in_use=1)
        self.server.wait_until(slots_in_use=0)
        self.server.wait_for_line("^POST /v1/completions client left, ")

    def test_every_request_is_logged_in_one_harmless_line(self):
        server = self.serve()
        server.complete(prompt="a", max_tokens=3)
        with server.send_raw(b"GET /\xc2\x9b2J HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n") as connection:
            connection.recv(100)
        server.wait_for_line("^GET ")
        self.assertRegex(server.log[-2], r"^POST /v1/completions 200, 3 tokens, [\d.]+ ms$")
        self.assertRegex(server.log[-1], r"^GET /\\x9b2J 404, 0 tokens, ")

    def test_a_signal_ends_it_and_tells_the_clients(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            server = self.serve("--max-tokens", LONG, "--slots", 1)
            answer = server.begin("POST", "/v1/completions", {"prompt": "a", "max_tokens": LONG, "stream": True})
            with contextlib.closing(answer.connection):
                events = serving.events(answer)
                next(events)
                with server.send_raw(serving.raw_completion(prompt="a")) as waiting:
                    server.wait_until(queued=1)
                    server.process.send_signal(number)
                    *_, error, done = events
                    self.assertEqual((error["error"]["message"], done), ("the server is stopping", "[DONE]"))
                    self.assertTrue(waiting.recv(100).startswith(b"HTTP/1.1 503 "))
            self.assertEqual(server.wait(), 128 + number)
            self.assertEqual(server.log[-1], "Stopped")

    def test_wrong_usage(self):
        used = programs.run("gpt-serve", *self.words("--port", self.server.port), check_code=2)
        self.assertRegex(used.stderr, rf"(?m)^error: cannot listen at 127\.0\.0\.1, port {self.server.port}: .*choose another")
        self.assertRegex(programs.run("gpt-serve", *self.words("--api-key", "a b"), check_code=2).stderr, "^error: the API key must")
        self.assertRegex(programs.run("gpt-serve", "--checkpoint", self.root / "none", check_code=4).stderr, "^error: .*no such checkpoint")


@unittest.skipUnless(browser.DRIVER, browser.DRIVER_MISSING)
class Page(generating.TrainedModel):
    """What a person does on the page at /."""
    # Large enough to write hundreds of tokens a second and not thousands, which a browser on a busy machine does not keep up with: the
    # server would end the text before the page does.
    OPTIONS = {"model.n_layer": 6, "model.n_head": 6, "model.n_embd": 384, "training.max_steps": 1}

    def setUp(self):
        self.server = serving.Server(*self.words("--threads", 1, "--max-tokens", LONG), env={"GPT_SERVE_API_KEY": "secret"})
        self.addCleanup(self.server.close)
        self.browser = browser.Session(self.root / "profile")
        self.addCleanup(self.browser.close)
        self.browser.open(f"http://127.0.0.1:{self.server.port}/")

    def is_ready(self):
        return self.browser.is_enabled("go")

    def test_a_text_is_continued_and_stopped(self):
        page = self.browser
        page.wait_for(lambda: page.text("model") == "run")
        page.type("prompt", "the quick")
        page.click("go")
        page.wait_for(lambda: "API key" in page.text("note"))
        page.wait_for(self.is_ready)
        page.type("key", "secret")
        page.type("max_tokens", "30")
        page.type("seed", "7")
        page.click("go")
        page.wait_for(lambda: page.text("text") and self.is_ready())
        answer = self.server.ask("POST", "/v1/completions", {"prompt": "the quick", "max_tokens": 30, "temperature": 0.8, "seed": 7},
                                 {"Authorization": "Bearer secret"})
        first = answer[1]["choices"][0]["text"]
        self.assertEqual((page.text("prompted"), page.text("text"), page.text("note")), ("the quick", first, ""))
        page.press("prompt", browser.CONTROL + browser.ENTER)  # goes on from what was written
        page.wait_for(lambda: len(page.text("text")) > len(first) and self.is_ready())
        self.assertEqual((page.text("prompted"), page.text("text")[:len(first)]), ("the quick", first))
        page.click("again")
        page.wait_for(lambda: page.text("text") == first and self.is_ready())
        page.type("prompt", "a")  # another text begins anew
        page.type("max_tokens", str(LONG))
        page.click("go")
        page.wait_for(lambda: len(page.text("text")) > 50)
        self.assertEqual(page.text("prompted"), "a")
        page.click("stop")
        page.wait_for(self.is_ready)
        page.wait_for(lambda: any(line.startswith("POST /v1/completions client left, ") for line in self.server.log))
        self.assertEqual(page.text("note"), "")

"""PyTorch itself is one of the processes of a run: it joins with its own torch.distributed, computes its micro-batches with its own
autograd in float64, and checks what gpt-train sends and what it makes of the sum; so with its batches of the validation."""

import contextlib
import copy
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import threading
import unittest

import torch
import torch.distributed as dist

import programs

sys.path.insert(0, str(programs.SOURCE / "scripts"))
import pytorch_baseline as baseline  # noqa: E402

ALIGNMENT = 256  # values: at a multiple of them each parameter begins in the flat buffers
STEPS = 4
NOTHING = [0] * 6  # of what may end or interrupt a run: as many numbers as an Interruption of src/run/interruptions.cpp has
# What a process reads of its device.
DEVICE_FIELDS = re.findall(r'DeviceField\{"(\w+)"', (programs.SOURCE / "include/gpt/report/device_use.h").read_text())

OPTIONS = {**programs.TINY, "model.dropout": 0, "model.vocab_multiple": 1, "training.max_steps": STEPS, "training.eval_interval": STEPS,
           "training.sample_interval": 0}


class Peer:
    """Rank 1 of two. The other one, gpt-train, is rank 0."""

    def __init__(self):
        self.store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        self.words = dist.PrefixStore("gpt-train/0", self.store)
        self.ends = threading.Event()

    def environment_of_first(self):
        """As torchrun sets it, whose store serves all processes."""
        return {**os.environ, "RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(self.store.port), "TORCHELASTIC_USE_AGENT_STORE": "True"}

    def join(self):
        """Says that it is there, again and again, until it leaves; then connects."""
        address, port, token, *_ = self.words.get("watch").decode().split(" ")
        self.line = socket.create_connection((address, int(port)))
        self.line.sendall(f"hello {token} 1 PyTorch\n".encode())
        self.beats = threading.Thread(target=self.beat, daemon=True)
        self.beats.start()
        options = dist.ProcessGroupGloo._Options()
        options._devices = [dist.ProcessGroupGloo.create_device(hostname="127.0.0.1")] * 4
        options._threads = 4
        self.group = dist.ProcessGroupGloo(dist.PrefixStore("gloo", self.words), 1, 2, options)
        self.words.set("connected/1", "")

    def beat(self):
        with contextlib.suppress(OSError):
            while not self.ends.wait(0.5):
                self.line.sendall(b"beat\n")

    def leave(self, last_words):
        self.ends.set()
        self.beats.join()
        self.line.sendall(last_words)
        self.line.close()

    def agree_to_command(self):
        self.words.get("command")
        self.words.set("difference/1", "")

    def has_initial_weights(self):
        """What the first one says is CBOR, in which a true value follows its name."""
        return b"has_initial\xf5" in self.words.get("beginning")

    def receive_broadcast(self, count, dtype=torch.float32):
        values = torch.empty(count, dtype=dtype)
        self.group.broadcast(values.view(torch.uint8), 0).wait()
        return values

    def largest(self, *numbers):
        values = torch.tensor(numbers)
        options = dist.AllreduceOptions()
        options.reduceOp = dist.ReduceOp.MAX
        self.group.allreduce([values], options).wait()
        return values.tolist()

    def sum(self, mine, wire=torch.float32):
        """Returns what gpt-train has sent to be added, its first half missing, and the sum of all."""
        return self.add(*self.exchange(mine, wire))

    def sums(self, *of):
        """Those that are begun together: each is added when the next one has been exchanged."""
        exchanged, results = [], []
        for mine, wire in of:
            exchanged.append(self.exchange(mine, wire))
            results += [self.add(*exchanged[-2])] if len(exchanged) > 1 else []
        return [*results, self.add(*exchanged[-1])]

    def exchange(self, mine, wire):
        unit = ALIGNMENT if mine.numel() % ALIGNMENT == 0 else 1
        half = -(-mine.numel() // (2 * unit)) * unit
        sent, received = torch.zeros(2 * half, dtype=wire), torch.empty(2 * half, dtype=wire)
        sent[: mine.numel()] = mine.to(wire)
        self.group.alltoall_base(received, sent, [], []).wait()
        return mine.numel(), sent, received

    def add(self, count, sent, received):
        half, wide = len(sent) // 2, torch.promote_types(sent.dtype, torch.float32)
        theirs = received[:half].to(wide)  # of the second half, which is this process's to add
        own = (theirs + sent[half:].to(wide)).to(sent.dtype)
        total = torch.empty_like(sent)
        self.group._allgather_base(total, own).wait()
        return theirs[: count - half], total[:count]


class FlatLayout:
    """Where each parameter lies in the flat buffer, found by its values."""

    def __init__(self, flat, parameters):
        self.size, self.begins = flat.numel(), {}
        for name, value in parameters.items():
            candidates = range(0, flat.numel() - value.numel() + 1, ALIGNMENT)
            self.begins[name] = [at for at in candidates if torch.equal(flat[at : at + value.numel()], value.flatten())]

    def flattened(self, tensors):
        flat = torch.zeros(self.size, dtype=torch.float64)
        for name, tensor in tensors.items():
            flat[self.begins[name][0] :][: tensor.numel()] = tensor.flatten()
        return flat


def names_of(model):
    """The parameters as a checkpoint has them, a tied one once."""
    return {f"transformer.{name}" if name != "lm_head.weight" else name: p for name, p in model.named_parameters()}


class PyTorchAsAPeer(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        torch.set_default_dtype(torch.float64)
        self.addCleanup(torch.set_default_dtype, torch.float32)

    def start(self, peer, words):
        run = subprocess.Popen(programs.command("gpt-train", *words), env=peer.environment_of_first(), stdin=subprocess.DEVNULL,
                               stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.addCleanup(run.stderr.close)
        self.addCleanup(run.kill)
        return run

    def prepare(self, **options):
        """A model that has begun to learn, so that no two of its parameters are equal; the configuration that goes on with it."""
        text = programs.write_text(self.folder)
        words = {**OPTIONS, "data.text": text, **options}
        programs.run("gpt-train", *programs.flags({**words, "output_dir": self.folder / "before", "distributed.reduce_dtype": "float32"}),
                     check_code=0)
        self.before = self.folder / "before" / "ckpt.pt"
        self.words = programs.flags({**words, "output_dir": self.folder / "run", "training.init_from": self.before,
                                     "distributed.timeout": 600})
        path = self.folder / "config.yaml"
        path.write_text(programs.run("gpt-train", *self.words, "--print-config", check_code=0).stdout)
        config = baseline.read_config(path)
        self.training = {key.removeprefix("training."): value for key, value in config.items() if key.startswith("training.")}
        self.tokens, vocab_size = baseline.read_tokens(text, config)
        self.validation = baseline.read_tokens(text, {"data.validation_fraction": 0})[0][len(self.tokens) :]
        self.weights = torch.load(self.before, weights_only=True)["model"]
        self.model = baseline.GPT(baseline.model_config(config, vocab_size))
        self.model.load_state_dict({name.removeprefix("transformer."): value for name, value in self.weights.items()})
        self.windows = self.tokens.unfold(0, config["model.block_size"] + 1, 1)
        self.updates = baseline.updates(config["seed"], len(self.tokens), config["model.block_size"], self.training["batch_size"],
                                        self.training["gradient_accumulation_steps"])

    def gradients_of(self, first_tokens, sequences):
        """Loss and gradients of a micro-batch, as its part of an update of so many sequences."""
        model = copy.deepcopy(self.model)
        batch = self.windows[torch.tensor(first_tokens)]
        loss = model(batch[:, :-1], batch[:, 1:], 0.0) * (len(first_tokens) / sequences)
        loss.backward()
        return loss.detach(), {name: p.grad for name, p in names_of(model).items()}

    def train_along(self, peer, wire, rounding):
        """Plays rank 1 for the whole run. `rounding`: of a sum of two in the type that travels."""
        values = peer.receive_broadcast(self.flat_size())
        parameters = {name: self.weights[name] for name in names_of(self.model)}
        layout = FlatLayout(values, parameters)
        self.assertEqual({len(found) for found in layout.begins.values()}, {1}, "each parameter is at one place in what was broadcast")
        self.assertEqual(peer.largest(0), [0], "gpt-train finds its operators sound")
        self.assertEqual(peer.largest(0), [0], "and takes its folder once all have what they begin with")
        optimizer, history = baseline.make_optimizer(self.model, self.training), []
        for step in range(STEPS):
            self.assertEqual(peer.largest(*NOTHING), NOTHING, "nobody wants to stop")
            first, second = next(self.updates)
            (their_loss, theirs), (own_loss, own) = (self.gradients_of(part, len(first) + len(second)) for part in (first, second))
            expected, mine = layout.flattened(theirs), layout.flattened(own)
            (_, loss), (received, total) = peer.sums((own_loss.reshape(1), torch.float32), (mine, wire))
            self.assert_near(received, rounding, expected[-received.numel() :])
            self.assert_near(total, rounding, expected, mine)
            self.assertAlmostEqual(loss.item(), (own_loss + their_loss).item(), delta=1e-5)
            history.append((loss.item(), self.update(optimizer, step, layout, total)))
            readings = torch.zeros(2, len(DEVICE_FIELDS), dtype=torch.float64)
            readings[1] = torch.nan  # nothing
            _, total = peer.sum(readings.flatten(), torch.float64)
            self.assertTrue(total.view_as(readings)[1].isnan().all())
            _, waits = peer.sum(torch.zeros(2, dtype=torch.float64), torch.float64)
            self.assertGreater(waits[0].item(), 0, "gpt-train has waited for PyTorch")
        return history

    @torch.no_grad()
    def validate_along(self, peer):
        """After the last update; returns the validation loss. Batches are computed in turn, and the last, shorter sequence by all."""
        T, B = self.windows.shape[1] - 1, self.training["batch_size"]
        sum_of = lambda window: self.model(window[None, :-1], window[None, 1:], 0.0) * (len(window) - 1)
        windows = self.validation.unfold(0, T + 1, T)
        losses = torch.stack([sum_of(window) for window in windows])
        is_own = torch.arange(len(windows)) // B % 2 == 1
        for _ in range(0, len(windows), 2 * B):
            self.assertEqual(peer.largest(*NOTHING), NOTHING)
        _, total = peer.sum(losses * is_own, torch.float64)
        self.assert_near(total, 0, losses)
        self.assertTrue(torch.equal(total[is_own], losses[is_own]), "zeros are added to what one process has computed")
        rest = self.validation[len(windows) * T :]
        self.assertGreater(len(rest), 1)
        self.assertEqual(peer.largest(*NOTHING), NOTHING)
        self.assertEqual(peer.receive_broadcast(1, torch.float64).tolist(), [float("inf")], "no loss is the best so far")
        return (losses.sum() + sum_of(rest)).item() / (len(self.validation) - 1)

    def flat_size(self):
        return sum(-(-p.numel() // ALIGNMENT) * ALIGNMENT for p in names_of(self.model).values())

    def update(self, optimizer, step, layout, total):
        """What gpt-train must make of the sum; returns the norm of the gradients."""
        for name, parameter in names_of(self.model).items():
            at = layout.begins[name][0]
            parameter.grad = total[at : at + parameter.numel()].view(parameter.shape).double()
        for group in optimizer.param_groups:
            group["lr"] = baseline.learning_rate(self.training, step, STEPS)
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.training["gradient_clip"])
        optimizer.step()
        optimizer.zero_grad()
        return norm.item()

    def assert_near(self, values, rounding, *terms):
        """They are the sum of one or two terms, up to the rounding of each and of their sum; and that of gradients in float32."""
        magnitude = sum(term.abs() for term in terms)
        error, allowed = (values.double() - sum(terms)).abs(), len(terms) * rounding * magnitude + 1e-5 * magnitude.max()
        self.assertLess((error - allowed).max().item(), 0, f"off by up to {error.max()} where values are up to {magnitude.max()}")

    def check_run(self, wire, rounding, **options):
        self.prepare(**options)
        peer = Peer()
        run = self.start(peer, self.words)
        peer.join()
        try:
            peer.agree_to_command()
            self.assertTrue(peer.has_initial_weights())
            history = self.train_along(peer, wire, rounding)
            validation_loss = self.validate_along(peer)
        except BaseException:
            peer.leave(b"fault a test has failed\n")
            raise
        with contextlib.suppress(BrokenPipeError):  # the run may have ended before
            peer.leave(b"end\n")
        errors = run.communicate(timeout=programs.HANGS)[1]
        self.assertEqual(run.returncode, 0, errors)
        self.assertIn("2 processes, started by torchrun", errors)
        *updates, validation = programs.metrics(self.folder / "run")
        self.assertAlmostEqual(validation["val_loss"], validation_loss, delta=1e-4 * validation_loss)
        records = [(record["loss"], record["grad_norm"]) for record in updates]
        self.assertEqual(len(records), STEPS)
        for ours, theirs in zip(records, history, strict=True):
            for value, expected in zip(ours, theirs, strict=True):
                self.assertAlmostEqual(value, expected, delta=1e-4 * expected)
        saved = torch.load(self.folder / "run" / "ckpt.pt", weights_only=True)["model"]
        for name, parameter in names_of(self.model).items():
            # AdamW divides by the gradient's size: a rounding of the smallest gradients may change a whole step of theirs.
            moved = (parameter.detach() - self.weights[name]).norm()
            self.assertLess((saved[name] - parameter.detach()).norm() / moved, 1e-3, name)

    def test_gradients_that_travel_in_float32_are_added(self):
        self.check_run(torch.float32, 2**-24)

    def test_gradients_that_travel_in_bfloat16_are_added_in_float32(self):
        self.check_run(torch.bfloat16, 2**-8, **{"distributed.reduce_dtype": "bfloat16"})


if __name__ == "__main__":
    unittest.main()

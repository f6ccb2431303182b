"""The event files as TensorBoard's own readers see them: the one in Python, and its data server, which TensorBoard takes where it is installed."""

import os
import pathlib
import subprocess
import tempfile
import time
import unittest

import programs

try:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
except ImportError:
    EventAccumulator = None
try:
    import tensorboard_data_server
    from tensorboard import context
    from tensorboard.data import server_ingester
    from tensorboard.util import grpc_util
except ImportError:
    tensorboard_data_server = None

BIN = pathlib.Path(os.environ["GPT_BIN"])


@unittest.skipUnless(EventAccumulator, "no TensorBoard here: pip install tensorboard")
class TensorBoard(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        subprocess.run([BIN / "write_report", folder.name], check=True)
        cls.logs = f"{folder.name}/tensorboard"
        cls.events = EventAccumulator(cls.logs, size_guidance={"scalars": 0, "tensors": 0})
        cls.events.Reload()

    def steps(self, tag):
        return [scalar.step for scalar in self.events.Scalars(tag)]

    def test_tags(self):
        self.assertEqual(set(self.events.Tags()["scalars"]), {"loss/train", "loss/validation", "learning_rate", "grad_norm",
                                                               "tokens_per_second", "memory_mb", "mfu", "bits_per_byte",
                                                               "hellaswag/acc_norm", "device/gpu_busy", "device/memory_share"})
        self.assertLessEqual({"sample", "configuration"}, set(self.events.Tags()["tensors"]))

    def test_settings_are_hyper_parameters(self):
        from tensorboard.plugins.hparams import plugin_data_pb2
        metadata = self.events.SummaryMetadata("_hparams_/session_start_info")
        self.assertEqual(metadata.plugin_data.plugin_name, "hparams")
        settings = plugin_data_pb2.HParamsPluginData.FromString(metadata.plugin_data.content).session_start_info.hparams
        self.assertEqual(settings["model.n_layer"].number_value, 6)
        self.assertEqual(settings["data.text"].string_value, "my text")

    def test_steps_that_were_lost_and_done_again_are_there_once(self):
        self.assertEqual(self.steps("loss/train"), list(range(1, 2001)))
        self.assertEqual(self.steps("loss/validation"), list(range(100, 2001, 100)))

    def test_values(self):
        losses = {scalar.step: scalar.value for scalar in self.events.Scalars("loss/validation")}
        self.assertAlmostEqual(losses[2000], 1.48033, 4)
        self.assertEqual({scalar.value for scalar in self.events.Scalars("memory_mb")}, {8412.0, 9120.0})

    def test_samples_are_utf8_texts(self):
        self.assertEqual(self.events.SummaryMetadata("sample").plugin_data.plugin_name, "text")
        last = self.events.Tensors("sample")[-1]
        self.assertEqual(last.step, 2000)
        text = last.tensor_proto.string_val[0].decode("utf-8")
        self.assertIn("    </script><script>", text)
        self.assertIn("\ufffd\ufffd", text)

    @unittest.skipUnless(tensorboard_data_server, "no data server here: pip install tensorboard-data-server")
    def test_the_data_server_shows_the_same_steps(self):
        server = server_ingester.SubprocessServerDataIngester(
            server_binary=server_ingester.get_server_binary(), logdir=self.logs, reload_interval=0,
            channel_creds_type=grpc_util.ChannelCredsType.LOCAL, samples_per_plugin={"scalars": 0, "text": 0})
        server.start()
        asked = {"experiment_id": "", "downsample": 100_000}

        def shown():  # it reads in the background
            of = server.data_provider
            found = {**of.read_scalars(context.RequestContext(), plugin_name="scalars", **asked).get(".", {}),
                     **of.read_tensors(context.RequestContext(), plugin_name="text", **asked).get(".", {})}
            return {tag: [point.step for point in points] for tag, points in found.items()}

        expected = {tag: self.steps(tag) for tag in self.events.Tags()["scalars"]}
        expected |= {tag: [text.step for text in self.events.Tensors(tag)] for tag in ("sample", "configuration")}
        end = time.monotonic() + programs.HANGS
        while shown() != expected and time.monotonic() < end:
            time.sleep(0.1)
        self.assertEqual(shown(), expected)


if __name__ == "__main__":
    unittest.main()

"""The event files as TensorBoard's own reader sees them."""

import os
import pathlib
import subprocess
import tempfile
import unittest

try:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
except ImportError:
    EventAccumulator = None

BIN = pathlib.Path(os.environ["GPT_BIN"])


@unittest.skipUnless(EventAccumulator, "no TensorBoard here: pip install tensorboard")
class TensorBoard(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        subprocess.run([BIN / "write_report", folder.name], check=True)
        cls.events = EventAccumulator(f"{folder.name}/tensorboard", size_guidance={"scalars": 0, "tensors": 0})
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


if __name__ == "__main__":
    unittest.main()

#!/usr/bin/env bash
# What TensorBoard 2.21.0 shows of steps that a restart has lost. A program that is killed after step 6 and goes on after step 3 says so by an
# event with SessionLog.START at step 4, in a second file; one would expect all that the first file has from step 4 on to be dropped. Neither
# reader does just that. The one in Python (`tensorboard --load_fast false`) takes the first START of a run for its beginning, whatever its
# step: where the first start wrote none, nothing is dropped, and a curve goes back and forth. With one in each file it drops the steps of all
# tags. The data server (0.7.2), which TensorBoard takes by default where it is installed, passes START over: a tag loses its old points only
# when it has a new one at their step or before. So a tag that is written seldom goes on to show what never became part of the run.
set -euo pipefail
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
python3 -m venv "$scratch/venv"
"$scratch/venv/bin/pip" install -q tensorboard==2.21.0 tensorboard-data-server==0.7.2
"$scratch/venv/bin/python" - "$scratch/logs" 2>/dev/null <<'PYTHON'
import sys
import time

from tensorboard import context
from tensorboard.backend.event_processing import plugin_event_accumulator
from tensorboard.compat.proto import event_pb2, summary_pb2
from tensorboard.data import server_ingester
from tensorboard.summary.writer.event_file_writer import EventFileWriter
from tensorboard.util import grpc_util



def scalar(tag, step):
    return event_pb2.Event(wall_time=time.time(), step=step, summary=summary_pb2.Summary(value=[summary_pb2.Summary.Value(tag=tag, simple_value=step)]))


def write(logs, suffix, events):
    writer = EventFileWriter(logs, filename_suffix=suffix)
    for event in events:
        writer.add_event(event)
    writer.close()


def by_python(logs):
    reader = plugin_event_accumulator.EventAccumulator(logs, tensor_size_guidance={"scalars": 0})
    reader.Reload()
    return {tag: [point.step for point in reader.Tensors(tag)] for tag in reader.Tags()["tensors"]}


def by_data_server(logs):
    server = server_ingester.SubprocessServerDataIngester(
        server_binary=server_ingester.get_server_binary(), logdir=logs, reload_interval=0,
        channel_creds_type=grpc_util.ChannelCredsType.LOCAL, samples_per_plugin={"scalars": 0})
    server.start()
    found = {}
    while "often" not in found:  # it reads in the background, a file after the other
        found = server.data_provider.read_scalars(context.RequestContext(), experiment_id="", plugin_name="scalars", downsample=1000).get(".", {})
    time.sleep(3)
    found = server.data_provider.read_scalars(context.RequestContext(), experiment_id="", plugin_name="scalars", downsample=1000)["."]
    return {tag: [point.step for point in points] for tag, points in found.items()}


def start(step):
    return event_pb2.Event(wall_time=time.time(), step=step, session_log=event_pb2.SessionLog(status=event_pb2.SessionLog.START))


def read(logs, first):
    write(logs, ".1", first + [scalar("often", step) for step in range(1, 7)] + [scalar("seldom", 2), scalar("seldom", 5)])
    write(logs, ".2", [start(4)] + [scalar("often", step) for step in range(4, 6)])
    python, server = by_python(logs), by_data_server(logs)
    print("    the reader in Python:", python)
    print("    the data server:     ", server)
    return python, server


print("START in the second file alone:")
python, server = read(sys.argv[1] + "/one", [])
assert python == {"often": [1, 2, 3, 4, 5, 6, 4, 5], "seldom": [2, 5]}
assert server == {"often": [1, 2, 3, 4, 5], "seldom": [2, 5]}
print("START in both files:")
python, server = read(sys.argv[1] + "/both", [start(1)])
assert python == {"often": [1, 2, 3, 4, 5], "seldom": [2]}
assert server == {"often": [1, 2, 3, 4, 5], "seldom": [2, 5]}
PYTHON

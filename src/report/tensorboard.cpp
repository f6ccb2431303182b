#include "gpt/report/tensorboard.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <protozero/pbf_reader.hpp>
#include <protozero/pbf_writer.hpp>
#include <utility>
#include <vector>

#include "gpt/core/error.h"
#include "gpt/core/file.h"
#include "gpt/core/running_clock.h"
#include "gpt/report/run_history.h"

namespace gpt::report {
namespace {

// Field numbers of TensorFlow's event.proto, summary.proto, tensor.proto and tensor_shape.proto.
namespace event {
constexpr uint32_t wall_time = 1, step = 2, file_version = 3, summary = 5, session_log = 7;
}
namespace session_log {
constexpr uint32_t status = 1;
constexpr int32_t start = 1;
}  // namespace session_log
namespace summary {
constexpr uint32_t value = 1;
}
namespace value {
constexpr uint32_t tag = 1, simple_value = 2, tensor = 8, metadata = 9;
}
namespace metadata {
constexpr uint32_t plugin_data = 1, plugin_name = 1, content = 2;
}
// Field numbers from TensorBoard's plugins/hparams/plugin_data.proto, and from protobuf's struct.proto.
namespace hyper_parameters {
constexpr uint32_t session_start = 3, settings = 1, key = 1, value = 2, number = 2, string = 3;
}
namespace tensor {
constexpr uint32_t dtype = 1, shape = 2, string_value = 8, dimension = 2, size = 1;
constexpr int32_t string_type = 7;
}  // namespace tensor

constexpr char kFilePrefix[] = "events.out.tfevents.";

constexpr auto kCrcTable = [] {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (crc & 1 ? 0x82F63B78u : 0u);
    table[byte] = crc;
  }
  return table;
}();

// TFRecords mask their CRCs, because the CRC of bytes that contain their own CRC says little.
uint32_t masked_crc(std::string_view bytes) {
  const uint32_t crc = crc32c(bytes);
  return ((crc >> 15) | (crc << 17)) + 0xA282EAD8u;
}

template <class Integer>
void append_little_endian(std::string& to, Integer value) {
  for (size_t i = 0; i < sizeof value; ++i) to += static_cast<char>(value >> (8 * i) & 0xFF);
}

// An event of that time, to which `add_content(writer)` adds its content, as a record.
template <class AddContent>
std::string event_record(int64_t step, double time, const AddContent& add_content) {
  std::string bytes;
  protozero::pbf_writer writer(bytes);
  writer.add_double(event::wall_time, time);
  if (step != 0) writer.add_int64(event::step, step);
  add_content(writer);
  return tf_record(bytes);
}

using Scalar = std::pair<const char*, std::optional<double>>;

template <class Scalars = std::initializer_list<Scalar>>  // of pairs of a tag and a number
std::string scalar_record(int64_t step, const Scalars& scalars, double time = seconds_since_1970()) {
  return event_record(step, time, [&](protozero::pbf_writer& event) {
    protozero::pbf_writer summary(event, event::summary);
    for (const auto& [tag, number] : scalars) {
      if (!number) continue;
      protozero::pbf_writer value(summary, summary::value);
      value.add_string(value::tag, tag);
      value.add_float(value::simple_value, static_cast<float>(*number));
    }
  });
}

std::vector<std::pair<std::string, std::optional<double>>> scalars_of(const LayerNorms& norms) {
  std::vector<std::pair<std::string, std::optional<double>>> scalars;
  for (const auto& [kind, of_layers] : kLayerNormFields)
    for (int64_t layer = 0; layer < norms.layers(); ++layer)
      scalars.emplace_back(fmt::format("{}_norm/{}", kind, norms.name_of(layer)),
                           (norms.*of_layers)[static_cast<size_t>(layer)]);
  return scalars;
}

// TensorBoard shows texts as Markdown, in which indented lines keep their breaks, and takes nothing but UTF-8.
std::string as_markdown(const std::string& text) {
  constexpr auto kReplace = nlohmann::json::error_handler_t::replace;
  const nlohmann::json valid =
      nlohmann::json::parse(nlohmann::json(clipped(text, RunHistory::kMaxSampleBytes)).dump(-1, ' ', false, kReplace));
  std::string markdown = "    ";
  for (const char c : valid.get_ref<const std::string&>()) {
    markdown += c;
    if (c == '\n') markdown += "    ";
  }
  return markdown;
}

std::string text_record(int64_t step, const char* tag, const std::string& text) {
  return event_record(step, seconds_since_1970(), [&](protozero::pbf_writer& event) {
    protozero::pbf_writer summary(event, event::summary);
    protozero::pbf_writer value(summary, summary::value);
    value.add_string(value::tag, tag);
    {
      protozero::pbf_writer tensor(value, value::tensor);
      tensor.add_enum(tensor::dtype, tensor::string_type);
      {
        protozero::pbf_writer shape(tensor, tensor::shape);
        protozero::pbf_writer dimension(shape, tensor::dimension);
        dimension.add_int64(tensor::size, 1);
      }
      tensor.add_bytes(tensor::string_value, as_markdown(text));
    }
    protozero::pbf_writer metadata(value, value::metadata);
    protozero::pbf_writer plugin(metadata, metadata::plugin_data);
    plugin.add_string(metadata::plugin_name, "text");
  });
}

void add_setting(protozero::pbf_writer& session, const std::string& key, const std::string& text) {
  double number = 0;
  const bool is_number =
      std::from_chars(text.data(), text.data() + text.size(), number).ptr == text.data() + text.size();
  protozero::pbf_writer setting(session, hyper_parameters::settings);
  setting.add_string(hyper_parameters::key, key);
  protozero::pbf_writer value(setting, hyper_parameters::value);
  is_number ? value.add_double(hyper_parameters::number, number) : value.add_string(hyper_parameters::string, text);
}

// What TensorBoard's table of hyper-parameters shows.
std::string settings_record(const RunRecord& run) {
  std::string bytes;
  {
    protozero::pbf_writer plugin(bytes);
    protozero::pbf_writer session(plugin, hyper_parameters::session_start);
    for (const auto& [key, value] : run.settings) add_setting(session, key, value);
  }
  return event_record(0, seconds_since_1970(), [&](protozero::pbf_writer& event) {
    protozero::pbf_writer summary(event, event::summary);
    protozero::pbf_writer value(summary, summary::value);
    value.add_string(value::tag, "_hparams_/session_start_info");
    protozero::pbf_writer metadata(value, value::metadata);
    protozero::pbf_writer plugin(metadata, metadata::plugin_data);
    plugin.add_string(metadata::plugin_name, "hparams");
    plugin.add_bytes(metadata::content, bytes);
  });
}

constexpr size_t kRecordHead = sizeof(uint64_t) + sizeof(uint32_t), kRecordTail = sizeof(uint32_t);

int64_t step_of(std::string_view event_bytes) {
  protozero::pbf_reader reader(event_bytes.data(), event_bytes.size());
  return reader.next(event::step) ? reader.get_int64() : 0;
}

// Where in a file the first record of a later step begins, or what is no record; else its end.
size_t end_of_steps(std::string_view records, int64_t last_step) {
  size_t at = 0;
  while (records.size() - at >= kRecordHead + kRecordTail) {
    uint64_t size = 0;
    std::memcpy(&size, records.data() + at, sizeof size);
    if (size > records.size() - at - kRecordHead - kRecordTail) break;
    if (step_of(records.substr(at + kRecordHead, size)) > last_step) break;
    at += kRecordHead + size + kRecordTail;
  }
  return at;
}

// What an earlier start wrote of steps that are lost. TensorBoard's reader in Python drops that for the start that follows, but its data server
// does so tag by tag, once a tag has another value.
void cut_after(const std::string& folder, int64_t last_step) {
  for (const std::string& name : names_in(folder)) {
    if (!name.starts_with(kFilePrefix)) continue;
    const std::string path = folder + "/" + name;
    size_t end = 0;
    {
      const MappedFile file(path, ExitCode::disk);
      end = end_of_steps({reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()}, last_step);
      if (end == file.bytes().size()) continue;
    }
    std::error_code error;
    std::filesystem::resize_file(path, end, error);
    if (error) throw Error(ExitCode::disk, fmt::format("{}: cannot be shortened: {}", path, error.message()));
  }
}

std::string file_name() {
  char host[256] = {};
  if (gethostname(host, sizeof host - 1) != 0) host[0] = '\0';
  return fmt::format("{}{:010}.{}.{}", kFilePrefix, std::time(nullptr), host[0] ? host : "localhost", getpid());
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  uint32_t crc = ~0u;
  for (const char c : bytes) crc = (crc >> 8) ^ kCrcTable[(crc ^ static_cast<unsigned char>(c)) & 0xFF];
  return ~crc;
}

std::string tf_record(std::string_view bytes) {
  std::string record;
  append_little_endian(record, static_cast<uint64_t>(bytes.size()));
  append_little_endian(record, masked_crc(record));
  record += bytes;
  append_little_endian(record, masked_crc(bytes));
  return record;
}

TensorBoardEvents::TensorBoardEvents(std::string folder) : folder_(std::move(folder)) {}

void TensorBoardEvents::begin(const RunRecord& run) {
  create_folders(folder_);
  cut_after(folder_, run.first_step);
  file_.emplace(folder_ + "/" + file_name());
  file_->record(event_record(0, seconds_since_1970(), [](protozero::pbf_writer& event) {
    event.add_string(event::file_version, "brain.Event:2");
  }));
  // TensorBoard drops the steps from this one on.
  file_->record(event_record(run.first_step + 1, seconds_since_1970(), [](protozero::pbf_writer& event) {
    protozero::pbf_writer log(event, event::session_log);
    log.add_enum(session_log::status, session_log::start);
  }));
  if (!run.settings.empty()) file_->record(settings_record(run));
  if (!run.configuration.empty()) file_->record(text_record(run.first_step + 1, "configuration", run.configuration));
}

void TensorBoardEvents::step(const StepRecord& step) {
  if (!file_) return;
  file_->record(scalar_record(step.step, {{"loss/train", step.loss},
                                          {"learning_rate", step.learning_rate},
                                          {"grad_norm", step.grad_norm},
                                          {"tokens_per_second", step.tokens_per_second},
                                          {"memory_mb", step.peak_memory_mb},
                                          {"mfu", step.mfu},
                                          {"device/gpu_busy", least(step.devices, &DeviceUse::utilization)},
                                          {"device/cores_busy", least(step.devices, &DeviceUse::cores_busy)},
                                          {"device/cores_of_others", most(step.devices, &DeviceUse::cores_others)},
                                          {"device/memory_share", most_memory_share(step.devices)}}));
  if (step.norms) file_->record(scalar_record(step.step, scalars_of(*step.norms)));
}

void TensorBoardEvents::losses(const std::vector<LossRecord>& losses) {
  if (!file_) return;
  std::string records;
  for (const LossRecord& l : losses) {
    records +=
        scalar_record(l.step, {{"loss/train", l.loss}, {"learning_rate", l.learning_rate}, {"grad_norm", l.grad_norm}},
                      l.at.time);
  }
  file_->record(records);
}

void TensorBoardEvents::evaluation(const EvaluationRecord& evaluation) {
  if (!file_) return;
  file_->record(scalar_record(evaluation.step,
                              {{"loss/validation", evaluation.loss}, {"bits_per_byte", evaluation.bits_per_byte}}));
}

void TensorBoardEvents::task(const TaskRecord& task) {
  if (!file_) return;
  for (const TaskRecord::Metric& metric : task.metrics) {
    const std::string name = fmt::format("{}/{}", task.task, metric.name);
    file_->record(scalar_record(task.step, {{name.c_str(), metric.value}}));
  }
}

void TensorBoardEvents::sample(const SampleRecord& sample) {
  if (file_) file_->record(text_record(sample.step, "sample", sample.text));
}

}  // namespace gpt::report

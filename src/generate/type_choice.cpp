#include "gpt/generate/type_choice.h"

#include <ATen/Parallel.h>
#include <ATen/ops/ones.h>
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <system_error>

#include "gpt/core/error.h"
#include "gpt/core/file.h"
#include "gpt/core/home.h"
#include "gpt/core/log.h"
#include "gpt/device/host.h"
#include "gpt/device/precision.h"
#include "gpt/products/row_product.h"

namespace gpt::generate {
namespace {

using nlohmann::json;

constexpr at::ScalarType kTypes[] = {at::kBFloat16, at::kFloat};
constexpr uint64_t kMostBytes = 1 << 20;  // of the file

// What the times depend on. Models within a factor of two are of one size.
std::string machine_and_size(int64_t weights) {
  return fmt::format("{}, {} threads, 2^{} weights", host::cpu_name(), at::get_num_threads(),
                     std::bit_width(static_cast<uint64_t>(weights)));
}

json read_times(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return json::object();
  try {
    json times = json::parse(read_file(path, ExitCode::data, SizeLimit{"a list of times", kMostBytes}));
    if (times.is_object()) return times;
  } catch (const Error&) {
  } catch (const json::exception&) {}
  return json::object();
}

// Empty where the entry is missing or damaged.
TypeTimes times_in(const json& times, const std::string& key) {
  TypeTimes found;
  if (!times.contains(key) || !times[key].is_object()) return {};
  for (const at::ScalarType type : kTypes) {
    const auto value = times[key].find(std::string(device::name_of(type)));
    if (value == times[key].end() || !value->is_number() || !(value->get<double>() > 0)) return {};
    found[type] = value->get<double>();
  }
  return found;
}

void write_times(const std::string& path, json times, const std::string& key, const TypeTimes& measured) {
  json& entry = times[key] = json::object();
  for (const auto& [type, seconds] : measured) entry[std::string(device::name_of(type))] = seconds;
  try {
    create_folders(path.substr(0, path.rfind('/')));
    AtomicFile file(path);
    file.write(times.dump(2) + "\n");
    file.commit(Durability::unsynced);
  } catch (const Error&) {}  // it is measured again
}

}  // namespace

TypeTimes measure_types(int64_t weights) {
  constexpr int64_t kWidth = 1024, kMostRows = 1 << 16;  // more than fits into caches
  constexpr int kRounds = 7;
  const int64_t rows = std::clamp<int64_t>(weights / kWidth, 1, kMostRows);
  const at::Tensor x = at::ones({1, kWidth});
  TypeTimes times;
  std::map<at::ScalarType, at::Tensor> of_type;
  for (const at::ScalarType type : kTypes) {
    of_type[type] = at::ones({rows, kWidth}, type);
    times[type] = std::numeric_limits<double>::infinity();
  }
  for (int round = 0; round < kRounds;
       ++round) {  // in turn, and the fastest counts: whatever disturbs one makes it slower
    for (const at::ScalarType type : kTypes) {
      const auto begin = std::chrono::steady_clock::now();
      ops::row_product(x, of_type[type]);
      const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
      times[type] = std::min(times[type], seconds.count());
    }
  }
  const double scale = static_cast<double>(weights) / static_cast<double>(rows * kWidth);
  for (auto& [type, seconds] : times) seconds *= scale;
  return times;
}

TypeTimes known_types(int64_t weights, const std::string& path, const std::function<TypeTimes(int64_t)>& measure) {
  const std::string key = machine_and_size(weights);
  const json kept = path.empty() ? json::object() : read_times(path);
  if (const TypeTimes found = times_in(kept, key); !found.empty()) return found;
  const TypeTimes times = measure(weights);
  const double small = times.at(at::kBFloat16), large = times.at(at::kFloat);
  log::info(fmt::format("Tried which type of weights writes faster here: {} by {:.0f} %, which is remembered",
                        small <= large ? "bfloat16" : "float32",
                        100 * (std::max(small, large) / std::min(small, large) - 1)));
  if (!path.empty()) write_times(path, kept, key, times);
  return times;
}

std::string type_times_file() {
  const std::string folder = cache_folder();
  return folder.empty() ? "" : folder + "/generation_times.json";
}

}  // namespace gpt::generate

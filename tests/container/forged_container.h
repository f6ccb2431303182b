// A container whose hashes are right whatever is in it: ContainerWriter would refuse some of its names.
#pragma once

#include <fmt/format.h>

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gpt/container/zip.h"
#include "gpt/core/hash.h"

namespace gpt {

class ForgedContainer {
 public:
  void add(std::string_view name, std::string_view content) {
    const auto bytes = std::as_bytes(std::span(content));
    entries_.push_back({"archive/" + std::string(name), file_.size(), bytes.size(), zip::crc32(bytes)});
    const std::string header = zip::local_header(entries_.back());
    headers_ += header;
    file_.append(header).append(content);
    manifest_ += fmt::format("{}\"{}\": {{\"bytes\": {}, \"xxh3_128\": \"{}\"}}", manifest_.empty() ? "\n" : ",\n",
                             name, bytes.size(), hash128(content));
  }

  // The whole file.
  std::string finish() {
    const std::string manifest =
        fmt::format("{{\"format\": \"gpt-train checkpoint\", \"version\": 1, \"records\": {{{}\n}}}}\n", manifest_);
    add("manifest.json", manifest);
    const std::string mark = "gpt-train checkpoint 1 ";
    const std::string ending = zip::directory(entries_, file_.size(), mark.size() + hash128("").size());
    return file_ + ending + mark + hash128(headers_ + manifest + ending);
  }

 private:
  std::string file_, headers_, manifest_;
  std::vector<zip::Entry> entries_;
};

}  // namespace gpt

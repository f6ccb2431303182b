// A container whose hashes are right whatever is in it, in the format of today or the one before: ContainerWriter would refuse some of its
// names. It follows from the description of the format, and not from the writer's code.
#pragma once

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "gpt/container/zip.h"
#include "gpt/core/hash.h"

namespace gpt::container {

class ForgedContainer {
 public:
  explicit ForgedContainer(int version = 2) : version_(version) {}

  void add(std::string_view name, std::string_view content) {
    entries_.push_back(
        {"archive/" + std::string(name), file_.size(), content.size(),
         static_cast<uint32_t>(crc32_z(0, reinterpret_cast<const Bytef*>(content.data()), content.size()))});
    const std::string header = zip::local_header(entries_.back());
    headers_ += header;
    file_ += header;
    manifest_ += fmt::format("{}\"{}\": {{\"bytes\": {}, \"xxh3_128\": {}}}", manifest_.empty() ? "\n" : ",\n", name,
                             content.size(), hashes(content));
    file_ += content;
  }

  // The whole file.
  std::string finish() {
    const std::string manifest =
        fmt::format("{{\"format\": \"gpt-train checkpoint\", \"version\": {}, \"records\": {{{}\n}}}}\n", version_,
                    manifest_);
    add("manifest.json", manifest);
    const std::string mark = fmt::format("gpt-train checkpoint {} ", version_);
    const std::string ending = zip::directory(entries_, file_.size(), mark.size() + hash128("").size());
    return file_ + ending + mark + hash128(headers_ + manifest + ending);
  }

 private:
  // Hashes of data that follow at the end of the file: one in the first format, one for each 16 MB of the file since then.
  std::string hashes(std::string_view content) const {
    constexpr size_t kBlock = 1 << 24;
    if (version_ == 1) return fmt::format("\"{}\"", hash128(content));
    std::string list;
    size_t end = kBlock - file_.size() % kBlock;
    for (size_t begin = 0; list.empty() || begin < content.size(); begin = end, end += kBlock)
      list += fmt::format("{}\"{}\"", list.empty() ? "[" : ", ", hash128(content.substr(begin, end - begin)));
    return list + "]";
  }

  int version_;
  std::string file_, headers_, manifest_;
  std::vector<zip::Entry> entries_;
};

}  // namespace gpt::container

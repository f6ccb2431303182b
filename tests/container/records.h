// Containers as lists of whole records, for tests that change some of them. All hashes of what they write are right.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "gpt/container/container.h"

namespace gpt::test {

using Records = std::vector<std::pair<std::string, std::string>>;

// All but the manifest.
inline Records records_of(const std::string& path) {
  const container::ContainerReader reader(path);
  Records records;
  for (const std::string& name : reader.names()) {
    if (name != "manifest.json") records.emplace_back(name, reader.text(name));
  }
  return records;
}

inline void write_records(const std::string& path, const Records& records) {
  std::vector<container::RecordPlan> plan;
  for (const auto& [name, bytes] : records) plan.push_back({name, bytes.size()});
  container::ContainerWriter writer(path, plan);
  for (size_t i = 0; i < writer.pieces().size(); ++i) {
    const auto& [record, begin, end] = writer.pieces()[i];
    writer.write(i, std::as_bytes(std::span(records[record].second).subspan(begin, end - begin)));
  }
  writer.commit();
}

// The same file with the record changed by `change(text)`, or left out where that returns false.
template <class Change>
void rewrite_record(const std::string& from, const std::string& to, const std::string& name, const Change& change) {
  Records records = records_of(from);
  for (auto record = records.begin(); record != records.end(); ++record) {
    if (record->first != name) continue;
    if (!change(record->second)) records.erase(record);
    break;
  }
  write_records(to, records);
}

}  // namespace gpt::test

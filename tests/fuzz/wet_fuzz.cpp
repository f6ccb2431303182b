// Records of Common Crawl's .wet files.
#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "documents.h"
#include "expect.h"

namespace {

std::string written(const std::vector<std::string>& texts) {
  std::string records;
  for (const std::string& text : texts) {
    records +=
        fmt::format("WARC/1.0\r\nWARC-Type: conversion\r\nContent-Length: {}\r\n\r\n{}\r\n\r\n", text.size(), text);
  }
  return records;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace gpt;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const fuzz::Documents documents = fuzz::documents_of(prepare::TextKind::wet, bytes, size + 1, 1 << 16);
  fuzz::expect(fuzz::documents_of(prepare::TextKind::wet, bytes, 61, 1 << 16) == documents,
               "the same from a slow pipe");
  fuzz::expect(fuzz::documents_of(prepare::TextKind::wet, bytes, 7, 3) == documents, "the same in small pieces");
  if (!documents.fault.empty()) return 0;
  for (const std::string& text : documents.texts)
    fuzz::expect(bytes.find(text) != std::string_view::npos, "text of the file");
  const std::string again = written(documents.texts);
  fuzz::expect(fuzz::documents_of(prepare::TextKind::wet, again, again.size() + 1, 1 << 16) == documents,
               "the same from records with their text");
  return 0;
}

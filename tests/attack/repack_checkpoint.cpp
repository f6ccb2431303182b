// repack_checkpoint IN OUT NAME FILE: the checkpoint IN with the bytes of FILE as record NAME, and every hash valid.
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>

#include "container/records.h"

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fputs("usage: repack_checkpoint IN OUT NAME FILE\n", stderr);
    return 2;
  }
  std::ifstream file(argv[4], std::ios::binary);
  const std::string bytes(std::istreambuf_iterator<char>(file), {});
  gpt::test::rewrite_record(argv[1], argv[2], argv[3], [&](std::string& record) { return record = bytes, true; });
}

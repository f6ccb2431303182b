// repack_checkpoint IN OUT NAME FILE: the checkpoint IN with the bytes of FILE as record NAME, and every hash valid.
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>

#include "gpt/container/container.h"

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fputs("usage: repack_checkpoint IN OUT NAME FILE\n", stderr);
    return 2;
  }
  const gpt::ContainerReader in(argv[1]);
  std::ifstream file(argv[4], std::ios::binary);
  const std::string bytes(std::istreambuf_iterator<char>(file), {});
  gpt::ContainerWriter out(argv[2]);
  for (const std::string& name : in.names()) {
    if (name == "manifest.json") continue;  // commit() writes one
    name == argv[3] ? out.add(name, bytes) : out.add(name, in.record(name));
  }
  out.commit();
}

// write_checkpoint FILE: writes the sample checkpoint for the tests in Python.
#include <cstdio>

#include "gpt/checkpoint/checkpoint.h"
#include "sample_checkpoint.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: write_checkpoint FILE\n", stderr);
    return 2;
  }
  gpt::checkpoint::save_checkpoint(argv[1], gpt::test::sample_checkpoint());
}

// gpt-bench: what each optimization is worth on this machine.
#include "gpt/bench/commands.h"
#include "gpt/core/process.h"

int main(int argc, char** argv) { gpt::process::run(argc, argv, gpt::bench::run_command); }

// gpt-diagnose: what this machine can do, what a configuration would meet on it, and how runs went.
#include "gpt/core/process.h"
#include "gpt/diagnose/command.h"

int main(int argc, char** argv) { gpt::process::run(argc, argv, gpt::diagnose::diagnose); }

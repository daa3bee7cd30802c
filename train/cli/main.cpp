// SPDX-License-Identifier: Apache-2.0
#include "train/cli/cli.h"

int main(int argc, char** argv) { return hearth::train::run_cli(argc, argv); }

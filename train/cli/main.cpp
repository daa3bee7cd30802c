// SPDX-License-Identifier: Apache-2.0
#include "train/cli/cli.h"
#include "train/cli/shared_cores.h"

int main(int argc, char** argv) {
  hearth::train::spin_briefly_on_shared_cores(argc, argv);
  return hearth::train::run_cli(argc, argv);
}

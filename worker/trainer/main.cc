// trainyard-trainer: the trainer of the CPU.
#include "worker/trainer/command_line.h"

int main(int argc, char** argv) {
  return trainyard::trainer::RunCommandLine(argc, argv, {});
}

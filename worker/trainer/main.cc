// trainyard-trainer is the trainer for CPUs.
#include "worker/trainer/command_line.h"

int main(int argc, char** argv) {
  return trainyard::trainer::RunCommandLine(argc, argv, {});
}

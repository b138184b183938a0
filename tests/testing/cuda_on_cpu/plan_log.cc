// Tells a test of whole processes, by their standard error, when a library chooses how to compute.
#include <cstdlib>
#include <iostream>
#include <string>

#include "tests/testing/cuda_on_cpu/cuda_on_cpu.h"

namespace trainyard::cuda_on_cpu {

void TellPlan(const char* library) {
  static const bool is_wanted = std::getenv("TRAINYARD_CUDA_TELLS_PLANS") != nullptr;
  // One write a line, since several threads may tell.
  if (is_wanted) std::cerr << std::string(library) + " on CPU makes a plan\n";
}

}  // namespace trainyard::cuda_on_cpu

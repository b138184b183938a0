// Ends a program that throws with a message. Our code does not throw, but the libraries that read
// flags and write JSON do.
#pragma once

#include <cstdio>
#include <exception>

namespace trainyard {

// Returns what `run` returns, or 1 if it throws.
inline int RunMain(const char* program, int (*run)(int, char**), int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& exception) {
    std::fprintf(stderr, "%s: %s\n", program, exception.what());
    return 1;
  }
}

}  // namespace trainyard

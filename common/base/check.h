// Checks our own invariants. The checks stay on in release and never judge input: bad input is a
// Status.
#pragma once

#include <string>

namespace trainyard {

// Prints `file:line: check failed: what` to stderr and aborts.
[[noreturn]] void CheckFailed(const char* file, int line, const std::string& what);

}  // namespace trainyard

#define TY_CHECK(condition)                                     \
  do {                                                          \
    if (!(condition)) {                                         \
      ::trainyard::CheckFailed(__FILE__, __LINE__, #condition); \
    }                                                           \
  } while (false)

// Checks that `status` is OK. It is meant for calls that can only fail by a bug of ours.
#define TY_CHECK_OK(expression)                                                       \
  do {                                                                                \
    const auto& ty_check_status = (expression);                                       \
    if (!ty_check_status.ok()) {                                                      \
      ::trainyard::CheckFailed(                                                       \
          __FILE__, __LINE__,                                                         \
          std::string(#expression " is ") + std::string(ty_check_status.ToString())); \
    }                                                                                 \
  } while (false)

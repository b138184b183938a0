// Reports a broken invariant and ends the process at once, since the process would otherwise act on
// state that is known to be wrong.
#include "common/base/check.h"

#include <cstdio>
#include <cstdlib>

namespace trainyard {

void CheckFailed(const char* file, int line, const std::string& what) {
  std::fprintf(stderr, "%s:%d: check failed: %s\n", file, line, what.c_str());
  std::fflush(stderr);
  std::abort();
}

}  // namespace trainyard

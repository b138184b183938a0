// Owns both ends of the pseudo-terminal.
#include "tests/testing/terminal.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/base/check.h"

namespace trainyard::testing {

Terminal::Terminal() : keyboard_(posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK)) {
  char name[128];
  TY_CHECK(keyboard_.valid() && grantpt(keyboard_.get()) == 0 && unlockpt(keyboard_.get()) == 0);
  TY_CHECK(ptsname_r(keyboard_.get(), name, sizeof(name)) == 0);
  path_ = name;
  screen_ = UniqueFd(open(name, O_RDWR | O_NOCTTY | O_CLOEXEC));
  TY_CHECK(screen_.valid());
}

void Terminal::Type(absl::string_view text) {
  TY_CHECK(write(keyboard_.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()));
}

const std::string& Terminal::Shown() {
  char bytes[4096];
  while (true) {
    const ssize_t got = read(keyboard_.get(), bytes, sizeof(bytes));
    if (got <= 0) return shown_;
    for (const char byte : absl::string_view(bytes, static_cast<size_t>(got))) {
      if (byte != '\r') shown_ += byte;
    }
  }
}

void Terminal::Clear() {
  Shown();
  shown_.clear();
}

}  // namespace trainyard::testing

// A terminal at which a test sits: a child reads what the test types, and writes on its screen.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "common/base/files.h"

namespace trainyard::testing {

// A pseudo-terminal, which a child gets as Process::Options::terminal_path.
class Terminal {
 public:
  static constexpr absl::string_view kEndOfInput = "\x04";  // Ctrl-D

  Terminal();

  const std::string& path() const { return path_; }
  // Types a text. A line ends with "\n".
  void Type(absl::string_view text);
  // Returns what was shown so far: what was typed, and what the child has written. Lines end with
  // "\n".
  const std::string& Shown();
  // Forgets what was shown.
  void Clear();

 private:
  UniqueFd keyboard_;
  UniqueFd screen_;  // keeps the terminal while no child has it
  std::string path_;
  std::string shown_;
};

}  // namespace trainyard::testing

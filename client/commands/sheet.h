// Prints what is known about one thing.
#pragma once

#include <algorithm>
#include <ostream>
#include <string>

#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace trainyard::commands {

// Prints labels and texts in two columns. The lines of a text are aligned with each other, and
// empty texts are left out. It borrows the stream.
class Sheet {
 public:
  explicit Sheet(std::ostream& out) : out_(out) {}
  void Line(absl::string_view label, absl::string_view text) {
    if (text.empty()) return;
    constexpr size_t kLabelWidth = 14;
    for (const absl::string_view part : absl::StrSplit(text, '\n')) {
      out_ << label << std::string(kLabelWidth - std::min(label.size(), kLabelWidth - 1), ' ')
           << part << "\n";
      label = "";
    }
  }

 private:
  std::ostream& out_;
};

}  // namespace trainyard::commands

// Follows one star at a time, so that the cost is at most the product of both lengths.
#include "common/base/pattern.h"

#include <cstddef>

namespace trainyard {

bool MatchesPattern(absl::string_view text, absl::string_view pattern) {
  size_t t = 0;
  size_t p = 0;
  // If the text after the last star does not fit, the star takes one byte more.
  size_t star = absl::string_view::npos;
  size_t taken = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      taken = t;
    } else if (p < pattern.size() && pattern[p] == text[t]) {
      ++p;
      ++t;
    } else if (star != absl::string_view::npos) {
      p = star + 1;
      t = ++taken;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == absl::string_view::npos;
}

}  // namespace trainyard

// Keeps the colours of our own programs apart from control characters of others.
#pragma once

#include <algorithm>
#include <string>

#include "absl/strings/string_view.h"

namespace trainyard {

// Stands for ESC in the colours and movements that a program itself writes to a terminal, until
// they are printed. It is a byte that UTF-8 text does not contain, so that no text of other people
// can be taken for one of them.
inline constexpr char kEscape = '\xff';

// Returns text that need not be UTF-8, such as the bytes of a file, with "?" for each kEscape.
inline std::string WithoutEscapes(absl::string_view bytes) {
  std::string text(bytes);
  std::replace(text.begin(), text.end(), kEscape, '?');
  return text;
}

}  // namespace trainyard

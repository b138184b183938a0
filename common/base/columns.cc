// Counts characters, not bytes, so that names with umlauts and coloured cells stay aligned.
#include "common/base/columns.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/base/escape.h"

namespace trainyard {

int DisplayWidth(absl::string_view text) {
  int width = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == kEscape) {
      while (i < text.size() && text[i] != 'm') ++i;
      continue;
    }
    width += (static_cast<unsigned char>(text[i]) & 0xc0u) != 0x80u;
  }
  return width;
}

std::string AlignColumns(const std::vector<std::vector<std::string>>& rows,
                         absl::string_view align) {
  std::vector<int> widths(align.size(), 0);
  for (const std::vector<std::string>& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], DisplayWidth(row[i]));
  }
  std::string text;
  for (const std::vector<std::string>& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string padding(static_cast<size_t>(widths[i] - DisplayWidth(row[i])), ' ');
      absl::StrAppend(&line, i == 0 ? "" : "  ", align[i] == 'r' ? padding : "", row[i],
                      align[i] == 'r' ? "" : padding);
    }
    absl::StrAppend(&text, absl::StripTrailingAsciiWhitespace(line), "\n");
  }
  return text;
}

}  // namespace trainyard

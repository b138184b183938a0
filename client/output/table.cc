// Lays out tables by display width, so that colours and characters of several bytes do no harm.
#include "client/output/table.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "client/output/terminal.h"
#include "common/base/check.h"

namespace trainyard::output {

void Table::AddRow(std::vector<std::string> cells) {
  TY_CHECK(cells.size() == columns_.size());
  for (std::string& cell : cells) {
    if (cell.empty()) cell = "-";
  }
  rows_.push_back(std::move(cells));
}

std::string Table::Render() const {
  std::vector<int> widths;
  for (const Column& column : columns_) widths.push_back(DisplayWidth(column.title));
  for (const auto& row : rows_) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], DisplayWidth(row[i]));
  }
  std::string out;
  const auto append = [&](size_t i, const std::string& cell, std::string& line) {
    const std::string space(static_cast<size_t>(widths[i] - DisplayWidth(cell)), ' ');
    if (i > 0) line += "  ";
    if (columns_[i].align == Align::kRight) {
      absl::StrAppend(&line, space, cell);
    } else {
      absl::StrAppend(&line, cell, space);
    }
  };
  const auto finish = [&](std::string line) {
    absl::StripTrailingAsciiWhitespace(&line);
    absl::StrAppend(&out, line, "\n");
  };
  std::string header;
  for (size_t i = 0; i < columns_.size(); ++i) append(i, columns_[i].title, header);
  finish(std::move(header));
  for (const auto& row : rows_) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) append(i, row[i], line);
    finish(std::move(line));
  }
  return out;
}

}  // namespace trainyard::output

// Gives the columns their titles; common/base/columns.h aligns them.
#include "client/output/table.h"

#include "absl/strings/str_replace.h"
#include "common/base/check.h"
#include "common/base/columns.h"

namespace trainyard::output {

void Table::AddRow(std::vector<std::string> cells) {
  TY_CHECK(cells.size() == columns_.size());
  for (std::string& cell : cells) {
    // A line break in a text of somebody would begin a row that is none.
    absl::StrReplaceAll({{"\n", "\\n"}, {"\t", "\\t"}}, &cell);
    if (cell.empty()) cell = "-";
  }
  rows_.push_back(std::move(cells));
}

std::string Table::Render() const {
  std::string align;
  std::vector<std::vector<std::string>> rows(1);
  for (const Column& column : columns_) {
    align += column.align == Align::kRight ? 'r' : 'l';
    rows[0].push_back(column.title);
  }
  rows.insert(rows.end(), rows_.begin(), rows_.end());
  return AlignColumns(rows, align);
}

}  // namespace trainyard::output

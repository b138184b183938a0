// Collects the columns of all objects before it writes the first line.
#include "client/output/csv.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "nlohmann/json.hpp"

namespace trainyard::output {
namespace {

using nlohmann::ordered_json;
using CsvRow = std::map<std::string, std::string>;

std::string QuotedCell(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + "\"";
}

void Flatten(const ordered_json& value, const std::string& path, std::vector<std::string>& columns,
             CsvRow& row) {
  if (value.is_object()) {
    for (const auto& [name, field] : value.items()) {
      Flatten(field, path.empty() ? name : absl::StrCat(path, ".", name), columns, row);
    }
    return;
  }
  if (std::find(columns.begin(), columns.end(), path) == columns.end()) columns.push_back(path);
  row[path] = value.is_string() ? value.get<std::string>() : value.dump();
}

}  // namespace

std::string JsonToCsv(absl::string_view json) {
  const ordered_json list = ordered_json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (!list.is_array()) return std::string(json);
  std::vector<std::string> columns;
  std::vector<CsvRow> rows;
  for (const ordered_json& object : list) {
    if (!object.is_object()) return std::string(json);
    Flatten(object, "", columns, rows.emplace_back());
  }
  if (columns.empty()) return "";
  std::string csv = absl::StrCat(absl::StrJoin(columns, ",",
                                               [](std::string* out, const std::string& column) {
                                                 absl::StrAppend(out, QuotedCell(column));
                                               }),
                                 "\n");
  for (CsvRow& row : rows) {
    absl::StrAppend(&csv,
                    absl::StrJoin(columns, ",",
                                  [&row](std::string* out, const std::string& column) {
                                    absl::StrAppend(out, QuotedCell(row[column]));
                                  }),
                    "\n");
  }
  return csv;
}

}  // namespace trainyard::output

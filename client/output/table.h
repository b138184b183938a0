// Lays out tables of text: columns are aligned, with two spaces between them and no trailing
// spaces.
#pragma once

#include <string>
#include <vector>

namespace trainyard::output {

class Table {
 public:
  enum class Align { kLeft, kRight };
  struct Column {
    std::string title;
    Align align = Align::kLeft;
  };

  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  // Adds a row. `cells` has one cell for each column.
  void AddRow(std::vector<std::string> cells);
  // Returns the header and the rows, each line with its newline. Empty cells are shown as "-".
  std::string Render() const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace trainyard::output

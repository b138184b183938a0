// Divides the rows of a batch among replicas (Batch::groups). Batch norm looks at the rows of one
// group at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace trainyard::engine {

class RowGroups {
 public:
  // Makes one group of all rows.
  RowGroups() = default;

  static const RowGroups& AllRows() {
    static const RowGroups groups;
    return groups;
  }

  // Sets the groups by their numbers of rows, in order. No size, or a single one, means one group
  // of all rows. It allocates memory only for the largest batch so far.
  void Set(absl::Span<const int64_t> sizes) {
    begins_.clear();
    of_row_.clear();
    if (sizes.size() < 2) {
      return;
    }
    begins_.push_back(0);
    for (size_t group = 0; group < sizes.size(); ++group) {
      of_row_.insert(of_row_.end(), static_cast<size_t>(sizes[group]), static_cast<int64_t>(group));
      begins_.push_back(begins_.back() + sizes[group]);
    }
  }

  int64_t count() const { return begins_.empty() ? 1 : static_cast<int64_t>(begins_.size()) - 1; }
  // Return the first row of a group, and its number of rows if there are `rows` rows in all.
  int64_t begin(int64_t group) const {
    return begins_.empty() ? 0 : begins_[static_cast<size_t>(group)];
  }
  int64_t rows(int64_t group, int64_t rows) const {
    return begins_.empty() ? rows : begins_[static_cast<size_t>(group) + 1] - begin(group);
  }
  int64_t of_row(int64_t row) const {
    return of_row_.empty() ? 0 : of_row_[static_cast<size_t>(row)];
  }
  // Returns where each group begins, then the end. It is empty if all rows are one group, and equal
  // for equal groups.
  const std::vector<int64_t>& begins() const { return begins_; }

 private:
  std::vector<int64_t> begins_;
  std::vector<int64_t> of_row_;
};

}  // namespace trainyard::engine

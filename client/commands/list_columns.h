// The columns of `trainyard ls`: those that it knows, any metric, and any field of the spec.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/commands/context.h"
#include "client/output/table.h"
#include "trainyard/v1/job.pb.h"

namespace trainyard::commands {

struct ListColumn {
  output::Table::Column head;
  std::function<std::string(const v1::Job&)> text;
  // By which rows are sorted; unset for columns that are sorted by their text. It returns nothing
  // for a job without a value, and such jobs come last.
  std::function<std::optional<double>(const v1::Job&)> number = {};
};

// Returns the column of a name: one of those that `ls` knows, such as "accuracy", a metric, such as
// "test.accuracy", or a field of the resolved spec by its path, "optimizer.sgd.lr", or by its last
// word, "lr". Returns
// INVALID_ARGUMENT with the names that there are, or the nearest one.
absl::StatusOr<ListColumn> ColumnOf(const Context& context, const std::string& name,
                                    absl::Time now);

// Returns true if `ls` itself knows the column, which is then no metric and no field of the spec.
bool IsColumnOfList(const Context& context, const std::string& name);

// Returns the names of the columns that `ls` shows by itself.
std::vector<std::string> UsualColumns(bool is_wide);

// Sorts jobs by a column, the smallest first, and jobs without a value last.
void SortBy(const ListColumn& column, bool reverse, std::vector<v1::Job>& jobs);

}  // namespace trainyard::commands

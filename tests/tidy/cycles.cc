// Finds circles of includes as the strongly connected components of a graph of units, by Tarjan's
// algorithm.
#include "tests/tidy/cycles.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace trainyard::tidy {
namespace {

using Edges = std::map<std::string, std::set<std::string>>;

std::string UnitOf(absl::string_view path) {
  return std::string(path.substr(0, path.rfind('.')));
}

class Components {
 public:
  explicit Components(const Edges& edges) : edges_(edges) {
    for (const auto& [unit, unused] : edges_) {
      if (!order_.contains(unit)) Visit(unit);
    }
  }

  const std::vector<std::vector<std::string>>& found() const { return found_; }

 private:
  void Visit(const std::string& unit) {
    const size_t order = order_.size();
    order_[unit] = order;
    lowest_[unit] = order;
    open_.push_back(unit);
    for (const std::string& next : edges_.at(unit)) {
      if (!order_.contains(next)) {
        Visit(next);
        lowest_[unit] = std::min(lowest_[unit], lowest_[next]);
      } else if (std::find(open_.begin(), open_.end(), next) != open_.end()) {
        lowest_[unit] = std::min(lowest_[unit], order_[next]);
      }
    }
    if (lowest_[unit] != order) return;
    const auto begin = std::find(open_.begin(), open_.end(), unit);
    found_.emplace_back(begin, open_.end());
    open_.erase(begin, open_.end());
  }

  const Edges& edges_;
  std::map<std::string, size_t> order_;
  std::map<std::string, size_t> lowest_;
  std::vector<std::string> open_;
  std::vector<std::vector<std::string>> found_;
};

}  // namespace

std::vector<std::string> CyclesOfUnits(const std::vector<SourceFile>& tree) {
  Edges edges;
  std::map<std::pair<std::string, std::string>, std::string> included_by;
  for (const SourceFile& file : tree) {
    if (!absl::StartsWith(file.path, "tests/")) edges[UnitOf(file.path)];
  }
  for (const SourceFile& file : tree) {
    const std::string from = UnitOf(file.path);
    if (!edges.contains(from)) continue;
    for (const Include& include : Includes(file)) {
      const std::string to = UnitOf(include.header);
      if (to == from || !edges.contains(to)) continue;
      edges[from].insert(to);
      included_by[{from, to}] = absl::StrCat(file.path, ":", include.line);
    }
  }
  std::vector<std::string> findings;
  const Components components(edges);
  for (const std::vector<std::string>& units : components.found()) {
    if (units.size() == 1) continue;
    std::string finding = absl::StrCat(units.size(), " units include each other:");
    for (const std::string& from : units) {
      for (const std::string& to : units) {
        const auto found = included_by.find({from, to});
        if (found == included_by.end()) continue;
        absl::StrAppend(&finding, "\n  ", found->second, " includes ", to);
      }
    }
    findings.push_back(std::move(finding));
  }
  return findings;
}

}  // namespace trainyard::tidy

// A project keeps its place in the table even when it has no jobs any more.
#include "server/metrics/project_counts.h"

namespace trainyard::metrics {

ProjectCounts& ProjectTable::Of(const std::string& project) {
  const auto known = named_.find(project);
  if (known != named_.end()) return known->second;
  if (named_.size() >= projects_max_) return others_;
  return named_[project];
}

void ProjectTable::Visit(
    const std::set<std::string>& private_projects,
    const std::function<void(const std::string&, const std::vector<const ProjectCounts*>&)>& visit)
    const {
  std::map<std::string, std::vector<const ProjectCounts*>> by_label;
  for (const auto& [project, counts] : named_) {
    by_label[private_projects.contains(project) ? kPrivateProjects : project].push_back(&counts);
  }
  if (named_.size() >= projects_max_) by_label[kOtherProjects].push_back(&others_);
  for (const auto& [label, counts] : by_label) visit(label, counts);
}

}  // namespace trainyard::metrics

// Counts by project, with a bound on the number of projects that are told apart. Users name
// projects as they like, and each name would be several series in Prometheus for ever.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/base/ids.h"

namespace trainyard::metrics {

// So many projects are told apart.
inline constexpr size_t kProjectsMax = 50;
// The label of all others together, and that of private projects, whose names others must not see.
inline constexpr char kOtherProjects[] = "other";
inline constexpr char kPrivateProjects[] = "private";

struct ProjectCounts {
  // The jobs that wait, by the wall time since when they might have started.
  std::set<std::pair<int64_t, JobId>> queued;
  // The device time that was used since the server started. It only grows.
  int64_t device_time_us = 0;
};

// The first projects that it sees have counts of their own as long as the process lives, and all
// later ones share one. A project that moved between the two would make counters fall, which
// Prometheus takes for a restart. The class is not thread-safe.
class ProjectTable {
 public:
  explicit ProjectTable(size_t projects_max = kProjectsMax) : projects_max_(projects_max) {}

  // Returns the counts of a project. The reference stays valid.
  ProjectCounts& Of(const std::string& project);

  // Calls `visit` for each label with the counts that have it: several projects are private, and
  // one may be named like a label.
  void Visit(
      const std::set<std::string>& private_projects,
      const std::function<void(const std::string& label,
                               const std::vector<const ProjectCounts*>& counts)>& visit) const;

 private:
  const size_t projects_max_;
  std::map<std::string, ProjectCounts> named_;
  ProjectCounts others_;
};

}  // namespace trainyard::metrics

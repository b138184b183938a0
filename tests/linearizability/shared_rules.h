// Checks what the jobs of a service have in common: their numbers and the order of revisions.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tests/linearizability/history.h"

namespace trainyard::linearizability {

// Maps the label of each submission to the number of its job, as far as anybody has seen one.
using JobOfRequest = std::map<std::string, int64_t>;
JobOfRequest FindJobs(const History& history);

// A submission, repeated or not, makes one job; each job was submitted; and a submission that was
// sent after another was answered has the larger number.
void CheckNumbers(const History& history, std::vector<std::string>& anomalies);

// Whoever has seen a revision sees no job as it was before it; and a list shows each job as it was
// at the newest revision of the list.
void CheckRevisions(const History& history, std::vector<std::string>& anomalies);

}  // namespace trainyard::linearizability

// Describes how the plan of one problem was chosen, for people who read a report.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trainyard::engine::cuda {

// Says what judged the candidates for a plan.
enum class ComparedWith {
  kNothing,     // a single candidate ran
  kCandidates,  // the largest group of candidates that agree is taken to be right
  kOwnKernel    // our own kernel for the problem is taken to be right
};

struct PlanRecord {
  std::string problem = {};
  std::string engine = {};  // of cuDNN with its settings, or the number of cuBLASLt's proposal
  int candidates = 0;       // the number of plans among which it was chosen
  double microseconds = 0;  // the time of one run, or 0 if none was measured
  int64_t workspace_bytes = 0;
  bool from_cache = false;
  // If candidates were to be compared: what with, the largest difference of those that agree, as a
  // multiple of what rounding explains, and what is wrong with each that was refused.
  bool is_verified = false;
  ComparedWith compared_with = ComparedWith::kNothing;
  double difference = 0;
  std::vector<std::string> refused = {};
  // True if all candidates differ from our own kernel. Then one of the two is wrong, and people
  // must find out which: the plan is the fastest candidate nevertheless.
  bool is_disputed = false;
};

// Says what planners do beyond planning, for measurements on a new machine. A trainer wants
// neither.
struct PlanScrutiny {
  // If true, candidates that are measured are also compared with our own kernel, or with each other
  // where there is none, and those that differ are refused. Choices of earlier runs are then
  // measured anew.
  bool verifies = false;
  // Each plan that is given out is appended here, once. If it is null, none is.
  std::vector<PlanRecord>* records = nullptr;
};

}  // namespace trainyard::engine::cuda

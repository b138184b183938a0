// What was chosen before, in one JSON file: {"version": 1, "entries": {key: {"plan": cuDNN's JSON,
// "engine": ..., "workspace_bytes": ..., "candidates": ..., "microseconds": ...}}}.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "worker/engine/backend/cuda/dnn/plan.h"

namespace trainyard::engine::cuda::dnn {

struct CachedPlan {
  std::string json;  // cuDNN's own of the plan
  PlanFacts facts;
};

// Not thread-safe; of processes that write one file the last wins, entry by entry.
class PlanCache {
 public:
  // An empty path: kept nowhere. A file that is not there, or is none of ours, is as good as empty;
  // the latter leaves a line in the log.
  explicit PlanCache(std::string path);

  std::optional<CachedPlan> Find(const std::string& key) const;
  void Put(const std::string& key, CachedPlan plan);
  // Writes the file, with what others wrote in the meantime, where something was put.
  absl::Status Save();

 private:
  std::string path_;
  std::map<std::string, CachedPlan> entries_;
  std::map<std::string, CachedPlan> added_;
};

}  // namespace trainyard::engine::cuda::dnn

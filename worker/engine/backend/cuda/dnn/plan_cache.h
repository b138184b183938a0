// Keeps the choices of earlier runs in one JSON file: {"version": 1, "entries": {key: {"plan":
// cuDNN's JSON, "engine": ..., "workspace_bytes": ..., "candidates": ..., "microseconds": ...}}}.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "worker/engine/backend/cuda/dnn/plan.h"

namespace trainyard::engine::cuda::dnn {

struct CachedPlan {
  std::string json;  // of the plan, as cuDNN writes it
  PlanFacts facts;
};

// The cache. The class is not thread-safe. If several processes write one file, the last one wins,
// entry by entry.
class PlanCache {
 public:
  // Opens a cache. With an empty path nothing is kept. A file that does not exist or is not ours
  // counts as empty; the latter is logged.
  explicit PlanCache(std::string path);

  std::optional<CachedPlan> Find(const std::string& key) const;
  void Put(const std::string& key, CachedPlan plan);
  // Writes the file, with what others have written in the meantime, if something was put.
  absl::Status Save();

 private:
  std::string path_;
  std::map<std::string, CachedPlan> entries_;
  std::map<std::string, CachedPlan> added_;
};

}  // namespace trainyard::engine::cuda::dnn

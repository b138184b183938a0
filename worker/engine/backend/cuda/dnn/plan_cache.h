// Keeps the choices of earlier runs in a folder, with one JSON file for each choice. The file has
// the fields version, key, plan (cuDNN's JSON), engine, workspace_bytes, candidates and
// microseconds. Each choice is written at once, so a run that ends early loses none.
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

// The cache. The class is not thread-safe, but any number of processes may use one folder. If
// several write the same choice, the last one wins.
class PlanCache {
 public:
  // Opens a cache. With an empty folder, choices are kept only as long as the object.
  explicit PlanCache(std::string folder) : folder_(std::move(folder)) {}

  // Returns the choice for a key. A file that cannot be read, or holds another key or version, is
  // logged and counts as absent.
  std::optional<CachedPlan> Find(const std::string& key);
  // Returns the text of a choice's file.
  static std::string Encode(const std::string& key, const CachedPlan& plan);
  // Follows the choice of another cache's file. It does not replace a file of this cache, because a
  // run that resumes here must find what it chose. Returns INVALID_ARGUMENT for any other text.
  absl::Status Take(const std::string& text);
  // Keeps a choice, and writes its file by rename. Even if that fails, Find returns the choice.
  absl::Status Put(const std::string& key, CachedPlan plan);

 private:
  std::string PathOf(const std::string& key) const;

  const std::string folder_;
  std::map<std::string, CachedPlan> plans_;  // that were read or put
};

}  // namespace trainyard::engine::cuda::dnn

// Reads and writes the files of chosen plans.
#include "worker/engine/backend/cuda/dnn/plan_cache.h"

#include <utility>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "common/base/files.h"
#include "common/base/hash.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"

namespace trainyard::engine::cuda::dnn {
namespace {

// Raise it when the tensors of a graph get other numbers, since plans refer to them.
constexpr int kVersion = 2;
// cuDNN may compile a kernel when the program runs, and put its code into the text of the plan.
constexpr int64_t kFileBytesMax = int64_t{64} << 20;

// Returns nothing unless the text is a whole file of this version and key.
std::optional<CachedPlan> PlanOf(const nlohmann::json& file, const std::string& key) {
  const auto is = [&](const char* name, bool (nlohmann::json::*test)() const noexcept) {
    return file.contains(name) && (file[name].*test)();
  };
  if (!file.is_object() || !is("version", &nlohmann::json::is_number_integer) ||
      file["version"] != kVersion || !is("key", &nlohmann::json::is_string) || file["key"] != key ||
      !is("plan", &nlohmann::json::is_string) || !is("engine", &nlohmann::json::is_string) ||
      !is("workspace_bytes", &nlohmann::json::is_number_integer) ||
      !is("candidates", &nlohmann::json::is_number_integer) ||
      !is("microseconds", &nlohmann::json::is_number)) {
    return std::nullopt;
  }
  CachedPlan plan;
  plan.json = file["plan"].get<std::string>();
  plan.facts.engine = file["engine"].get<std::string>();
  plan.facts.workspace_bytes = file["workspace_bytes"].get<int64_t>();
  plan.facts.candidates = file["candidates"].get<int>();
  plan.facts.microseconds = file["microseconds"].get<double>();
  plan.facts.from_cache = true;
  return plan;
}

}  // namespace

std::string PlanCache::PathOf(const std::string& key) const {
  return JoinPath(folder_, absl::StrCat(*HashDigits(ContentHash(key)), ".json"));
}

std::optional<CachedPlan> PlanCache::Find(const std::string& key) {
  if (const auto known = plans_.find(key); known != plans_.end()) return known->second;
  if (folder_.empty() || !FileExists(PathOf(key))) return std::nullopt;
  const absl::StatusOr<std::string> text = ReadFile(PathOf(key), kFileBytesMax);
  std::optional<CachedPlan> plan;
  if (text.ok()) {
    plan = PlanOf(nlohmann::json::parse(*text, nullptr, /*allow_exceptions=*/false), key);
  }
  if (!plan.has_value()) {
    LogWarning("a file of the cache of cuDNN's plans is ignored",
               {{"path", PathOf(key)},
                {"reason", text.ok() ? "it is not whole, or has another key or version"
                                     : std::string(text.status().message())}});
    return std::nullopt;
  }
  return plans_.emplace(key, *std::move(plan)).first->second;
}

std::string PlanCache::Encode(const std::string& key, const CachedPlan& plan) {
  const nlohmann::json file = {{"version", kVersion},
                               {"key", key},
                               {"plan", plan.json},
                               {"engine", plan.facts.engine},
                               {"workspace_bytes", plan.facts.workspace_bytes},
                               {"candidates", plan.facts.candidates},
                               {"microseconds", plan.facts.microseconds}};
  // cuDNN makes the text of a plan, and bytes that are not UTF-8 must not end the process.
  return file.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

absl::Status PlanCache::Take(const std::string& text) {
  const auto file = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (file.is_object() && file.contains("key") && file["key"].is_string()) {
    const auto key = file["key"].get<std::string>();
    if (std::optional<CachedPlan> plan = PlanOf(file, key)) {
      const bool is_kept = !folder_.empty() && FileExists(PathOf(key));
      if (!is_kept) return Put(key, *std::move(plan));
      plans_[key] = *std::move(plan);
      return absl::OkStatus();
    }
  }
  return absl::InvalidArgumentError("a choice is not whole, or of another version");
}

absl::Status PlanCache::Put(const std::string& key, CachedPlan plan) {
  const std::string text = Encode(key, plan);
  plan.facts.from_cache = true;
  plans_[key] = std::move(plan);
  if (folder_.empty()) return absl::OkStatus();
  TY_RETURN_IF_ERROR(MakeDirectories(folder_));
  return ReplaceFile(PathOf(key), text);
}

}  // namespace trainyard::engine::cuda::dnn

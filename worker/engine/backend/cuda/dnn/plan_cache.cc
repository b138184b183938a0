// Reads and writes the file of chosen plans.
#include "worker/engine/backend/cuda/dnn/plan_cache.h"

#include <utility>

#include <nlohmann/json.hpp>

#include "common/base/files.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"

namespace trainyard::engine::cuda::dnn {
namespace {

// Raise it when the tensors of a graph get other numbers, since plans refer to them.
constexpr int kVersion = 1;
constexpr int64_t kFileBytesMax = int64_t{64} << 20;

std::optional<CachedPlan> EntryOf(const nlohmann::json& value) {
  const auto is = [&](const char* name, bool (nlohmann::json::*test)() const noexcept) {
    return value.is_object() && value.contains(name) && (value[name].*test)();
  };
  if (!is("plan", &nlohmann::json::is_string) || !is("engine", &nlohmann::json::is_string) ||
      !is("workspace_bytes", &nlohmann::json::is_number_integer) ||
      !is("candidates", &nlohmann::json::is_number_integer) ||
      !is("microseconds", &nlohmann::json::is_number)) {
    return std::nullopt;
  }
  CachedPlan entry;
  entry.json = value["plan"].get<std::string>();
  entry.facts.engine = value["engine"].get<std::string>();
  entry.facts.workspace_bytes = value["workspace_bytes"].get<int64_t>();
  entry.facts.candidates = value["candidates"].get<int>();
  entry.facts.microseconds = value["microseconds"].get<double>();
  entry.facts.from_cache = true;
  return entry;
}

std::map<std::string, CachedPlan> ReadEntries(const std::string& path) {
  std::map<std::string, CachedPlan> entries;
  if (path.empty() || !FileExists(path)) {
    return entries;
  }
  const auto ignored = [&](const std::string& why) {
    LogWarning("the cache of cuDNN's plans is ignored", {{"path", path}, {"reason", why}});
    return std::map<std::string, CachedPlan>();
  };
  const absl::StatusOr<std::string> text = ReadFile(path, kFileBytesMax);
  if (!text.ok()) {
    return ignored(std::string(text.status().message()));
  }
  const nlohmann::json file = nlohmann::json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (!file.is_object() || !file.contains("version") || file["version"] != kVersion ||
      !file.contains("entries") || !file["entries"].is_object()) {
    return ignored("it is not a file of this version");
  }
  for (const auto& [key, value] : file["entries"].items()) {
    if (std::optional<CachedPlan> entry = EntryOf(value)) {
      entries[key] = *std::move(entry);
    } else {
      return ignored("the entry '" + key + "' is not whole");
    }
  }
  return entries;
}

}  // namespace

PlanCache::PlanCache(std::string path) : path_(std::move(path)), entries_(ReadEntries(path_)) {}

std::optional<CachedPlan> PlanCache::Find(const std::string& key) const {
  const auto found = entries_.find(key);
  return found == entries_.end() ? std::nullopt : std::optional<CachedPlan>(found->second);
}

void PlanCache::Put(const std::string& key, CachedPlan plan) {
  plan.facts.from_cache = true;
  entries_[key] = plan;
  added_[key] = std::move(plan);
}

absl::Status PlanCache::Save() {
  if (path_.empty() || added_.empty()) {
    return absl::OkStatus();
  }
  std::map<std::string, CachedPlan> merged = ReadEntries(path_);
  for (const auto& [key, plan] : added_) {
    merged[key] = plan;
  }
  nlohmann::json entries = nlohmann::json::object();
  for (const auto& [key, plan] : merged) {
    entries[key] = {{"plan", plan.json},
                    {"engine", plan.facts.engine},
                    {"workspace_bytes", plan.facts.workspace_bytes},
                    {"candidates", plan.facts.candidates},
                    {"microseconds", plan.facts.microseconds}};
  }
  const nlohmann::json file = {{"version", kVersion}, {"entries", entries}};
  // cuDNN makes the text of a plan, and bytes that are not UTF-8 must not end the process.
  TY_RETURN_IF_ERROR(ReplaceFile(
      path_, file.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n"));
  entries_ = std::move(merged);
  added_.clear();
  return absl::OkStatus();
}

}  // namespace trainyard::engine::cuda::dnn

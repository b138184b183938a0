// Tries every data set whose name is known and every folder that looks like one.
#include "worker/trainer/report/data_report.h"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/files.h"
#include "common/base/status_macros.h"
#include "nlohmann/json.hpp"
#include "worker/data/open_dataset.h"

namespace trainyard::trainer {
namespace {

using nlohmann::ordered_json;

// If a disk is ruined, its first errors say enough.
constexpr size_t kMaxErrors = 20;

// A data set that may exist.
struct Candidate {
  std::string dataset;
  data::DatasetOptions options;
};

void VerifySamples(const data::Dataset& dataset, ordered_json& split) {
  int64_t corrupt = 0;
  std::vector<std::string> errors;
  for (int64_t i = 0; i < dataset.size(); ++i) {
    const absl::Status status = dataset.Verify(i);
    if (status.ok()) continue;
    ++corrupt;
    if (errors.size() < kMaxErrors) errors.emplace_back(status.message());
  }
  split["corrupt"] = corrupt;
  split["errors"] = errors;
}

// Returns the shape of a sample, in which "any" stands for sizes that the spec chooses.
std::string ShapeText(const data::Dataset& dataset) {
  if (dataset.has_tokens()) return "any";
  return dataset.decodes() ? "3 x any x any" : absl::StrJoin(dataset.sample_shape(), " x ");
}

// Returns nothing if the split does not exist.
std::optional<ordered_json> ReportSplit(const Candidate& candidate, data::Split which,
                                        bool verifies) {
  const auto dataset = data::OpenDataset(candidate.dataset, which, candidate.options);
  if (absl::IsNotFound(dataset.status())) return std::nullopt;
  ordered_json split;
  split["dataset"] = candidate.dataset;
  split["path"] = candidate.options.path;
  split["split"] = which == data::Split::kTrain ? "train" : "test";
  if (!dataset.ok()) {
    split["errors"] = {std::string(dataset.status().message())};
    return split;
  }
  split["samples"] = (*dataset)->size();
  split["classes"] = (*dataset)->classes();
  split["shape"] = ShapeText(**dataset);
  split["digest"] = (*dataset)->digest();
  split["corrupt"] = 0;
  split["errors"] = ordered_json::array();
  if (verifies) VerifySamples(**dataset, split);
  return split;
}

}  // namespace

absl::StatusOr<std::string> ReportData(const std::string& dataset_dir, bool verifies) {
  TY_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDirectory(dataset_dir));
  std::vector<Candidate> candidates;
  data::DatasetOptions options;
  options.dataset_dir = dataset_dir;
  options.context = 1;  // so that each token is a sample
  for (const std::string& dataset : data::DatasetNames()) {
    if (dataset == "glyphs" || dataset == "images" || dataset == "tokens") continue;
    candidates.push_back({dataset, options});
  }
  for (const std::string& name : names) {
    const std::string folder = JoinPath(dataset_dir, name);
    options.path = name;
    if (FileExists(JoinPath(folder, "train"))) candidates.push_back({"images", options});
    // A train.bin does not distinguish tokens from CIFAR, which has one too.
    if (FileExists(JoinPath(folder, "val.bin"))) candidates.push_back({"tokens", options});
  }
  ordered_json splits = ordered_json::array();
  for (const Candidate& candidate : candidates) {
    for (const data::Split which : {data::Split::kTrain, data::Split::kTest}) {
      auto split = ReportSplit(candidate, which, verifies);
      if (split.has_value()) splits.push_back(*std::move(split));
    }
  }
  ordered_json report;
  report["splits"] = std::move(splits);
  return absl::StrCat(report.dump(2, ' ', false, ordered_json::error_handler_t::replace), "\n");
}

}  // namespace trainyard::trainer

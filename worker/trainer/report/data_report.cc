// Tries every data set whose name is known and every folder that looks like one.
#include "worker/trainer/report/data_report.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "common/base/status_macros.h"
#include "nlohmann/json.hpp"
#include "worker/data/image_index.h"
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

ordered_json JsonOf(const Candidate& candidate, data::Split which) {
  ordered_json split;
  split["dataset"] = candidate.dataset;
  split["path"] = candidate.options.path;
  split["split"] = which == data::Split::kTrain ? "train" : "test";
  return split;
}

ordered_json ErrorJson(const Candidate& candidate, data::Split which, const absl::Status& status) {
  ordered_json split = JsonOf(candidate, which);
  split["errors"] = {std::string(status.message())};
  return split;
}

// Returns the shape of a sample, in which "any" stands for sizes that the spec chooses.
std::string ShapeText(const data::Dataset& dataset) {
  if (dataset.has_tokens()) return "any";
  return dataset.decodes() ? "3 x any x any" : absl::StrJoin(dataset.sample_shape(), " x ");
}

absl::StatusOr<ordered_json> ReportSplit(const Candidate& candidate, data::Split which,
                                         bool verifies) {
  TY_ASSIGN_OR_RETURN(const auto dataset,
                      data::OpenDataset(candidate.dataset, which, candidate.options));
  ordered_json split = JsonOf(candidate, which);
  split["samples"] = dataset->size();
  split["classes"] = dataset->classes();
  split["shape"] = ShapeText(*dataset);
  split["digest"] = dataset->digest();
  split["corrupt"] = 0;
  split["errors"] = ordered_json::array();
  if (verifies) VerifySamples(*dataset, split);
  return split;
}

// Returns true if there is a test split of images, also one without a training split, which cannot
// be opened.
bool HasTestImages(const Candidate& candidate) {
  if (candidate.dataset != "images") return false;
  const std::string folder = JoinPath(candidate.options.dataset_dir, candidate.options.path);
  for (const char* name : {"test", "val"}) {
    const std::string path = JoinPath(folder, name);
    // A folder of that name need not have images.
    if (FileExists(path) && data::ReadImageIndex(path, {}).ok()) return true;
  }
  return false;
}

bool IsAbsent(const absl::Status& status) {
  return absl::IsNotFound(status) && ErrorReason(status) != error::kDatasetIncomplete;
}

// Appends the splits of which anything is there. A verification also appends the one that is
// missing, if the other is there.
void ReportSplits(const Candidate& candidate, bool verifies, ordered_json& splits) {
  const auto train = ReportSplit(candidate, data::Split::kTrain, verifies);
  const auto test = ReportSplit(candidate, data::Split::kTest, verifies);
  const bool tells_absent = verifies && (!IsAbsent(train.status()) || !IsAbsent(test.status()) ||
                                         HasTestImages(candidate));
  const auto add = [&](data::Split which, const absl::StatusOr<ordered_json>& split) {
    if (split.ok()) {
      splits.push_back(*split);
    } else if (tells_absent || !IsAbsent(split.status())) {
      splits.push_back(ErrorJson(candidate, which, split.status()));
    }
  };
  add(data::Split::kTrain, train);
  // Images need the classes of the training split for the test split too. One error is told once.
  if (train.ok() || test.status() != train.status()) add(data::Split::kTest, test);
}

// Returns the kinds of data that this folder of `dataset_dir` may hold.
std::vector<std::string> KindsOfFolder(const std::string& dataset_dir, const std::string& name) {
  const auto has = [folder = JoinPath(dataset_dir, name)](const char* file) {
    return FileExists(JoinPath(folder, file));
  };
  std::vector<std::string> kinds;
  if (has("train") || has("test") || has("val")) kinds.emplace_back("images");
  // CIFAR-100 has a train.bin too, and looks for it in these folders.
  const bool is_cifar = name == "cifar100" || name == "cifar-100-binary";
  if (has("val.bin") || (has("train.bin") && !is_cifar)) kinds.emplace_back("tokens");
  return kinds;
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
    options.path = name;
    for (const std::string& kind : KindsOfFolder(dataset_dir, name)) {
      candidates.push_back({kind, options});
    }
  }
  ordered_json splits = ordered_json::array();
  for (const Candidate& candidate : candidates) {
    ReportSplits(candidate, verifies, splits);
  }
  ordered_json report;
  report["splits"] = std::move(splits);
  return absl::StrCat(report.dump(2, ' ', false, ordered_json::error_handler_t::replace), "\n");
}

}  // namespace trainyard::trainer

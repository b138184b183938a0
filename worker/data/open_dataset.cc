// Chooses the reader by the name of the data set.
#include "worker/data/open_dataset.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/errors.h"
#include "common/base/status_macros.h"
#include "common/base/strings.h"
#include "common/datasets.h"
#include "worker/data/cifar.h"
#include "worker/data/glyphs.h"
#include "worker/data/idx_dataset.h"
#include "worker/data/image_dataset.h"
#include "worker/data/subset.h"
#include "worker/data/token_dataset.h"

namespace trainyard::data {
namespace {

absl::Status CheckGlyphs(const DatasetOptions& options) {
  for (const auto& [split, size] :
       {std::pair("train", options.train_size), std::pair("test", options.test_size)}) {
    if (size >= 0 && size <= datasets::kGlyphSamplesMax) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("glyphs: a ", split, " split of ", size, " samples; expected 1 to ",
                     datasets::kGlyphSamplesMax, ", or 0 for the default"));
  }
  return absl::OkStatus();
}

std::unique_ptr<Dataset> OpenGlyphs(Split split, const DatasetOptions& options) {
  const bool is_train = split == Split::kTrain;
  const int64_t size = is_train ? options.train_size : options.test_size;
  const int64_t standard = is_train ? datasets::kGlyphs.train_size : datasets::kGlyphs.test_size;
  return MakeGlyphs(split, size == 0 ? standard : size);
}

// Opens a data set of images that lie on disk.
absl::StatusOr<std::unique_ptr<Dataset>> OpenFiles(absl::string_view name, Split split,
                                                   const DatasetOptions& options) {
  if (name == datasets::kImages.name) return OpenImages(split, options);
  if (IsCifar(name)) return OpenCifar(name, split, options.dataset_dir);
  return OpenIdxDataset(name, split, options.dataset_dir);
}

absl::Status UnknownDataset(absl::string_view name) {
  const std::vector<std::string> names = DatasetNames();
  const std::string nearest = NearestWord(name, names);
  return MakeError(
      absl::StatusCode::kNotFound, "DATASET_NOT_FOUND",
      absl::StrCat("dataset '", name, "' is unknown; ",
                   nearest.empty() ? "" : absl::StrCat("did you mean '", nearest, "'? "),
                   "there are ", absl::StrJoin(names, ", ")));
}

}  // namespace

absl::Status CheckDatasetOptions(absl::string_view name, const DatasetOptions& options) {
  const datasets::Facts* facts = datasets::Find(name);
  if (facts == nullptr) return UnknownDataset(name);
  if (facts->is_generated()) return CheckGlyphs(options);
  if (facts->has_tokens()) return CheckTokenOptions(name, options);
  if (name == datasets::kImages.name) return CheckImageOptions(options);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Dataset>> OpenDataset(absl::string_view name, Split split,
                                                     const DatasetOptions& options) {
  TY_RETURN_IF_ERROR(CheckDatasetOptions(name, options));
  const datasets::Facts& facts = *datasets::Find(name);
  if (facts.is_generated()) return OpenGlyphs(split, options);
  if (facts.has_tokens()) return OpenTokens(name, split, options);
  TY_ASSIGN_OR_RETURN(std::unique_ptr<Dataset> whole, OpenFiles(name, split, options));
  const bool is_train = split == Split::kTrain;
  const int64_t samples = is_train ? options.train_size : options.test_size;
  if (samples == 0) return whole;
  auto subset = TakeSubset(std::move(whole), samples, options.subset_seed);
  if (!subset.ok()) {
    return Annotate(subset.status(), absl::StrCat("data set '", name, "', the ",
                                                  is_train ? "train" : "test", " split"));
  }
  return subset;
}

absl::Status FindDataset(absl::string_view name, Split split, const DatasetOptions& options) {
  TY_RETURN_IF_ERROR(CheckDatasetOptions(name, options));
  const datasets::Facts& facts = *datasets::Find(name);
  if (facts.is_generated()) return absl::OkStatus();
  if (facts.has_tokens()) return FindTokens(name, split, options);
  if (name == datasets::kImages.name) return FindImages(split, options);
  if (IsCifar(name)) return FindCifar(name, split, options.dataset_dir);
  return FindIdxDataset(name, split, options.dataset_dir);
}

std::vector<std::string> DatasetNames() {
  std::vector<std::string> names;
  for (const datasets::Facts& facts : datasets::All()) names.emplace_back(facts.name);
  return names;
}

}  // namespace trainyard::data

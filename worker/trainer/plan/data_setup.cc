// Converts the spec to the options of a data set, in this one place, and makes the checks that need
// the data themselves.
#include "worker/trainer/plan/data_setup.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "common/base/status_macros.h"
#include "common/datasets.h"
#include "worker/data/normalization.h"
#include "worker/data/open_dataset.h"
#include "worker/engine/graph/graph.h"
#include "worker/trainer/plan/spec.h"

namespace trainyard::trainer {

data::DatasetOptions MakeDatasetOptions(const v1::JobSpec& spec, const std::string& dataset_dir) {
  const v1::DataSpec& data = spec.data();
  const ModelEnds ends = EndsOf(spec.model());
  return {.dataset_dir = dataset_dir,
          .train_size = data.train_size(),
          .test_size = data.test_size(),
          .subset_seed = static_cast<uint64_t>(data.subset_seed()),
          .path = data.path(),
          .image_size = data.has_image_size() ? data.image_size() : datasets::kDefaultImageSize,
          .resize = data.resize(),
          .context = ends.vocabulary > 0 ? ends.input[0] : 0,
          .vocabulary = ends.vocabulary};
}

data::Augmentation MakeAugmentation(const v1::AugmentSpec& spec) {
  const v1::RandomResizedCrop& crop = spec.random_resized_crop();
  return {.min_area = crop.min_area(),
          .max_area = crop.max_area(),
          .pad_crop = spec.pad_crop(),
          .flip = spec.flip(),
          .brightness = spec.color().brightness(),
          .contrast = spec.color().contrast(),
          .saturation = spec.color().saturation(),
          .hue = spec.color().hue(),
          .cutout = spec.cutout()};
}

absl::StatusOr<LoadedData> LoadTrainData(const v1::JobSpec& spec,
                                         const data::DatasetOptions& options, int threads) {
  const bool skips_corrupt = spec.data().on_corrupt() == v1::ON_CORRUPT_SKIP;
  LoadedData loaded;
  TY_ASSIGN_OR_RETURN(loaded.dataset,
                      data::OpenDataset(spec.data().dataset(), data::Split::kTrain, options));
  data::Preparation& preparation = loaded.preparation;
  preparation.augmentation = MakeAugmentation(spec.data().augment());
  preparation.seed = spec.train().seed();
  if (skips_corrupt) preparation.on_corrupt = data::OnCorrupt::kReplace;
  // For data in memory, one thread is faster than several would be.
  preparation.threads = loaded.dataset->decodes() ? std::max(1, threads) : 1;
  if (loaded.dataset->has_tokens()) return loaded;
  if (spec.data().normalize() != v1::NORMALIZE_UNIT) {
    TY_ASSIGN_OR_RETURN(preparation.normalization,
                        data::MeasureNormalization(*loaded.dataset, skips_corrupt));
  } else {
    const auto channels = static_cast<size_t>(loaded.dataset->sample_shape()[0]);
    preparation.normalization = {std::vector<float>(channels, 0), std::vector<float>(channels, 1)};
  }
  return loaded;
}

absl::Status CheckData(const v1::JobSpec& spec, const data::Dataset& dataset) {
  const ModelEnds ends = EndsOf(spec.model());
  std::vector<FieldViolation> violations;
  const std::string name = absl::StrCat("dataset '", spec.data().dataset(), "'");
  if (!spec.data().digest().empty() && spec.data().digest() != dataset.digest()) {
    violations.push_back(
        {"spec.data.digest", absl::StrCat("is '", spec.data().digest(), "', but ", name,
                                          " here is '", dataset.digest(), "'")});
  }
  if (ends.input != dataset.sample_shape()) {
    violations.push_back({"spec.model", absl::StrCat("has input ", engine::ShapeString(ends.input),
                                                     "; ", name, " has samples of ",
                                                     engine::ShapeString(dataset.sample_shape()))});
  }
  if (ends.classes < dataset.classes()) {
    const char* what = dataset.has_tokens() ? " different tokens; " : " classes; ";
    violations.push_back(
        {"spec.model", absl::StrCat("has ", ends.classes, what, name, " has ", dataset.classes())});
  }
  return violations.empty() ? absl::OkStatus() : InvalidFields(violations);
}

}  // namespace trainyard::trainer

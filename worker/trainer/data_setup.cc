#include "worker/trainer/data_setup.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "common/base/status_macros.h"
#include "worker/engine/graph/graph.h"

namespace trainyard::trainer {

data::DatasetOptions MakeDatasetOptions(const run_dir::TrainingSpec& spec,
                                        const std::string& dataset_dir) {
  return {.dataset_dir = dataset_dir,
          .train_size = spec.data.train_size,
          .test_size = spec.data.test_size,
          .path = spec.data.path,
          .image_size = spec.data.image_size,
          .resize = spec.data.resize,
          .context = spec.model.vocabulary > 0 ? spec.model.input[0] : 0,
          .vocabulary = spec.model.vocabulary};
}

data::Augmentation MakeAugmentation(const run_dir::AugmentSpec& spec) {
  return {.min_area = spec.min_area,
          .max_area = spec.max_area,
          .pad_crop = spec.pad_crop,
          .flip = spec.flip,
          .brightness = spec.brightness,
          .contrast = spec.contrast,
          .saturation = spec.saturation,
          .hue = spec.hue,
          .cutout = spec.cutout};
}

absl::StatusOr<LoadedData> LoadTrainData(const run_dir::TrainingSpec& spec,
                                         const data::DatasetOptions& options, int threads) {
  LoadedData loaded;
  TY_ASSIGN_OR_RETURN(loaded.dataset,
                      data::OpenDataset(spec.data.dataset, data::Split::kTrain, options));
  data::Preparation& preparation = loaded.preparation;
  preparation.augmentation = MakeAugmentation(spec.data.augment);
  preparation.seed = spec.train.seed;
  if (spec.data.skip_corrupt) preparation.on_corrupt = data::OnCorrupt::kReplace;
  // What lies in memory is read faster by one thread than it is handed out to several.
  preparation.threads = loaded.dataset->decodes() ? std::max(1, threads) : 1;
  if (loaded.dataset->has_tokens()) return loaded;
  if (spec.data.normalize == run_dir::DataSpec::Normalize::kDataset) {
    TY_ASSIGN_OR_RETURN(preparation.normalization,
                        data::MeasureNormalization(*loaded.dataset, spec.data.skip_corrupt));
  } else {
    const auto channels = static_cast<size_t>(loaded.dataset->sample_shape()[0]);
    preparation.normalization = {std::vector<float>(channels, 0), std::vector<float>(channels, 1)};
  }
  return loaded;
}

absl::Status CheckData(const run_dir::TrainingSpec& spec, const data::Dataset& dataset) {
  std::vector<FieldViolation> violations;
  const std::string name = absl::StrCat("dataset '", spec.data.dataset, "'");
  if (!spec.data.digest.empty() && spec.data.digest != dataset.digest()) {
    violations.push_back(
        {"spec.data.digest", absl::StrCat("is '", spec.data.digest, "', but ", name, " here is '",
                                          dataset.digest(), "'")});
  }
  if (spec.model.input != dataset.sample_shape()) {
    violations.push_back(
        {"spec.model",
         absl::StrCat("has input ", engine::ShapeString(spec.model.input), "; ", name,
                      " has samples of ", engine::ShapeString(dataset.sample_shape()))});
  }
  if (spec.model.classes < dataset.classes()) {
    const char* what = dataset.has_tokens() ? " different tokens; " : " classes; ";
    violations.push_back({"spec.model", absl::StrCat("has ", spec.model.classes, what, name,
                                                     " has ", dataset.classes())});
  }
  return violations.empty() ? absl::OkStatus() : InvalidFields(std::move(violations));
}

}  // namespace trainyard::trainer

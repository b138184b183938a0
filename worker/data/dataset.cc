// Chooses the reader by the name of the data set, and computes what normalisation needs.
#include "worker/data/dataset.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/base/errors.h"
#include "common/base/status_macros.h"
#include "common/base/strings.h"
#include "common/datasets.h"
#include "worker/data/cifar.h"
#include "worker/data/glyphs.h"
#include "worker/data/idx_dataset.h"
#include "worker/data/image_dataset.h"
#include "worker/data/resample.h"
#include "worker/data/token_dataset.h"

namespace trainyard::data {
namespace {

constexpr int64_t kNormalizationSamples = 10'000;
constexpr int64_t kDecodedNormalizationSamples = 1'024;

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

bool StaysBelow(absl::string_view path) {
  if (path.empty() || absl::StartsWith(path, "/")) return false;
  const std::vector<absl::string_view> parts = absl::StrSplit(path, '/');
  return std::find(parts.begin(), parts.end(), "..") == parts.end();
}

absl::Status Dataset::ReadFramed(int64_t index, const Augmentation& augmentation, uint64_t key,
                                 absl::Span<float> values, absl::Span<int32_t> labels) const {
  if (!augmentation.changes_framing()) return Read(index, values, labels);
  const int64_t channels = sample_shape()[0];
  const int64_t height = sample_shape()[1];
  const int64_t width = sample_shape()[2];
  std::vector<float> whole(values.size());
  TY_RETURN_IF_ERROR(Read(index, absl::MakeSpan(whole), labels));
  const Framing base{
      .width = static_cast<double>(width), .height = static_cast<double>(height), .flip = false};
  const Framing framing = DrawFraming(augmentation, key, width, height, base, width, height);
  const size_t plane = values.size() / static_cast<size_t>(channels);
  for (size_t begin = 0; begin < values.size(); begin += plane) {
    Resample(ImageView<float>{whole.data() + begin, width, height, 1, width}, framing, width,
             height, values.subspan(begin, plane));
  }
  return absl::OkStatus();
}

absl::Status Dataset::Verify(int64_t index) const {
  const std::vector<int64_t>& shape = sample_shape();
  const int64_t elements =
      std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
  std::vector<float> values(static_cast<size_t>(elements));
  std::vector<int32_t> labels(static_cast<size_t>(labels_per_row()));
  return Read(index, absl::MakeSpan(values), absl::MakeSpan(labels));
}

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
  if (name == datasets::kImages.name) return OpenImages(split, options);
  if (IsCifar(name)) return OpenCifar(name, split, options.dataset_dir);
  return OpenIdxDataset(name, split, options.dataset_dir);
}

std::vector<std::string> DatasetNames() {
  std::vector<std::string> names;
  for (const datasets::Facts& facts : datasets::All()) names.emplace_back(facts.name);
  return names;
}

absl::StatusOr<Normalization> MeasureNormalization(const Dataset& dataset, bool skip_corrupt) {
  if (dataset.has_tokens()) return Normalization{};
  const std::vector<int64_t>& shape = dataset.sample_shape();
  const auto channels = static_cast<size_t>(shape[0]);
  const auto area = static_cast<size_t>(shape[1] * shape[2]);
  std::vector<float> pixels(channels * area);
  std::vector<double> sums(channels);
  std::vector<double> squares(channels);
  const int64_t samples = std::min(
      dataset.size(), dataset.decodes() ? kDecodedNormalizationSamples : kNormalizationSamples);
  int64_t skipped = 0;
  for (int64_t i = 0; i < samples; ++i) {
    // In some data sets the classes follow one another, so the samples must be spread evenly.
    const int64_t index = dataset.decodes() ? i * dataset.size() / samples : i;
    int32_t label = 0;
    const absl::Status read =
        dataset.Read(index, absl::MakeSpan(pixels), absl::MakeSpan(&label, 1));
    if (absl::IsDataLoss(read) && skip_corrupt && ++skipped < samples) continue;
    TY_RETURN_IF_ERROR(read);
    for (size_t p = 0; p < pixels.size(); ++p) {
      const double value = pixels[p];
      sums[p / area] += value;
      squares[p / area] += value * value;
    }
  }
  Normalization result;
  for (size_t c = 0; c < channels; ++c) {
    const double count = static_cast<double>(samples - skipped) * static_cast<double>(area);
    const double mean = sums[c] / count;
    const double variance = std::max(0.0, squares[c] / count - mean * mean);
    // A channel that never varies stays as it is, because dividing by its deviation would divide by
    // zero.
    constexpr double kFlat = 1e-12;
    result.mean.push_back(static_cast<float>(mean));
    result.stddev.push_back(variance < kFlat ? 1.0F : static_cast<float>(std::sqrt(variance)));
  }
  return result;
}

}  // namespace trainyard::data

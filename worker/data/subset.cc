// Copies the samples of data sets in memory, so that they can lie on a device as those of a whole
// one, and looks others up by a table.
#include "worker/data/subset.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "worker/data/memory_dataset.h"
#include "worker/data/sampler.h"

namespace trainyard::data {
namespace {

class SubsetDataset : public Dataset {
 public:
  SubsetDataset(std::unique_ptr<Dataset> whole, std::vector<int64_t> indices)
      : whole_(std::move(whole)), indices_(std::move(indices)) {}

  int64_t size() const override { return static_cast<int64_t>(indices_.size()); }
  int64_t classes() const override { return whole_->classes(); }
  const std::vector<int64_t>& sample_shape() const override { return whole_->sample_shape(); }
  int64_t labels_per_row() const override { return whole_->labels_per_row(); }
  absl::Status Read(int64_t index, absl::Span<float> values,
                    absl::Span<int32_t> labels) const override {
    return whole_->Read(Of(index), values, labels);
  }
  absl::Status ReadFramed(int64_t index, const Augmentation& augmentation, uint64_t key,
                          absl::Span<float> values, absl::Span<int32_t> labels) const override {
    return whole_->ReadFramed(Of(index), augmentation, key, values, labels);
  }
  absl::Status Verify(int64_t index) const override { return whole_->Verify(Of(index)); }
  bool decodes() const override { return whole_->decodes(); }
  const std::string& digest() const override { return whole_->digest(); }

 private:
  int64_t Of(int64_t index) const { return indices_[static_cast<size_t>(index)]; }

  const std::unique_ptr<Dataset> whole_;
  const std::vector<int64_t> indices_;
};

std::unique_ptr<Dataset> CopySamples(const Dataset& whole, const std::vector<int64_t>& indices) {
  const ByteSamples samples = whole.bytes();
  const size_t bytes = samples.pixels.size() / samples.labels.size();
  MemoryDataset::Content content;
  content.sample_shape = whole.sample_shape();
  content.classes = whole.classes();
  content.digest = whole.digest();
  content.pixels.reserve(indices.size() * bytes);
  content.labels.reserve(indices.size());
  for (const int64_t index : indices) {
    const auto pixels = samples.pixels.subspan(static_cast<size_t>(index) * bytes, bytes);
    content.pixels.insert(content.pixels.end(), pixels.begin(), pixels.end());
    content.labels.push_back(samples.labels[static_cast<size_t>(index)]);
  }
  return std::make_unique<MemoryDataset>(std::move(content));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Dataset>> TakeSubset(std::unique_ptr<Dataset> whole, int64_t samples,
                                                    uint64_t seed) {
  if (samples < 1 || samples > whole->size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("a subset of ", samples, " samples; expected 1 to ", whole->size()));
  }
  if (samples == whole->size()) return whole;
  const Sampler order(whole->size(), seed, /*epoch=*/0);
  std::vector<int64_t> indices;
  indices.reserve(static_cast<size_t>(samples));
  for (int64_t i = 0; i < samples; ++i) indices.push_back(order.IndexAt(i));
  std::sort(indices.begin(), indices.end());
  if (!whole->bytes().labels.empty()) return CopySamples(*whole, indices);
  return std::make_unique<SubsetDataset>(std::move(whole), std::move(indices));
}

}  // namespace trainyard::data

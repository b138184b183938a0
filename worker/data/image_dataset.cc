// Reads and decodes images when they are needed, in as many threads as prefetch has. Only the index
// is kept in memory.
#include "worker/data/image_dataset.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "common/base/status_macros.h"
#include "worker/data/data_file.h"
#include "worker/data/jpeg.h"

namespace trainyard::data {
namespace {

constexpr int64_t kMaxImageBytes = int64_t{64} << 20;
constexpr int64_t kMaxSide = 4096;

// Returns the middle `side` of an image whose shorter side is `resize` after scaling.
Framing CenterFraming(int64_t width, int64_t height, int64_t side, int64_t resize) {
  const double part = static_cast<double>(std::min(width, height)) * static_cast<double>(side) /
                      static_cast<double>(resize);
  return {.x = (static_cast<double>(width) - part) / 2,
          .y = (static_cast<double>(height) - part) / 2,
          .width = part,
          .height = part};
}

absl::StatusOr<std::string> ReadBytes(const ImageIndex& index, const ImageEntry& entry) {
  if (entry.size > kMaxImageBytes) {
    return error::CorruptFile(
        index.PathOf(entry),
        absl::StrCat("byte 0: ", entry.size, " bytes; at most ", kMaxImageBytes, " are accepted"));
  }
  return entry.shard < 0 ? ReadDataRange(index.PathOf(entry), 0, kMaxImageBytes)
                         : ReadDataRange(index.shards[static_cast<size_t>(entry.shard)],
                                         entry.offset, entry.size);
}

absl::StatusOr<std::string> FindSplit(const DatasetOptions& options, Split split) {
  if (options.dataset_dir.empty()) {
    return error::DatasetNotFound("images", "it nowhere, since no folder of data sets is set");
  }
  const std::string folder = JoinPath(options.dataset_dir, options.path);
  std::vector<std::string> tried;
  for (const char* name : {"train", "test", "val"}) {
    if ((split == Split::kTrain) != (name == absl::string_view("train"))) continue;
    tried.push_back(JoinPath(folder, name));
    if (FileExists(tried.back())) return tried.back();
  }
  return error::DatasetNotFound("images", absl::StrJoin(tried, ", "));
}

absl::StatusOr<ImageIndex> OpenIndex(const std::string& folder,
                                     const std::vector<std::string>& classes) {
  auto index = ReadImageIndex(folder, classes);
  if (absl::IsNotFound(index.status()) && ErrorReason(index.status()).empty()) {
    return error::DatasetNotFound("images", absl::StrCat("images, but ", index.status().message()));
  }
  return index;
}

}  // namespace

ImageDataset::ImageDataset(ImageIndex index, int64_t side, int64_t resize)
    : index_(std::move(index)),
      sample_shape_({3, side, side}),
      resize_(resize),
      digest_(index_.Digest()) {}

absl::Status ImageDataset::Read(int64_t index, absl::Span<float> pixels,
                                absl::Span<int32_t> labels) const {
  return ReadFramed(index, {}, 0, pixels, labels);
}

absl::Status ImageDataset::ReadFramed(int64_t index, const Augmentation& augmentation, uint64_t key,
                                      absl::Span<float> pixels, absl::Span<int32_t> labels) const {
  const ImageEntry& entry = index_.entries[static_cast<size_t>(index)];
  const int64_t side = sample_shape_[1];
  TY_ASSIGN_OR_RETURN(const std::string bytes, ReadBytes(index_, entry));
  const auto corrupt = [&](const absl::Status& status) {
    return error::CorruptFile(index_.PathOf(entry), status.message());
  };
  auto image = JpegReader::Open(bytes);
  if (!image.ok()) return corrupt(image.status());
  const int64_t width = (*image)->width();
  const int64_t height = (*image)->height();
  const Framing base = CenterFraming(width, height, side, resize_);
  const Framing framing = DrawFraming(augmentation, key, width, height, base, side, side);
  const absl::Status read = (*image)->Read(framing, side, side, pixels);
  if (!read.ok()) return corrupt(read);
  labels[0] = entry.label;
  return absl::OkStatus();
}

absl::Status ImageDataset::Verify(int64_t index) const {
  const ImageEntry& entry = index_.entries[static_cast<size_t>(index)];
  TY_ASSIGN_OR_RETURN(const std::string bytes, ReadBytes(index_, entry));
  const auto image = JpegReader::Open(bytes, JpegCheck::kToTheEnd);
  absl::Status status = image.status();
  if (status.ok()) {
    const int64_t width = (*image)->width();
    const int64_t height = (*image)->height();
    std::vector<float> pixels(static_cast<size_t>(3 * width * height));
    status =
        (*image)->Read({.width = static_cast<double>(width), .height = static_cast<double>(height)},
                       width, height, absl::MakeSpan(pixels));
  }
  return status.ok() ? status : error::CorruptFile(index_.PathOf(entry), status.message());
}

absl::Status CheckImageOptions(const DatasetOptions& options) {
  std::vector<FieldViolation> violations;
  if (!datasets::StaysBelow(options.path)) {
    violations.push_back({"spec.data.path", absl::StrCat("is '", options.path,
                                                         "'; expected a folder below that of the "
                                                         "data sets, such as 'flowers'")});
  }
  if (options.image_size < 1 || options.image_size > kMaxSide) {
    violations.push_back({"spec.data.image_size",
                          absl::StrCat("is ", options.image_size, "; expected 1 to ", kMaxSide)});
  }
  if (options.resize != 0 && options.resize < options.image_size) {
    violations.push_back(
        {"spec.data.resize", absl::StrCat("is ", options.resize, "; expected image_size, ",
                                          options.image_size, ", or more")});
  }
  return violations.empty() ? absl::OkStatus() : InvalidFields(violations);
}

absl::Status FindImages(Split split, const DatasetOptions& options) {
  return FindSplit(options, split).status();
}

absl::StatusOr<std::unique_ptr<Dataset>> OpenImages(Split split, const DatasetOptions& options) {
  TY_ASSIGN_OR_RETURN(const std::string train, FindSplit(options, Split::kTrain));
  TY_ASSIGN_OR_RETURN(ImageIndex index, OpenIndex(train, {}));
  if (split == Split::kTest) {
    TY_ASSIGN_OR_RETURN(const std::string test, FindSplit(options, split));
    TY_ASSIGN_OR_RETURN(index, OpenIndex(test, index.classes));
  }
  // This is the usual proportion with ImageNet: 256 for 224.
  const int64_t resize = options.resize > 0 ? options.resize : (options.image_size * 8 + 3) / 7;
  return std::make_unique<ImageDataset>(std::move(index), options.image_size, resize);
}

}  // namespace trainyard::data

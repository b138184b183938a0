// Decodes all JPEGs when the data set is opened, so that it then lies in memory as the binary form
// does.
#include "worker/data/cifar_jpegs.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/base/errors.h"
#include "common/base/status_macros.h"
#include "common/datasets.h"
#include "worker/data/archive_limit.h"
#include "worker/data/data_file.h"
#include "worker/data/jpeg.h"
#include "worker/data/tar.h"
#include "worker/data/zstd_codec.h"

namespace trainyard::data {
namespace {

constexpr int64_t kSide = datasets::kCifar10.side;
constexpr size_t kSampleBytes = datasets::kCifar10.channels * kSide * kSide;
// The names are in the order of the labels of the published files.
constexpr std::array<absl::string_view, datasets::kCifar10.classes> kClassNames = {
    "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"};

// Identifies a member by its place. `index` is the file's name, whose digits have the same number
// in all files.
struct Member {
  std::string index;
  uint8_t label = 0;
  TarMember file;
};

// Returns the split's members, sorted. Others are skipped.
absl::StatusOr<std::vector<Member>> SplitMembers(absl::string_view archive, Split split) {
  TY_ASSIGN_OR_RETURN(const std::vector<TarMember> files, ListTar(archive));
  const absl::string_view folder = split == Split::kTrain ? "train" : "test";
  std::vector<Member> members;
  for (const TarMember& file : files) {
    const std::vector<std::string> parts = absl::StrSplit(file.name, '/');
    if (parts.size() < 3 || parts[parts.size() - 3] != folder ||
        !absl::EndsWith(file.name, ".jpg")) {
      continue;
    }
    const std::string& class_name = parts[parts.size() - 2];
    const auto found = std::find(kClassNames.begin(), kClassNames.end(), class_name);
    if (found == kClassNames.end()) {
      return absl::DataLossError(absl::StrCat("byte ", file.offset, ": member '", file.name,
                                              "' is of class '", class_name, "'; expected one of ",
                                              absl::StrJoin(kClassNames, ", ")));
    }
    members.push_back({parts.back(), static_cast<uint8_t>(found - kClassNames.begin()), file});
  }
  std::sort(members.begin(), members.end(), [](const Member& a, const Member& b) {
    return std::pair(a.index, a.label) < std::pair(b.index, b.label);
  });
  return members;
}

// Appends the pixels of one JPEG, channel-major.
absl::Status AddImage(absl::string_view jpeg, std::vector<uint8_t>& pixels) {
  TY_ASSIGN_OR_RETURN(const auto image, JpegReader::Open(jpeg, JpegCheck::kToTheEnd));
  if (image->width() != kSide || image->height() != kSide) {
    return absl::DataLossError(absl::StrCat("an image of ", image->width(), " x ", image->height(),
                                            " pixels; expected ", kSide, " x ", kSide));
  }
  std::array<float, kSampleBytes> values;
  TY_RETURN_IF_ERROR(
      image->Read({.width = kSide, .height = kSide}, kSide, kSide, absl::MakeSpan(values)));
  // Converts back to the original bytes.
  for (const float value : values) {
    pixels.push_back(static_cast<uint8_t>(std::lround(value * 255.0F)));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<MemoryDataset::Content> ReadCifarJpegs(const std::string& archive_path,
                                                      Split split) {
  TY_ASSIGN_OR_RETURN(std::string archive, ReadDataFile(archive_path, kMaxArchiveBytes));
  if (absl::EndsWith(archive_path, ".zst")) {
    absl::StatusOr<std::string> content =
        DecodeZstd(archive, ArchiveLimit(static_cast<int64_t>(archive.size())));
    if (!content.ok()) return error::CorruptFile(archive_path, content.status().message());
    archive = *std::move(content);
  }
  const auto members = SplitMembers(archive, split);
  if (!members.ok()) return error::CorruptFile(archive_path, members.status().message());
  if (members->empty()) {
    return error::CorruptFile(
        archive_path, absl::StrCat("it has no member ", split == Split::kTrain ? "train" : "test",
                                   "/<class>/<index>.jpg"));
  }
  MemoryDataset::Content content;
  content.sample_shape = datasets::kCifar10.shape();
  content.classes = static_cast<int64_t>(kClassNames.size());
  content.pixels.reserve(members->size() * kSampleBytes);
  for (const Member& member : *members) {
    const absl::Status added =
        AddImage(absl::string_view(archive).substr(static_cast<size_t>(member.file.offset),
                                                   static_cast<size_t>(member.file.size)),
                 content.pixels);
    if (!added.ok()) {
      return error::CorruptFile(absl::StrCat(archive_path, "!", member.file.name), added.message());
    }
    content.labels.push_back(member.label);
  }
  return content;
}

}  // namespace trainyard::data

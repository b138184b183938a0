// Finds the two files of a split, and checks that they belong together.
#include "worker/data/idx_dataset.h"

#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "common/base/hash.h"
#include "common/base/status_macros.h"
#include "common/datasets.h"
#include "worker/data/idx.h"
#include "worker/data/memory_dataset.h"

namespace trainyard::data {
namespace {

struct FilePair {
  std::string images;
  std::string labels;
};

// Returns the path of the plain file or the compressed one. The paths that were tried are appended
// to `tried`.
std::optional<std::string> FindFile(const std::string& path, std::vector<std::string>& tried) {
  for (const char* suffix : {"", ".gz"}) {
    std::string candidate = absl::StrCat(path, suffix);
    if (FileExists(candidate)) return candidate;
    tried.push_back(std::move(candidate));
  }
  return std::nullopt;
}

absl::StatusOr<FilePair> FindFiles(absl::string_view name, Split split,
                                   const std::string& dataset_dir) {
  if (dataset_dir.empty()) {
    return error::DatasetNotFound(name, "it nowhere, since no folder of data sets is set");
  }
  const char* prefix = split == Split::kTrain ? "train" : "t10k";
  std::vector<std::string> tried;
  absl::Status incomplete;
  for (const std::string& folder : {JoinPath(dataset_dir, name), dataset_dir}) {
    const std::string images_path = JoinPath(folder, absl::StrCat(prefix, "-images-idx3-ubyte"));
    const std::string labels_path = JoinPath(folder, absl::StrCat(prefix, "-labels-idx1-ubyte"));
    const auto images = FindFile(images_path, tried);
    const auto labels = FindFile(labels_path, tried);
    if (images.has_value() && labels.has_value()) return FilePair{*images, *labels};
    if (images.has_value() == labels.has_value() || !incomplete.ok()) continue;
    const std::string& present = images.has_value() ? *images : *labels;
    const std::string& missing = images.has_value() ? labels_path : images_path;
    incomplete = error::DatasetIncomplete(
        name, absl::StrCat("'", present, "' has neither '", missing, "' nor '", missing,
                           ".gz' beside it; put one of them there too"));
  }
  TY_RETURN_IF_ERROR(incomplete);
  return error::DatasetNotFound(name, absl::StrJoin(tried, ", "));
}

// The digest covers the decoded content of both files, so that packing a file again changes
// nothing.
std::string DigestOf(const IdxFile& images, const IdxFile& labels) {
  ContentHasher hasher;
  hasher.Update(images.bytes);
  hasher.Update(labels.bytes);
  return hasher.Text();
}

absl::Status CheckShapes(const datasets::Facts& facts, const FilePair& paths, const IdxFile& images,
                         const IdxFile& labels) {
  if (images.dimensions[1] != facts.side || images.dimensions[2] != facts.side) {
    return error::CorruptFile(
        paths.images,
        absl::StrCat("byte 8: images of ", images.dimensions[1], " x ", images.dimensions[2],
                     " pixels; expected ", facts.side, " x ", facts.side));
  }
  if (images.dimensions[0] != labels.dimensions[0]) {
    return error::CorruptFile(
        paths.labels, absl::StrCat("byte 4: ", labels.dimensions[0], " labels; expected ",
                                   images.dimensions[0], " as '", paths.images, "' has images"));
  }
  for (size_t at = labels.data_offset; at < labels.bytes.size(); ++at) {
    const auto label = static_cast<uint8_t>(labels.bytes[at]);
    if (label >= facts.classes) {
      return error::CorruptFile(paths.labels, absl::StrCat("byte ", at, ": label ", label,
                                                           "; expected 0 to ", facts.classes - 1));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status FindIdxDataset(absl::string_view name, Split split, const std::string& dataset_dir) {
  return FindFiles(name, split, dataset_dir).status();
}

absl::StatusOr<std::unique_ptr<Dataset>> OpenIdxDataset(absl::string_view name, Split split,
                                                        const std::string& dataset_dir) {
  const datasets::Facts& facts = *datasets::Find(name);
  TY_ASSIGN_OR_RETURN(const FilePair paths, FindFiles(name, split, dataset_dir));
  TY_ASSIGN_OR_RETURN(const IdxFile images, ReadIdx(paths.images, 3));
  TY_ASSIGN_OR_RETURN(const IdxFile labels, ReadIdx(paths.labels, 1));
  TY_RETURN_IF_ERROR(CheckShapes(facts, paths, images, labels));
  MemoryDataset::Content content;
  content.sample_shape = facts.shape();
  content.classes = facts.classes;
  content.digest = DigestOf(images, labels);
  const auto elements = [](const IdxFile& file) {
    return std::vector<uint8_t>(file.bytes.begin() + static_cast<ptrdiff_t>(file.data_offset),
                                file.bytes.end());
  };
  content.pixels = elements(images);
  content.labels = elements(labels);
  return std::make_unique<MemoryDataset>(std::move(content));
}

}  // namespace trainyard::data

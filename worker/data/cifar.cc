// Reads the published binary files, from a folder or from the archive.
#include "worker/data/cifar.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "common/base/hash.h"
#include "common/base/status_macros.h"
#include "common/datasets.h"
#include "worker/data/archive_limit.h"
#include "worker/data/cifar_jpegs.h"
#include "worker/data/data_file.h"
#include "worker/data/gzip.h"
#include "worker/data/memory_dataset.h"
#include "worker/data/tar.h"

namespace trainyard::data {
namespace {

static_assert(datasets::kCifar10.side == datasets::kCifar100.side);
constexpr size_t kPixelBytes =
    datasets::kCifar10.channels * datasets::kCifar10.side * datasets::kCifar10.side;
constexpr int64_t kMaxFileBytes = int64_t{1} << 30;

struct Variant {
  const datasets::Facts& facts;
  size_t label_bytes;  // before the pixels of each record; the last of them is the label
  std::vector<std::string> train;
  std::vector<std::string> test;
  absl::string_view folder;
  absl::string_view archive;
  std::vector<std::string> jpegs;  // archives of JPEGs

  const std::vector<std::string>& FilesOf(Split split) const {
    return split == Split::kTrain ? train : test;
  }
};

const std::vector<Variant>& Variants() {
  static const auto* variants = new std::vector<Variant>{
      {datasets::kCifar10,
       1,
       {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin",
        "data_batch_5.bin"},
       {"test_batch.bin"},
       "cifar-10-batches-bin",
       "cifar-10-binary.tar.gz",
       {"cifar10-images.tar.zst", "cifar10-images.tar"}},
      {datasets::kCifar100,
       2,
       {"train.bin"},
       {"test.bin"},
       "cifar-100-binary",
       "cifar-100-binary.tar.gz",
       {}},
  };
  return *variants;
}

const Variant* FindVariant(absl::string_view name) {
  for (const Variant& variant : Variants()) {
    if (variant.facts.name == name) return &variant;
  }
  return nullptr;
}

struct Batch {
  std::string path;  // used in messages
  std::string bytes;
};

// Reads the split's files from the packed archive.
absl::StatusOr<std::vector<Batch>> ReadArchive(const std::string& path,
                                               const std::vector<std::string>& names) {
  TY_ASSIGN_OR_RETURN(const std::string packed, ReadDataFile(path, kMaxFileBytes));
  const auto corrupt = [&path](const absl::Status& status) {
    return error::CorruptFile(path, status.message());
  };
  const absl::StatusOr<std::string> archive =
      DecodeGzip(packed, ArchiveLimit(static_cast<int64_t>(packed.size())));
  if (!archive.ok()) return corrupt(archive.status());
  const auto members = ListTar(*archive);
  if (!members.ok()) return corrupt(members.status());
  std::vector<Batch> batches;
  for (const std::string& name : names) {
    const auto member =
        std::find_if(members->begin(), members->end(), [&name](const TarMember& candidate) {
          return candidate.name == name || absl::EndsWith(candidate.name, "/" + name);
        });
    if (member == members->end()) {
      return error::CorruptFile(path, absl::StrCat("it has no member '", name, "'"));
    }
    batches.push_back(
        {absl::StrCat(path, "!", member->name),
         archive->substr(static_cast<size_t>(member->offset), static_cast<size_t>(member->size))});
  }
  return batches;
}

absl::StatusOr<std::vector<Batch>> ReadFiles(const std::string& folder,
                                             const std::vector<std::string>& names) {
  std::vector<Batch> batches;
  for (const std::string& name : names) {
    Batch& batch = batches.emplace_back(Batch{JoinPath(folder, name), {}});
    TY_ASSIGN_OR_RETURN(batch.bytes, ReadDataFile(batch.path, kMaxFileBytes));
  }
  return batches;
}

// Says where a split lies: its batches in a folder, all of them in an archive, or JPEGs in an
// archive.
struct Place {
  enum class Form { kFolder, kArchive, kJpegs };
  Form form = Form::kFolder;
  std::string path;
};

std::vector<std::string> Missing(const std::string& folder, const std::vector<std::string>& names) {
  std::vector<std::string> missing;
  for (const std::string& name : names) {
    if (!FileExists(JoinPath(folder, name))) missing.push_back(name);
  }
  return missing;
}

absl::StatusOr<Place> FindPlace(const Variant& variant, const std::vector<std::string>& names,
                                const std::string& dataset_dir) {
  if (dataset_dir.empty()) {
    return error::DatasetNotFound(variant.facts.name,
                                  "it nowhere, since no folder of data sets is set");
  }
  std::vector<std::string> tried;
  absl::Status incomplete;
  for (const std::string& base : {JoinPath(dataset_dir, variant.facts.name), dataset_dir}) {
    for (const std::string& folder : {base, JoinPath(base, variant.folder)}) {
      tried.push_back(JoinPath(folder, names.front()));
      const std::vector<std::string> missing = Missing(folder, names);
      if (missing.empty()) return Place{Place::Form::kFolder, folder};
      if (missing.size() == names.size() || !incomplete.ok()) continue;
      incomplete = error::DatasetIncomplete(
          variant.facts.name,
          absl::StrCat("'", folder, "' has ", names.size() - missing.size(), " of the ",
                       names.size(), " files of the split, and lacks ",
                       absl::StrJoin(missing, ", "), "; put the rest there too"));
    }
    tried.push_back(JoinPath(base, variant.archive));
    if (FileExists(tried.back())) return Place{Place::Form::kArchive, tried.back()};
    for (const std::string& archive : variant.jpegs) {
      tried.push_back(JoinPath(base, archive));
      if (FileExists(tried.back())) return Place{Place::Form::kJpegs, tried.back()};
    }
  }
  TY_RETURN_IF_ERROR(incomplete);
  return error::DatasetNotFound(variant.facts.name, absl::StrJoin(tried, ", "));
}

// Appends the records of one file.
absl::Status AddBatch(const Variant& variant, const Batch& batch, MemoryDataset::Content& content) {
  const size_t record = variant.label_bytes + kPixelBytes;
  const size_t rest = batch.bytes.size() % record;
  if (batch.bytes.empty() || rest != 0) {
    return error::CorruptFile(
        batch.path,
        absl::StrCat("byte ", batch.bytes.size(), ": the file ends ", rest,
                     " bytes into a record; expected whole records of ", record, " bytes"));
  }
  for (size_t at = 0; at < batch.bytes.size(); at += record) {
    const size_t label_at = at + variant.label_bytes - 1;
    const auto label = static_cast<uint8_t>(batch.bytes[label_at]);
    if (label >= variant.facts.classes) {
      return error::CorruptFile(
          batch.path, absl::StrCat("byte ", label_at, ": label ", label, "; expected 0 to ",
                                   variant.facts.classes - 1));
    }
    content.labels.push_back(label);
    const auto pixels = batch.bytes.begin() + static_cast<ptrdiff_t>(at + variant.label_bytes);
    content.pixels.insert(content.pixels.end(), pixels,
                          pixels + static_cast<ptrdiff_t>(kPixelBytes));
  }
  return absl::OkStatus();
}

// The digest covers pixels, then labels, of the whole split, in whatever form the files are.
std::string DigestOf(const MemoryDataset::Content& content) {
  ContentHasher hasher;
  const auto text = [](const std::vector<uint8_t>& bytes) {
    return absl::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  };
  hasher.Update(text(content.pixels));
  hasher.Update(text(content.labels));
  return hasher.Text();
}

}  // namespace

bool IsCifar(absl::string_view name) {
  return FindVariant(name) != nullptr;
}

absl::Status FindCifar(absl::string_view name, Split split, const std::string& dataset_dir) {
  const Variant& variant = *FindVariant(name);
  return FindPlace(variant, variant.FilesOf(split), dataset_dir).status();
}

absl::StatusOr<std::unique_ptr<Dataset>> OpenCifar(absl::string_view name, Split split,
                                                   const std::string& dataset_dir) {
  const Variant& variant = *FindVariant(name);
  const std::vector<std::string>& names = variant.FilesOf(split);
  TY_ASSIGN_OR_RETURN(const Place place, FindPlace(variant, names, dataset_dir));
  MemoryDataset::Content content;
  if (place.form == Place::Form::kJpegs) {
    TY_ASSIGN_OR_RETURN(content, ReadCifarJpegs(place.path, split));
  } else {
    TY_ASSIGN_OR_RETURN(const std::vector<Batch> batches, place.form == Place::Form::kArchive
                                                              ? ReadArchive(place.path, names)
                                                              : ReadFiles(place.path, names));
    content.sample_shape = variant.facts.shape();
    content.classes = variant.facts.classes;
    size_t bytes = 0;
    for (const Batch& batch : batches) bytes += batch.bytes.size();
    content.pixels.reserve(bytes);
    for (const Batch& batch : batches) TY_RETURN_IF_ERROR(AddBatch(variant, batch, content));
  }
  content.digest = DigestOf(content);
  return std::make_unique<MemoryDataset>(std::move(content));
}

}  // namespace trainyard::data

// Reads each file from where it was left. A record that is torn is complete at a later look.
#include "worker/program/event_folder.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/files.h"
#include "common/base/strings.h"

namespace trainyard::program {
namespace {

// A folder with more names is not one of event files alone.
constexpr size_t kNamesMax = 10'000;
// Each look at a file reads at most as many chunks.
constexpr int kEventChunksMax = 16;

std::string FolderOf(const std::string& name) {
  const size_t slash = name.rfind('/');
  return slash == std::string::npos ? "" : name.substr(0, slash);
}

}  // namespace

EventFolder::EventFolder(std::string path) : path_(std::move(path)) {
  FindFiles(/*from_end=*/true);
}

void EventFolder::FindFiles(bool from_end) {
  const auto names = ListTree(path_, kNamesMax);
  if (!names.ok()) return;
  for (const std::string& name : *names) {
    const bool is_events = absl::StrContains(name.substr(FolderOf(name).size()), "tfevents");
    if (!is_events || files_.contains(name)) continue;
    if (files_.size() >= kFilesMax) {
      if (troubles_.empty())
        troubles_.push_back("there are too many event files, and new ones are not read");
      return;
    }
    files_[name].offset = from_end ? FileSize(JoinPath(path_, name)).value_or(0) : 0;
  }
}

void EventFolder::Read(bool looks_for_files, std::vector<Scalar>& scalars) {
  if (looks_for_files) FindFiles(/*from_end=*/false);
  for (auto& [name, file] : files_) {
    if (!file.is_unreadable) ReadFile(name, file, scalars);
  }
}

void EventFolder::ReadFile(const std::string& name, File& file, std::vector<Scalar>& scalars) {
  // A chunk has room for a record of the largest size, with its frame.
  constexpr int64_t kChunkBytes = kRecordBytesMax + 64;
  for (int i = 0; i < kEventChunksMax; ++i) {
    const auto chunk = ReadRegularFileRange(JoinPath(path_, name), file.offset, kChunkBytes);
    if (!chunk.ok() || chunk->empty()) return;
    if (!TakeRecords(*chunk, name, file, scalars)) return;
  }
}

bool EventFolder::TakeRecords(absl::string_view chunk, const std::string& name, File& file,
                              std::vector<Scalar>& scalars) {
  const int64_t begin = file.offset;
  while (!chunk.empty()) {
    const Record record = NextRecord(chunk, kRecordBytesMax);
    if (record.kind == Record::Kind::kTorn) break;
    if (record.kind == Record::Kind::kUnreadable) {
      Tell(name, file, "has a record whose length is damaged; what follows it is not read");
      file.is_unreadable = true;
      return false;
    }
    file.offset += static_cast<int64_t>(record.bytes);
    const size_t first = scalars.size();
    const bool is_whole = record.kind == Record::Kind::kWhole;
    if (is_whole && !ReadScalars(record.event, scalars)) {
      Tell(name, file, "has a record that is no event; such records are left out");
    }
    if (record.kind == Record::Kind::kDamaged) {
      Tell(name, file, "has a damaged record; such records are left out");
    }
    for (size_t i = first; i < scalars.size(); ++i) {
      scalars[i].tag = absl::StrCat(PrefixOf(name), scalars[i].tag);
    }
    // A record that is left out may reach beyond the chunk.
    if (record.bytes > chunk.size()) return true;
    chunk.remove_prefix(record.bytes);
  }
  return file.offset > begin;
}

void EventFolder::Tell(const std::string& name, File& file, absl::string_view what) {
  if (std::exchange(file.is_told, true)) return;
  troubles_.push_back(absl::StrCat("event file '", PlainText(name, 200), "' ", what));
}

std::string EventFolder::PrefixOf(const std::string& name) {
  const std::string folder = FolderOf(name);
  if (!std::exchange(has_main_, true)) main_folder_ = folder;
  if (folder == main_folder_) return "";
  const size_t slash = folder.rfind('/');
  const std::string last = slash == std::string::npos ? folder : folder.substr(slash + 1);
  return last.empty() ? "" : absl::StrCat(last, "/");
}

std::vector<std::string> EventFolder::TakeTroubles() {
  return std::exchange(troubles_, {});
}

}  // namespace trainyard::program

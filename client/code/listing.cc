// Walks through the folder. A folder that is left out is not entered, however large it is.
#include "client/code/listing.h"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/code/ignore_rules.h"
#include "common/base/code_errors.h"
#include "common/base/errors.h"
#include "common/base/status_macros.h"
#include "common/base/strings.h"

namespace trainyard::code {
namespace {

// The walk goes on past the limit, so that the message can name what is large, but not for ever.
constexpr size_t kListedMax = 4 * static_cast<size_t>(kEntriesMax);
constexpr size_t kNamedLargest = 5;
constexpr int64_t kNanoseconds = 1'000'000'000;

Stamp StampFrom(const struct stat& info) {
  return {info.st_mode,
          info.st_size,
          int64_t{info.st_mtim.tv_sec} * kNanoseconds + info.st_mtim.tv_nsec,
          int64_t{info.st_ctim.tv_sec} * kNanoseconds + info.st_ctim.tv_nsec,
          info.st_ino,
          info.st_dev};
}

class Walk {
 public:
  Walk(const std::string& folder, Repository& repository, Listing& listing)
      : folder_(folder), repository_(repository), listing_(listing) {}

  // Lists what is in the folder at `path`, which is empty for the top.
  absl::Status Enter(const std::string& path, bool is_in_submodule) {
    const std::string here = path.empty() ? folder_ : JoinPath(folder_, path);
    TY_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDirectory(here));
    TY_RETURN_IF_ERROR(TakeRules(path, here));
    for (const std::string& name : names) {
      if (name == ".git") continue;
      const std::string below = path.empty() ? name : absl::StrCat(path, "/", name);
      TY_RETURN_IF_ERROR(Take(below, is_in_submodule));
    }
    return absl::OkStatus();
  }

 private:
  absl::Status TakeRules(const std::string& path, const std::string& here) {
    listing_.rule_files.emplace_back(here, code::StampOf(here));
    for (const char* name : {kGitIgnore, kOwnIgnore}) {
      const std::string file = JoinPath(here, name);
      const Stamp stamp = code::StampOf(file);
      if (stamp.mode == 0) continue;
      listing_.rule_files.emplace_back(file, stamp);
      if (name != kOwnIgnore) continue;
      TY_ASSIGN_OR_RETURN(const std::string rules, ReadRegularFile(file, kRulesBytesMax));
      TY_RETURN_IF_ERROR(repository_.AddRules(path, rules));
    }
    return absl::OkStatus();
  }

  absl::Status Take(const std::string& path, bool is_in_submodule) {
    const std::string full = JoinPath(folder_, path);
    struct stat info {};
    if (lstat(full.c_str(), &info) != 0) {
      if (errno == ENOENT) return absl::OkStatus();  // it has just been removed
      return ErrnoStatus(errno, "cannot stat", full);
    }
    const bool is_folder = S_ISDIR(info.st_mode);
    if (repository_.IsIgnored(path, is_folder)) return absl::OkStatus();
    Entry entry;
    entry.path = path;
    if (const absl::Status right = CheckPath(path); !right.ok()) {
      LeaveOut(path, "its path is too long");
      return absl::OkStatus();
    }
    if (is_folder) {
      entry.kind = Entry::Kind::kFolder;
    } else if (S_ISLNK(info.st_mode)) {
      entry.kind = Entry::Kind::kLink;
      if (!TakeTarget(full, entry)) return absl::OkStatus();
    } else if (S_ISREG(info.st_mode)) {
      entry.is_executable = (info.st_mode & S_IXUSR) != 0;
      entry.size = info.st_size;
    } else {
      LeaveOut(path, "it is neither a file nor a folder");
      return absl::OkStatus();
    }
    const bool is_submodule = is_folder && repository_.IsTracked(path);
    if (!is_folder && !is_in_submodule && !repository_.IsTracked(path)) {
      listing_.has_untracked = true;
    }
    listing_.bytes += entry.size;
    listing_.entries.push_back(std::move(entry));
    listing_.stamps.push_back(StampFrom(info));
    if (listing_.entries.size() > kListedMax) return absl::OkStatus();
    return is_folder ? Enter(path, is_in_submodule || is_submodule) : absl::OkStatus();
  }

  bool TakeTarget(const std::string& full, Entry& entry) {
    std::string target(kPathBytesMax + 1, '\0');
    const ssize_t size = readlink(full.c_str(), target.data(), target.size());
    if (size < 0) return false;
    entry.target = target.substr(0, static_cast<size_t>(size));
    if (CheckTarget(entry.path, entry.target).ok()) return true;
    LeaveOut(entry.path, absl::StrCat("it is a link to ", entry.target,
                                      ", out of the folder or by a way that leads back up"));
    return false;
  }

  void LeaveOut(const std::string& path, absl::string_view why) {
    listing_.left_out.push_back(absl::StrCat("'", path, "' does not travel with the code: ", why));
  }

  const std::string& folder_;
  Repository& repository_;
  Listing& listing_;
};

// Names the largest files, or the folders with the most files.
absl::Status TooLarge(const std::string& folder, const Listing& listing, const Limits& limits) {
  const bool has_many = static_cast<int64_t>(listing.entries.size()) > limits.entries;
  std::map<std::string, int64_t> sizes;
  for (const Entry& entry : listing.entries) {
    if (!has_many) {
      sizes[entry.path] = entry.size;
    } else if (const size_t slash = entry.path.rfind('/'); slash != std::string::npos) {
      ++sizes[entry.path.substr(0, slash)];
    }
  }
  std::vector<std::pair<int64_t, std::string>> largest;
  for (const auto& [path, size] : sizes) largest.emplace_back(-size, path);
  std::sort(largest.begin(), largest.end());
  largest.resize(std::min(largest.size(), kNamedLargest));
  std::string text =
      absl::StrCat("the folder '", folder, "' has ", FormatBytes(listing.bytes), " in ",
                   FormatCount(static_cast<int64_t>(listing.entries.size())),
                   " files and folders; expected at most ", FormatBytes(limits.content_bytes),
                   " and ", FormatCount(limits.entries), ". The largest are:");
  for (const auto& [size, path] : largest) {
    absl::StrAppend(&text, "\n  ",
                    has_many ? absl::StrCat(FormatCount(-size), " files") : FormatBytes(-size),
                    "  ", path);
  }
  absl::StrAppend(&text, "\nWrite what is no code into ", JoinPath(folder, kOwnIgnore),
                  ", a name or a pattern in each line, as in .gitignore");
  return error::CodeTooLarge(text);
}

template <typename T>
void Reorder(const std::vector<size_t>& order, std::vector<T>& items) {
  std::vector<T> sorted;
  sorted.reserve(items.size());
  for (const size_t i : order) sorted.push_back(std::move(items[i]));
  items = std::move(sorted);
}

}  // namespace

Stamp StampOf(const std::string& path) {
  struct stat info {};
  return lstat(path.c_str(), &info) == 0 ? StampFrom(info) : Stamp();
}

absl::StatusOr<Listing> ListFolder(const std::string& folder, Repository& repository,
                                   const Limits& limits) {
  Listing listing;
  for (const std::string& file : repository.RuleFiles()) {
    listing.rule_files.emplace_back(file, StampOf(file));
  }
  TY_RETURN_IF_ERROR(Walk(folder, repository, listing).Enter("", false));
  if (listing.bytes > limits.content_bytes ||
      static_cast<int64_t>(listing.entries.size()) > limits.entries) {
    return TooLarge(folder, listing, limits);
  }
  std::vector<size_t> order(listing.entries.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return listing.entries[a].path < listing.entries[b].path; });
  Reorder(order, listing.entries);
  Reorder(order, listing.stamps);
  return listing;
}

}  // namespace trainyard::code

// Compares files by their content, so that only those that differ are read again.
#include "client/commands/code_diff.h"

#include <map>
#include <ostream>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "client/code/text_diff.h"
#include "client/commands/code_files.h"
#include "client/output/table.h"
#include "common/base/status_macros.h"

namespace trainyard::commands {
namespace {

// A longer difference is looked at with other programs: `trainyard code get`.
constexpr size_t kDiffPrintedMax = size_t{256} << 10;
constexpr size_t kDiffedFileMax = size_t{512} << 10;
constexpr size_t kRowsMax = 200;

struct Change {
  std::string path;
  const char* what = "";
};

using Files = std::map<std::string, CodeFile>;

absl::StatusOr<Files> FilesOf(const std::string& archive) {
  TY_ASSIGN_OR_RETURN(std::vector<CodeFile> list, ListCode(archive));
  Files files;
  for (CodeFile& file : list) {
    std::string path = file.entry.path;
    files[std::move(path)] = std::move(file);
  }
  return files;
}

std::vector<Change> ChangesBetween(const Files& left, const Files& right) {
  std::vector<Change> changes;
  for (const auto& [path, file] : left) {
    const auto other = right.find(path);
    if (other == right.end()) {
      changes.push_back({path, "removed"});
    } else if (!(file == other->second)) {
      changes.push_back({path, "changed"});
    }
  }
  for (const auto& [path, file] : right) {
    if (!left.contains(path)) changes.push_back({path, "added"});
  }
  return changes;
}

std::map<absl::string_view, absl::string_view> PackagesOf(const v1::ProgramEnvironment& of) {
  std::map<absl::string_view, absl::string_view> packages;
  for (const absl::string_view line : absl::StrSplit(of.packages(), '\n', absl::SkipEmpty())) {
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(line, absl::MaxSplits("==", 1));
    packages[parts.first] = parts.second;
  }
  return packages;
}

}  // namespace

absl::Status PrintCodeDiff(const Context& context, link::ServerLink& link, const std::string& left,
                           const std::string& right) {
  TY_ASSIGN_OR_RETURN(const std::string left_archive, FetchCode(context, link, left));
  TY_ASSIGN_OR_RETURN(const std::string right_archive, FetchCode(context, link, right));
  TY_ASSIGN_OR_RETURN(const Files left_files, FilesOf(left_archive));
  TY_ASSIGN_OR_RETURN(const Files right_files, FilesOf(right_archive));
  const std::vector<Change> changes = ChangesBetween(left_files, right_files);
  output::Table table({{"CODE"}, {"FILE"}});
  for (size_t i = 0; i < changes.size() && i < kRowsMax; ++i) {
    table.AddRow({changes[i].what, changes[i].path});
  }
  context.out << "\n" << table.Render();
  if (changes.size() > kRowsMax) {
    context.out << "and " << changes.size() - kRowsMax << " more\n";
  }
  size_t printed = 0;
  const auto text_of = [](const Files& files, const std::string& archive, const std::string& path) {
    const auto found = files.find(path);
    const bool is_file =
        found != files.end() && found->second.entry.kind == code::Entry::Kind::kFile;
    return is_file ? ReadCodeFile(archive, path, kDiffedFileMax) : std::string();
  };
  for (size_t i = 0; i < changes.size() && i < kRowsMax; ++i) {
    TY_ASSIGN_OR_RETURN(const std::string before,
                        text_of(left_files, left_archive, changes[i].path));
    TY_ASSIGN_OR_RETURN(const std::string after,
                        text_of(right_files, right_archive, changes[i].path));
    const std::string diff = code::TextDiff(changes[i].path, before, after);
    printed += diff.size();
    if (printed > kDiffPrintedMax) {
      context.Say(absl::StrCat("the differences are longer than this; `trainyard code get ", left,
                               " -O DIR` fetches all files"));
      break;
    }
    context.out << diff;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> CodeChanges(const Context& context, link::ServerLink& link,
                                        const std::string& left, const std::string& right) {
  TY_ASSIGN_OR_RETURN(const std::string left_archive, FetchCode(context, link, left));
  TY_ASSIGN_OR_RETURN(const std::string right_archive, FetchCode(context, link, right));
  TY_ASSIGN_OR_RETURN(const Files left_files, FilesOf(left_archive));
  TY_ASSIGN_OR_RETURN(const Files right_files, FilesOf(right_archive));
  std::map<std::string, int> counts;
  for (const Change& change : ChangesBetween(left_files, right_files)) ++counts[change.what];
  return absl::StrJoin(counts, ", ", [](std::string* out, const auto& count) {
    absl::StrAppend(out, count.second, " ", count.first);
  });
}

absl::StatusOr<v1::ProgramEnvironment> EnvironmentOf(link::ServerLink& link,
                                                     const std::string& job) {
  v1::ListAttemptsRequest request;
  request.set_parent(job);
  TY_ASSIGN_OR_RETURN(const v1::ListAttemptsResponse response,
                      link.Call(&v1::JobService::Stub::ListAttempts, request));
  for (auto attempt = response.attempts().rbegin(); attempt != response.attempts().rend();
       ++attempt) {
    if (attempt->has_environment()) return attempt->environment();
  }
  return v1::ProgramEnvironment();
}

std::string EnvironmentDifferences(const v1::ProgramEnvironment& left,
                                   const v1::ProgramEnvironment& right,
                                   const std::string& left_title, const std::string& right_title) {
  output::Table table({{"ENVIRONMENT"}, {left_title}, {right_title}});
  size_t rows = 0;
  const auto compare = [&](absl::string_view name, absl::string_view a, absl::string_view b) {
    if (a == b) return;
    table.AddRow({std::string(name), std::string(a), std::string(b)});
    ++rows;
  };
  if (left.interpreter().empty() || right.interpreter().empty()) return "";
  compare("interpreter", left.interpreter(), right.interpreter());
  if (!left.image_digest().empty() && !right.image_digest().empty()) {
    compare("image", left.image_digest(), right.image_digest());
  }
  compare("driver", left.driver(), right.driver());
  compare("system", left.system(), right.system());
  const auto left_packages = PackagesOf(left);
  const auto right_packages = PackagesOf(right);
  std::set<absl::string_view> names;
  for (const auto& [name, version] : left_packages) names.insert(name);
  for (const auto& [name, version] : right_packages) names.insert(name);
  const auto version_of = [](const auto& packages, absl::string_view name) {
    const auto found = packages.find(name);
    return found == packages.end() ? absl::string_view() : found->second;
  };
  for (const absl::string_view name : names) {
    compare(name, version_of(left_packages, name), version_of(right_packages, name));
  }
  return rows == 0 ? "" : table.Render();
}

}  // namespace trainyard::commands

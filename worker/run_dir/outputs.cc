// Walks through the folders that a pattern may reach, and no others: the folder of a program may
// lie beside a million files of its data. The walk and the patterns are a user's, so both have
// limits.
#include "worker/run_dir/outputs.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/base/checkpoint_file.h"
#include "common/base/files.h"
#include "common/base/status_macros.h"
#include "common/base/strings.h"
#include "worker/run_dir/json_fields.h"

namespace trainyard::run_dir {
namespace {

namespace fs = std::filesystem;

using Parts = std::vector<absl::string_view>;

constexpr size_t kPatternsMax = 64;
constexpr size_t kToldMax = 10;
constexpr size_t kToldBytesMax = 2000;

Parts PartsOf(absl::string_view path) {
  return absl::StrSplit(path, '/',
                        [](absl::string_view part) { return !part.empty() && part != "."; });
}

// Compares one name. It goes back to the last `*` alone, so its time is at most the product of the
// two lengths.
bool MatchesName(absl::string_view pattern, absl::string_view name) {
  if (absl::StartsWith(name, ".") && !absl::StartsWith(pattern, ".")) return false;
  size_t p = 0;
  size_t n = 0;
  size_t star = pattern.npos;
  size_t after = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      after = n;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == name[n])) {
      ++p;
      ++n;
    } else if (star != pattern.npos) {
      p = star + 1;
      n = ++after;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == pattern.npos;
}

// Returns the parts of the pattern that may come next, after it has named all of the path's.
std::vector<bool> StatesAfter(const Parts& pattern, const Parts& path) {
  const bool names_folder =
      !pattern.empty() && pattern.back().find_first_of("*?") == absl::string_view::npos;
  std::vector<bool> states(pattern.size() + 1, false);
  states[0] = true;
  const auto pass_empty = [&] {
    for (size_t i = 0; i < pattern.size(); ++i) {
      if (states[i] && pattern[i] == "**") states[i + 1] = true;
    }
  };
  pass_empty();
  for (const absl::string_view name : path) {
    std::vector<bool> next(states.size(), false);
    // Everything in a folder that is named is named too. A wildcard names no folders.
    next[pattern.size()] = names_folder && states[pattern.size()] && !absl::StartsWith(name, ".");
    for (size_t i = 0; i < pattern.size(); ++i) {
      if (!states[i]) continue;
      if (pattern[i] == "**") {
        if (!absl::StartsWith(name, ".")) next[i] = true;
      } else if (MatchesName(pattern[i], name)) {
        next[i + 1] = true;
      }
    }
    states = std::move(next);
    pass_empty();
  }
  return states;
}

class Walk {
 public:
  Walk(const OutputsPlan& plan, const OutputLimits& limits) : plan_(plan), limits_(limits) {}

  FoundOutputs Take() {
    Look("");
    std::sort(found_.files.begin(), found_.files.end(),
              [](const OutputFile& a, const OutputFile& b) { return a.name < b.name; });
    Limit();
    if (is_cut_) {
      told_.push_back(absl::StrCat("what lies behind the first ", limits_.looked_at,
                                   " names in the folders was not looked at"));
    }
    if (left_out_ > kToldMax) told_.push_back(absl::StrCat(left_out_ - kToldMax, " more"));
    found_.left_out = absl::StrJoin(told_, "; ");
    return std::move(found_);
  }

 private:
  void LeaveOut(absl::string_view name, absl::string_view why) {
    if (++left_out_ > kToldMax) return;
    told_.push_back(absl::StrCat("'", PlainText(std::string(name), 150), "' ", why));
  }

  void Look(const std::string& folder) {
    std::error_code error;
    std::vector<std::string> below;
    for (fs::directory_iterator it(fs::path(plan_.folder) / folder, error), end;
         !error && it != end; it.increment(error)) {
      if (++looked_at_ > limits_.looked_at) {
        is_cut_ = true;
        return;
      }
      const std::string name = it->path().filename().string();
      const std::string path = folder.empty() ? name : absl::StrCat(folder, "/", name);
      std::error_code ignored;
      const fs::file_status status = it->symlink_status(ignored);
      const auto may_hold = [&](const std::string& one) { return MayMatchBelow(one, path); };
      if (status.type() == fs::file_type::directory) {
        if (std::any_of(plan_.patterns.begin(), plan_.patterns.end(), may_hold)) {
          below.push_back(path);
        }
        continue;
      }
      const auto names = [&](const std::string& one) { return MatchesPattern(one, path); };
      if (!std::any_of(plan_.patterns.begin(), plan_.patterns.end(), names)) continue;
      Add(path, status, it->file_size(ignored));
    }
    for (const std::string& path : below) {
      if (!is_cut_) Look(path);
    }
  }

  void Add(const std::string& path, const fs::file_status& status, uintmax_t size) {
    if (status.type() == fs::file_type::symlink) return LeaveOut(path, "is a symbolic link");
    if (status.type() != fs::file_type::regular) return LeaveOut(path, "is no file");
    if (!IsCheckpointFileName(path)) {
      return LeaveOut(path, "has a name that is hidden, too long or not printable");
    }
    found_.files.push_back({path, static_cast<int64_t>(size)});
  }

  // The first names stay.
  void Limit() {
    std::vector<OutputFile> kept;
    int64_t bytes = 0;
    for (OutputFile& file : found_.files) {
      if (kept.size() >= limits_.files) {
        LeaveOut(file.name, absl::StrCat("is beyond the limit of ", limits_.files, " files"));
      } else if (file.size > limits_.bytes - bytes) {
        LeaveOut(file.name,
                 absl::StrCat("has ", FormatBytes(file.size), ", which is beyond the limit of ",
                              FormatBytes(limits_.bytes), " for all outputs"));
      } else {
        bytes += file.size;
        kept.push_back(std::move(file));
      }
    }
    found_.files = std::move(kept);
  }

  const OutputsPlan& plan_;
  const OutputLimits& limits_;
  FoundOutputs found_;
  std::vector<std::string> told_;
  size_t left_out_ = 0;
  size_t looked_at_ = 0;
  bool is_cut_ = false;
};

}  // namespace

absl::Status WriteOutputsPlan(const RunDir& dir, const OutputsPlan& plan) {
  Json json = Json::object();
  json["folder"] = plan.folder;
  json["patterns"] = plan.patterns;
  return WriteFileAtomically(dir.OutputsPath(), DumpJson(json) + "\n", 0600);
}

absl::StatusOr<OutputsPlan> ReadOutputsPlan(const RunDir& dir) {
  const std::string path = dir.OutputsPath();
  TY_ASSIGN_OR_RETURN(const std::string text, ReadRegularFile(path, kMaxJsonBytes));
  TY_ASSIGN_OR_RETURN(const Json json, ParseJsonObject(text, path));
  OutputsPlan plan;
  std::vector<FieldViolation> violations;
  FieldReader reader(json, "", violations);
  reader.Require("folder");
  reader.String("folder", plan.folder);
  const Json& patterns = reader.Raw("patterns");
  if (!patterns.is_array() || patterns.size() > kPatternsMax) {
    reader.Violate("patterns", absl::StrCat("is no list of at most ", kPatternsMax, " patterns"));
  }
  for (const Json& pattern : patterns) {
    if (pattern.is_string() && pattern.get_ref<const std::string&>().size() <= kToldBytesMax) {
      plan.patterns.push_back(pattern.get<std::string>());
    }
  }
  if (!violations.empty()) {
    return error::CorruptFile(path,
                              absl::StrCat(violations[0].field, ": ", violations[0].description));
  }
  if (!absl::StartsWith(plan.folder, "/")) {
    return error::CorruptFile(path, "folder: is no absolute path");
  }
  return plan;
}

bool MatchesPattern(absl::string_view pattern, absl::string_view path) {
  const Parts parts = PartsOf(pattern);
  return !parts.empty() && StatesAfter(parts, PartsOf(path))[parts.size()];
}

bool MayMatchBelow(absl::string_view pattern, absl::string_view folder) {
  const std::vector<bool> states = StatesAfter(PartsOf(pattern), PartsOf(folder));
  return std::any_of(states.begin(), states.end(), [](bool state) { return state; });
}

FoundOutputs FindOutputs(const OutputsPlan& plan, const OutputLimits& limits) {
  return Walk(plan, limits).Take();
}

}  // namespace trainyard::run_dir

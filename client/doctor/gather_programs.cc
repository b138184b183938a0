// Finds programs, and asks them and systemd.
#include <unistd.h>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "client/doctor/gather.h"
#include "common/base/container_runtime.h"
#include "common/base/files.h"
#include "common/base/flag_style.h"
#include "common/base/program_paths.h"
#include "common/base/status_macros.h"
#include "common/base/strings.h"
#include "common/base/system_accounts.h"
#include "common/yaml/yaml_tree.h"

#include <sys/stat.h>

namespace trainyard::doctor {
namespace {

constexpr size_t kErrorBytesMax = 300;
constexpr int64_t kSettingsBytesMax = int64_t{256} << 10;

// Not all helpers tell their version: those that are started with descriptors do not.
struct KnownProgram {
  const char* name;
  bool tells_version;
};
constexpr KnownProgram kPrograms[] = {{"trainyard-server", true},   {"trainyard-worker", true},
                                      {"trainyard-trainer", true},  {"trainyard-supervisor", false},
                                      {"trainyard-program", false}, {"trainyard-enter", false},
                                      {"trainyard-fetch", true}};

constexpr const char* kUnits[] = {"trainyard-server.service", "trainyard-worker.service",
                                  "trainyard-jobs.service", "trainyard-backup.timer"};

// Returns the first line that says something, as a program prints it when it fails.
std::string FirstLine(absl::string_view text) {
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    const absl::string_view words = absl::StripAsciiWhitespace(line);
    if (!words.empty()) return PlainText(std::string(words), kErrorBytesMax);
  }
  return "";
}

ProgramFacts AskForVersion(ProgramFacts program, const RunProgram& run) {
  const auto result = run({program.path, "--version"});
  if (!result.ok()) {
    program.error = std::string(result.status().message());
  } else if (result->exit_code != 0) {
    program.error = FirstLine(result->err);
    if (program.error.empty()) program.error = absl::StrCat("exit code ", result->exit_code);
  } else {
    // "trainyard-server 0.1.0+1a2b", or the version alone.
    const std::string line = FirstLine(result->out);
    program.version = line.substr(line.rfind(' ') + 1);
  }
  return program;
}

}  // namespace

RunProgram RunWithin(absl::Duration timeout) {
  return [timeout](const std::vector<std::string>& args) {
    return daemons::RunChild(args, "", timeout);
  };
}

ProgramFacts FindTrainyardProgram(const std::string& folder, const std::string& name,
                                  const RunProgram& run) {
  ProgramFacts program{name, "", "", ""};
  const auto path = FindProgram(folder, name);
  if (!path.ok()) return program;
  program.path = *path;
  return AskForVersion(std::move(program), run);
}

std::vector<ProgramFacts> FindTrainyardPrograms(const std::string& folder, const RunProgram& run) {
  std::vector<ProgramFacts> programs;
  for (const KnownProgram& known : kPrograms) {
    if (known.tells_version) {
      programs.push_back(FindTrainyardProgram(folder, known.name, run));
    } else {
      const auto path = FindProgram(folder, known.name);
      programs.push_back({known.name, path.ok() ? *path : "", "", ""});
    }
  }
  return programs;
}

FileFacts LookAtFile(const std::string& path) {
  FileFacts file;
  file.path = path;
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) return file;
  file.exists = true;
  file.can_read = access(path.c_str(), R_OK) == 0;
  file.owner_name = UserName(info.st_uid);
  file.mode = info.st_mode & 0777U;
  return file;
}

SettingsFacts LookAtSettings(const std::string& path, const std::string& program,
                             const RunProgram& run) {
  SettingsFacts settings{LookAtFile(path), program, ""};
  if (program.empty() || !settings.file.can_read) return settings;
  // The flags are read before the help is printed.
  const auto result = run({program, "--config", path, "--help"});
  if (!result.ok()) {
    settings.mistake = std::string(result.status().message());
  } else if (result->exit_code != 0) {
    settings.mistake = FirstLine(result->err);
  }
  return settings;
}

std::string SettingOf(const std::string& path, absl::string_view flag) {
  const auto text = ReadFile(path, kSettingsBytesMax);
  if (!text.ok()) return "";
  const yaml::YamlDocument document = yaml::ParseYaml(*text);
  for (const yaml::YamlEntry& entry : document.root.entries) {
    // Daemons take dashes for underscores.
    const std::string name =
        FlagInStyle(absl::StrCat("--", entry.key), FlagStyle::kUnderscores).substr(2);
    if (name == flag && entry.value.kind == yaml::YamlNode::Kind::kScalar) {
      return entry.value.text;
    }
  }
  return "";
}

absl::StatusOr<std::vector<UnitFacts>> LookAtUnits(const std::string& root, const RunProgram& run) {
  std::vector<UnitFacts> units;
  const std::string systemctl = FindSystemProgram("systemctl", root);
  if (systemctl.empty() || !FileExists(absl::StrCat(root, "/run/systemd/system"))) return units;
  std::vector<std::string> args = {systemctl, "show",
                                   "--property=Id,LoadState,ActiveState,UnitFileState"};
  args.insert(args.end(), std::begin(kUnits), std::end(kUnits));
  TY_ASSIGN_OR_RETURN(const daemons::ChildResult result, run(args));
  if (result.exit_code != 0) return absl::UnavailableError(FirstLine(result.err));
  // Each unit is a block of lines "Id=trainyard-server.service".
  for (const absl::string_view block : absl::StrSplit(result.out, "\n\n", absl::SkipWhitespace())) {
    UnitFacts unit;
    for (absl::string_view line : absl::StrSplit(block, '\n')) {
      if (absl::ConsumePrefix(&line, "Id=")) unit.name = std::string(line);
      if (absl::ConsumePrefix(&line, "LoadState=")) unit.load = std::string(line);
      if (absl::ConsumePrefix(&line, "ActiveState=")) unit.active = std::string(line);
      if (absl::ConsumePrefix(&line, "UnitFileState=")) unit.file = std::string(line);
    }
    units.push_back(std::move(unit));
  }
  return units;
}

}  // namespace trainyard::doctor

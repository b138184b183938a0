// Judges what is installed: programs, their flags, their units, and who can read and write their
// files.
#include <algorithm>
#include <map>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/doctor/judge.h"

namespace trainyard::doctor {
namespace {

constexpr uint32_t kOthersWrite = 0022;
constexpr uint32_t kOthersSee = 0077;

std::string ModeText(uint32_t mode) {
  return absl::StrFormat("%04o", mode);
}

// The programs that a worker starts by itself.
const std::set<std::string>& HelpersOfWorkers() {
  static const auto* helpers = new std::set<std::string>{
      "trainyard-supervisor", "trainyard-trainer", "trainyard-program", "trainyard-enter"};
  return *helpers;
}

Finding JudgeDaemon(const ProgramFacts& daemon, const char* without) {
  if (daemon.path.empty()) {
    return Ok(daemon.name, absl::StrCat(daemon.name, " is not installed: ", without));
  }
  if (!daemon.error.empty()) {
    return Problem(daemon.name, absl::StrCat(daemon.path, " does not start: ", daemon.error),
                   "Install what it lacks, or its package again.");
  }
  return Ok(daemon.name, absl::StrCat(daemon.path, " has the version ", daemon.version, "."));
}

Findings JudgeHelpers(const std::vector<ProgramFacts>& programs) {
  std::vector<std::string> missing;
  Findings findings;
  for (const ProgramFacts& program : programs) {
    if (HelpersOfWorkers().count(program.name) == 0) continue;
    if (program.path.empty()) missing.push_back(program.name);
    if (!program.error.empty()) {
      findings.push_back(Problem(program.name,
                                 absl::StrCat(program.path, " does not start: ", program.error),
                                 "Install what it lacks, or the package trainyard-worker again."));
    }
  }
  if (!missing.empty()) {
    findings.push_back(Problem(
        "helpers of the worker",
        absl::StrCat("The worker cannot run jobs without ", absl::StrJoin(missing, ", "), "."),
        "Install the package trainyard-worker again; helpers lie beside the "
        "worker or in ../libexec/trainyard from there."));
  } else if (findings.empty()) {
    findings.push_back(Ok("helpers of the worker", "All programs that a worker starts are there."));
  }
  return findings;
}

const ProgramFacts* Find(const std::vector<ProgramFacts>& programs, const std::string& name) {
  const auto found = std::find_if(programs.begin(), programs.end(),
                                  [&](const ProgramFacts& each) { return each.name == name; });
  return found == programs.end() ? nullptr : &*found;
}

}  // namespace

Findings JudgePrograms(const std::vector<ProgramFacts>& programs, const std::string& version) {
  Findings findings = {Ok("trainyard", absl::StrCat("This client has the version ", version, "."))};
  if (const ProgramFacts* server = Find(programs, "trainyard-server")) {
    findings.push_back(JudgeDaemon(*server, "commands go to a server of another host."));
  }
  if (const ProgramFacts* worker = Find(programs, "trainyard-worker")) {
    findings.push_back(JudgeDaemon(*worker, "no jobs run on this host."));
    if (!worker->path.empty()) Append(findings, JudgeHelpers(programs));
  }
  std::map<std::string, std::vector<std::string>> others;
  for (const ProgramFacts& program : programs) {
    if (program.version.empty() || program.version == version) continue;
    others[program.version].push_back(program.name);
  }
  for (const auto& [other, names] : others) {
    findings.push_back(
        Problem("versions",
                absl::StrCat(absl::StrJoin(names, ", "), names.size() == 1 ? " has" : " have",
                             " the version ", other, ", and this client ", version, "."),
                "Install all packages of Trainyard from the same build, and "
                "restart the daemons."));
  }
  return findings;
}

Finding JudgeStateFolder(const FileFacts& folder, const std::string& owner) {
  const std::string check = absl::StrCat("folder ", folder.path);
  if (!folder.exists) {
    return Ok(check, absl::StrCat(folder.path, " is not there yet; it is made when it is needed."));
  }
  if (folder.owner_name != owner) {
    return Problem(check,
                   absl::StrCat(folder.path, " belongs to ", folder.owner_name, ", and should to ",
                                owner, "."),
                   absl::StrCat("Stop what uses it, and run `chown -R ", owner, " ", folder.path,
                                "` as root."));
  }
  if ((folder.mode & kOthersWrite) != 0) {
    return Problem(check,
                   absl::StrCat("Others than ", owner, " may write into ", folder.path, " (mode ",
                                ModeText(folder.mode), "), so no daemon starts there."),
                   absl::StrCat("Run `chmod go-w ", folder.path, "`."));
  }
  return Ok(check, absl::StrCat("Only ", owner, " can change ", folder.path, " (mode ",
                                ModeText(folder.mode), ")."));
}

Finding JudgeSecretFile(const FileFacts& file, const std::string& owner) {
  const std::string check = absl::StrCat("file ", file.path);
  if (file.owner_name != owner) {
    return Problem(check, absl::StrCat(file.path, " belongs to ", file.owner_name, "."),
                   absl::StrCat("Give it to ", owner, ", who alone should read it."));
  }
  if ((file.mode & kOthersSee) != 0) {
    return Problem(check,
                   absl::StrCat("Others can open ", file.path, " (mode ", ModeText(file.mode),
                                "), which is a secret."),
                   absl::StrCat("Run `chmod 600 ", file.path,
                                "`, and make it anew, since somebody may have read it."));
  }
  return Ok(check, absl::StrCat("Only ", owner, " can read ", file.path, "."));
}

Finding JudgeGroup(const std::string& flag, const std::string& group, bool exists) {
  const std::string check = absl::StrCat("group ", group);
  if (exists) return Ok(check, absl::StrCat("The group ", group, " (", flag, ") exists."));
  return Problem(
      check, absl::StrCat("There is no group ", group, ", which the server's ", flag, " names."),
      absl::StrCat("Run `groupadd --system ", group, "` as root."));
}

Finding JudgeSocket(const SocketFacts& socket) {
  const std::string check = absl::StrCat("socket ", socket.file.path);
  if (socket.error.empty()) {
    return Ok(check, absl::StrCat("At ", socket.file.path, " listens ", socket.what, "."));
  }
  if (socket.is_forbidden) {
    return Warning(check,
                   absl::StrCat("You may not connect to ", socket.file.path, ", which belongs to ",
                                socket.file.owner_name, "."),
                   "Let its owner start it with --shared, or start your own with `trainyard up`.");
  }
  return Warning(
      check, absl::StrCat(socket.file.path, " is there, but nobody listens: ", socket.error),
      "The server was killed. Start it again, which replaces the socket: `trainyard up`, "
      "or `systemctl restart trainyard-server`.");
}

Finding JudgeUp(const std::string& state_dir, bool server_runs, bool worker_runs) {
  const std::string check = "trainyard up";
  if (server_runs && worker_runs) {
    return Ok(check, absl::StrCat("The server and the worker of ", state_dir, " run."));
  }
  if (!server_runs && !worker_runs) {
    return Ok(check, absl::StrCat("`trainyard up` does not run on ", state_dir, "."));
  }
  return Warning(check,
                 absl::StrCat("On ", state_dir, ", the ", server_runs ? "server" : "worker",
                              " runs, but not the ", server_runs ? "worker." : "server."),
                 absl::StrCat("`trainyard up --detach` starts what is missing; ", state_dir, "/",
                              server_runs ? "worker" : "server", ".log says why it ended."));
}

Findings JudgeSettings(const SettingsFacts& settings) {
  const FileFacts& file = settings.file;
  const std::string check = absl::StrCat("file ", file.path);
  if (!file.can_read) {
    return {Warning(check,
                    absl::StrCat("You cannot read ", file.path, ", so it was not looked at."),
                    "Run `trainyard doctor` as root to have it checked.")};
  }
  Findings findings;
  if (file.owner_name != "root" || (file.mode & kOthersWrite) != 0) {
    findings.push_back(Problem(
        check,
        absl::StrCat("Others than root can change ", file.path, " (it belongs to ", file.owner_name,
                     ", mode ", ModeText(file.mode), ")."),
        absl::StrCat("Run `chown root ", file.path, " && chmod go-w ", file.path, "` as root.")));
  }
  if (settings.program.empty()) {
    findings.push_back(
        Warning(check, absl::StrCat(file.path, " is there, but the program that reads it is not."),
                "Install its package, or remove the file."));
  } else if (!settings.mistake.empty()) {
    findings.push_back(Problem(
        check,
        absl::StrCat(settings.program, " does not start with ", file.path, ": ", settings.mistake),
        absl::StrCat("Correct the file; `", settings.program,
                     " --help` lists what may stand there.")));
  } else if (findings.empty()) {
    findings.push_back(Ok(check, absl::StrCat(settings.program, " understands ", file.path, ".")));
  }
  return findings;
}

Findings JudgeUnits(const std::vector<UnitFacts>& units) {
  Findings findings;
  for (const UnitFacts& unit : units) {
    if (unit.load != "loaded") continue;
    const std::string check = absl::StrCat("unit ", unit.name);
    const bool is_timer = absl::EndsWith(unit.name, ".timer");
    if (unit.active == "failed") {
      findings.push_back(
          Problem(check, absl::StrCat(unit.name, " has failed."),
                  absl::StrCat("`journalctl -u ", unit.name,
                               " -n 50` says why; then `systemctl restart ", unit.name, "`.")));
    } else if (unit.active != "active" && is_timer) {
      findings.push_back(Warning(check,
                                 absl::StrCat(unit.name, " is off, so nothing is backed up by it."),
                                 absl::StrCat("Choose its folder with `systemctl edit "
                                              "trainyard-backup`, and run `systemctl enable --now ",
                                              unit.name, "`.")));
    } else if (unit.active != "active") {
      findings.push_back(Warning(check, absl::StrCat(unit.name, " is ", unit.active, "."),
                                 absl::StrCat("Start it with `systemctl start ", unit.name, "`.")));
    } else if (unit.file == "disabled") {
      findings.push_back(Warning(
          check, absl::StrCat(unit.name, " runs, but does not start when the machine does."),
          absl::StrCat("Run `systemctl enable ", unit.name, "`.")));
    } else {
      findings.push_back(Ok(check, absl::StrCat(unit.name, " is active.")));
    }
  }
  return findings;
}

}  // namespace trainyard::doctor

// Finds out where the daemons of this machine keep their files, and what to look at.
#include "client/commands/doctor_sections.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "client/commands/machine.h"
#include "client/commands/server_choice.h"
#include "client/commands/up_settings.h"
#include "client/config/config_file.h"
#include "client/daemons/pid_file.h"
#include "client/doctor/gather.h"
#include "client/link/unix_socket.h"
#include "common/base/files.h"
#include "common/base/program_paths.h"
#include "common/base/system_accounts.h"
#include "common/base/version.h"

namespace trainyard::commands {
namespace {

using doctor::Findings;

// The root of this machine's files.
constexpr char kHere[] = "";
constexpr absl::Duration kProgramTimeout = absl::Seconds(5);
// A listing opens every archive.
constexpr absl::Duration kDatasetTimeout = absl::Seconds(10);
constexpr absl::Duration kWriteFor = absl::Seconds(2);
constexpr absl::Duration kCallTimeout = absl::Seconds(5);
constexpr char kNvml[] = "libnvidia-ml.so.1";

struct StateFolder {
  std::string path;
  std::string owner;
};

// The places of what belongs to Trainyard on this machine.
struct Places {
  std::string binary_dir;
  Machine up;
  std::string user;
  std::string config_home;
  std::string server_settings;
  std::string worker_settings;
  std::vector<link::Candidate> sockets;
  std::vector<StateFolder> folders;
};

std::string Or(std::string text, const char* otherwise) {
  return text.empty() ? otherwise : std::move(text);
}

Places FindPlaces(const Context& context, const std::string& state_dir) {
  const Surroundings& around = context.surroundings;
  Places places;
  places.binary_dir = around.binary_dir;
  places.up = MachineOf(context, state_dir);
  places.user = UserName(geteuid());
  places.config_home = ConfigHome(around);
  places.server_settings = around.server_settings;
  places.worker_settings =
      (std::filesystem::path(around.server_settings).parent_path() / "worker.yaml").string();
  places.sockets = LocalServers(around);
  if (!state_dir.empty()) {
    places.sockets.front() = {"the server of `trainyard up --state-dir`", places.up.address};
  }
  const bool has_server = FileExists(places.server_settings);
  const bool has_worker = FileExists(places.worker_settings);
  if (has_server) {
    places.folders.push_back(
        {Or(doctor::SettingOf(places.server_settings, "state_dir"), "/var/lib/trainyard/server"),
         "trainyard"});
  }
  if (has_worker) {
    places.folders.push_back(
        {Or(doctor::SettingOf(places.worker_settings, "state_dir"), "/var/lib/trainyard/worker"),
         "root"});
  }
  if (FileExists(places.up.state_dir) || places.folders.empty()) {
    places.folders.push_back({places.up.state_dir, places.user});
  }
  return places;
}

Findings LookAtPrograms(const Places& places) {
  return doctor::JudgePrograms(
      doctor::FindTrainyardPrograms(places.binary_dir, doctor::RunWithin(kProgramTimeout)),
      Version());
}

Findings LookAtSocket(const link::Candidate& candidate) {
  doctor::SocketFacts socket;
  socket.what = candidate.what;
  socket.file = doctor::LookAtFile(std::string(absl::StripPrefix(candidate.address, "unix:")));
  if (!socket.file.exists) return {};
  const absl::Status status = link::ConnectUnixSocket(candidate.address).status();
  socket.error = std::string(status.message());
  socket.is_forbidden = absl::IsPermissionDenied(status);
  return {doctor::JudgeSocket(socket)};
}

Findings LookAtSettingsOf(const std::string& path, const std::string& program,
                          const Places& places) {
  if (!FileExists(path)) return {};
  const auto found = FindProgram(places.binary_dir, program);
  return doctor::JudgeSettings(
      doctor::LookAtSettings(path, found.ok() ? *found : "", doctor::RunWithin(kProgramTimeout)));
}

Findings LookAtSecrets(const Places& places) {
  Findings findings;
  const std::string servers = JoinPath(JoinPath(places.config_home, "trainyard"), "servers");
  std::vector<std::pair<std::string, std::string>> secrets;
  for (const std::string& name : ListDirectory(servers).value_or(std::vector<std::string>())) {
    secrets.emplace_back(JoinPath(JoinPath(servers, name), "token"), places.user);
  }
  if (const std::string token = doctor::SettingOf(places.worker_settings, "join_token_file");
      !token.empty()) {
    secrets.emplace_back(token, "root");
  }
  for (const auto& [path, owner] : secrets) {
    const doctor::FileFacts file = doctor::LookAtFile(path);
    if (file.exists) findings.push_back(doctor::JudgeSecretFile(file, owner));
  }
  return findings;
}

Findings LookAtFiles(const Places& places) {
  Findings findings;
  for (const StateFolder& folder : places.folders) {
    findings.push_back(doctor::JudgeStateFolder(doctor::LookAtFile(folder.path), folder.owner));
  }
  // The daemons of `up` check their own folders, of which there is a word only if they refuse them.
  for (const std::string& path : {places.up.server_state_dir, places.up.worker_state_dir}) {
    const doctor::Finding finding = doctor::JudgeStateFolder(doctor::LookAtFile(path), places.user);
    if (finding.level != doctor::Level::kOk) findings.push_back(finding);
  }
  for (const link::Candidate& candidate : places.sockets) {
    Append(findings, LookAtSocket(candidate));
  }
  Append(findings, LookAtSecrets(places));
  Append(findings, LookAtSettingsOf(places.server_settings, "trainyard-server", places));
  Append(findings, LookAtSettingsOf(places.worker_settings, "trainyard-worker", places));
  for (const char* flag : {"admin_group", "operator_group"}) {
    const std::string group = doctor::SettingOf(places.server_settings, flag);
    if (!group.empty()) {
      findings.push_back(doctor::JudgeGroup(flag, group, FindGroup(group).ok()));
    }
  }
  return findings;
}

Findings LookAtServices(const Places& places) {
  Findings findings;
  if (FileExists(places.up.state_dir)) {
    findings.push_back(doctor::JudgeUp(
        places.up.state_dir, daemons::RunningProcess(places.up.server_pid_file).has_value(),
        daemons::RunningProcess(places.up.worker_pid_file).has_value()));
  }
  const auto units = doctor::LookAtUnits(kHere, doctor::RunWithin(kProgramTimeout));
  if (!units.ok()) {
    findings.push_back(doctor::Warning(
        "systemd", absl::StrCat("systemctl tells nothing: ", units.status().message()),
        "Look with `systemctl status trainyard-server trainyard-worker`."));
    return findings;
  }
  Append(findings, doctor::JudgeUnits(*units));
  if (findings.empty()) {
    findings.push_back(
        doctor::Ok("services", "No daemons of Trainyard are installed as services here."));
  }
  return findings;
}

Findings LookAtSystem(const Places& places, absl::Time now) {
  const bool runs_as_owners = doctor::SettingOf(places.worker_settings, "run_as") == "owner";
  Findings findings = {doctor::JudgeCgroup(doctor::LookAtCgroups(kHere)),
                       doctor::JudgeSandbox(doctor::LookAtSandboxes(
                           kHere, runs_as_owners, doctor::RunWithin(kProgramTimeout)))};
  Append(findings, doctor::JudgeLimits(doctor::LookAtLimits(kHere)));
  findings.push_back(doctor::JudgeMemory(doctor::LookAtMemory(kHere)));
  findings.push_back(doctor::JudgeClock(doctor::LookAtClock(now)));
  return findings;
}

Findings LookAtGpus(const Places& places) {
  const doctor::RunProgram run = doctor::RunWithin(kProgramTimeout);
  doctor::GpuFacts gpus = doctor::LookAtGpus(kHere, run);
  if (!gpus.driver.empty()) {
    gpus.nvml_error =
        doctor::WhyNotLoaded(Or(doctor::SettingOf(places.worker_settings, "nvml"), kNvml));
    gpus.trainer = doctor::FindTrainyardProgram(places.binary_dir, "trainyard-trainer-cuda", run);
  }
  return doctor::JudgeGpus(gpus);
}

// Folders on one disk are measured once.
Findings LookAtDisks(const Places& places) {
  Findings findings;
  std::vector<std::pair<int64_t, int64_t>> known;
  for (const StateFolder& folder : places.folders) {
    const doctor::DiskFacts before = doctor::LookAtDisk(folder.path, absl::ZeroDuration());
    findings.push_back(doctor::JudgeFileSystem(before));
    const std::pair<int64_t, int64_t> disk = {static_cast<int64_t>(before.file_system),
                                              before.size_bytes};
    if (std::find(known.begin(), known.end(), disk) != known.end()) continue;
    known.push_back(disk);
    findings.push_back(doctor::JudgeSpace(before));
    Append(findings, doctor::JudgeSpeed(doctor::LookAtDisk(folder.path, kWriteFor)));
  }
  return findings;
}

Findings LookAtData(const Places& places) {
  std::string folder = doctor::SettingOf(places.worker_settings, "dataset_dir");
  std::string named_by = places.worker_settings;
  const bool is_for_all =
      !folder.empty() && doctor::SettingOf(places.worker_settings, "run_as") == "owner";
  if (folder.empty()) {
    const auto settings = ReadUpSettings(places.up.settings_file);
    if (settings.ok() && settings->count("--dataset-dir") > 0) {
      folder = settings->at("--dataset-dir");
      named_by = "`trainyard up`";
    }
  }
  const auto trainer = FindProgram(places.binary_dir, "trainyard-trainer");
  return doctor::JudgeDatasets(doctor::LookAtDatasets(folder, named_by, is_for_all,
                                                      trainer.ok() ? *trainer : "",
                                                      doctor::RunWithin(kDatasetTimeout)));
}

}  // namespace

std::vector<DoctorSection> DoctorSections(const Context& context, const std::string& state_dir) {
  const Places places = FindPlaces(context, state_dir);
  const std::string address = doctor::SettingOf(places.worker_settings, "address");
  return {{"programs", [places] { return LookAtPrograms(places); }},
          {"files", [places] { return LookAtFiles(places); }},
          {"services", [places] { return LookAtServices(places); }},
          {"system", [places, now = context.clock.Now()] { return LookAtSystem(places, now); }},
          {"GPUs", [places] { return LookAtGpus(places); }},
          {"network", [address] { return JudgeNetwork(doctor::LookAtNetwork(address)); }},
          {"disks", [places] { return LookAtDisks(places); }},
          {"data sets", [places] { return LookAtData(places); }}};
}

doctor::ServerFacts AskServer(const Context& context) {
  doctor::ServerFacts server;
  const auto choice = ChooseServer(context);
  if (!choice.ok()) {
    server.error = choice.status();
    return server;
  }
  server.address = choice->address;
  server.reason = choice->reason;
  server.is_named = !absl::StartsWith(choice->reason, "it is ");
  server.is_of_this_host = absl::StartsWith(choice->address, "unix:");
  const auto link = Connect(context);
  if (!link.ok()) {
    server.error = link.status();
    return server;
  }
  const auto who =
      (*link)->Call(&v1::AccessService::Stub::WhoAmI, v1::WhoAmIRequest(), kCallTimeout);
  if (who.ok()) {
    server.who = *who;
  } else {
    server.who_error = std::string(who.status().message());
  }
  const auto workers =
      (*link)->Call(&v1::FleetService::Stub::ListWorkers, v1::ListWorkersRequest(), kCallTimeout);
  server.now = context.clock.Now();
  if (workers.ok()) {
    server.workers.assign(workers->workers().begin(), workers->workers().end());
  } else {
    server.workers_error = std::string(workers.status().message());
  }
  return server;
}

}  // namespace trainyard::commands

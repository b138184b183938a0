// Judges the server that commands go to, and its workers.
#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "client/doctor/judge.h"
#include "client/output/roles.h"
#include "client/output/text.h"
#include "common/base/duration.h"

namespace trainyard::doctor {
namespace {

// Workers report every few seconds, so a difference below this is none.
constexpr absl::Duration kClockMayDiffer = absl::Seconds(30);
constexpr absl::Duration kClockMustNotDiffer = absl::Hours(1);

std::string NameOf(const v1::Worker& worker) {
  return std::string(absl::StripPrefix(worker.name(), "workers/"));
}

// Returns how much the clock of the server is ahead of ours at least, or behind. An ACTIVE worker
// has been heard a few seconds ago by the server's clock. Nothing else tells that clock.
std::optional<absl::Duration> AheadOf(const ServerFacts& server) {
  std::optional<absl::Duration> ahead;
  for (const v1::Worker& worker : server.workers) {
    if (worker.state() != v1::WORKER_STATE_ACTIVE || !worker.has_last_seen_time()) continue;
    const absl::Duration here = output::ToTime(worker.last_seen_time()) - server.now;
    ahead = std::max(ahead.value_or(here), here);
  }
  return ahead;
}

Finding JudgeServerClock(const ServerFacts& server) {
  const std::string check = "clock of the server";
  if (server.is_of_this_host) return Ok(check, "The server has the clock of this host.");
  const std::optional<absl::Duration> ahead = AheadOf(server);
  if (!ahead.has_value()) {
    return Ok(check, "No worker is in contact, by which the clock of the server could be told.");
  }
  const absl::Duration difference = absl::AbsDuration(*ahead);
  if (difference <= kClockMayDiffer) return Ok(check, "The clock of the server agrees with ours.");
  const std::string message =
      absl::StrCat("The clock of the server is ", DurationText(difference),
                   *ahead > absl::ZeroDuration() ? " ahead of ours." : " behind ours.");
  const char* advice = "Let systemd-timesyncd or chrony set both clocks.";
  return difference <= kClockMustNotDiffer ? Warning(check, message, advice)
                                           : Problem(check, message, advice);
}

Finding JudgeServerVersion(const ServerFacts& server, const std::string& version) {
  const std::string& its = server.who.server_version();
  if (its == version || its.empty()) {
    return Ok("version of the server",
              absl::StrCat("The server has the version ", its.empty() ? "of an older release" : its,
                           "."));
  }
  return Warning(
      "version of the server",
      absl::StrCat("The server has the version ", its, ", and this client ", version, "."),
      "Install the same version on both; upgrade the server first.");
}

Finding JudgeRole(const ServerFacts& server) {
  if (!server.who_error.empty()) {
    return Warning("your role",
                   absl::StrCat("The server does not say who you are: ", server.who_error),
                   "Upgrade the server if it is older than this client.");
  }
  const v1::Role role = server.who.role();
  if (role == v1::ROLE_VIEWER || role == v1::ROLE_SUBMITTER || role == v1::ROLE_OPERATOR ||
      role == v1::ROLE_ADMIN) {
    return Ok("your role", absl::StrCat("To the server, you are ", server.who.user(), ", ",
                                        output::RoleText(role), "."));
  }
  return Problem(
      "your role",
      absl::StrCat("To the server, you are ", server.who.user(), ", who may do nothing."),
      "Ask whoever runs it for a role: `trainyard users set NAME --role submitter`.");
}

Findings JudgeDevices(const v1::Worker& worker) {
  Findings findings;
  for (const v1::Device& device : worker.devices()) {
    const bool is_fine = device.health() == v1::DEVICE_HEALTH_OK && device.quarantine().empty();
    if (is_fine) continue;
    const std::string name = absl::StrCat(NameOf(worker), "/", device.name());
    const std::string& why =
        device.quarantine().empty() ? device.health_reason() : device.quarantine();
    const bool is_used = device.health() == v1::DEVICE_HEALTH_UNMANAGED_USE;
    findings.push_back(
        Warning(absl::StrCat("device ", name),
                absl::StrCat(name, is_used ? " is used by others: " : " is set aside: ",
                             why.empty() ? "nobody said why" : why),
                is_used ? std::string("It is offered again when that process has ended.")
                        : absl::StrCat("docs/operations.md#gpus says what to do; `trainyard "
                                       "devices release ",
                                       name, "` takes it back once you trust it.")));
  }
  return findings;
}

Findings JudgeWorker(const v1::Worker& worker, const std::string& server_version) {
  const std::string name = NameOf(worker);
  const std::string check = absl::StrCat("worker ", name);
  if (worker.state() != v1::WORKER_STATE_ACTIVE) {
    return {Problem(
        check,
        absl::StrCat("The worker ", name, " is out of contact (", output::StateText(worker.state()),
                     ")."),
        absl::StrCat("Start it again on its host. If that is off, `trainyard workers lost ", name,
                     "` lets its jobs go on elsewhere; if it is gone for good, "
                     "`trainyard workers rm ",
                     name, "`."))};
  }
  Findings findings;
  if (worker.scheduling() != v1::WORKER_SCHEDULING_ELIGIBLE) {
    findings.push_back(
        Warning(check, absl::StrCat("The worker ", name, " gets no new ranks."),
                absl::StrCat("`trainyard workers uncordon ", name, "` puts it back to work.")));
  }
  if (!worker.version().empty() && worker.version() != server_version && !server_version.empty()) {
    findings.push_back(
        Warning(check,
                absl::StrCat("The worker ", name, " has the version ", worker.version(),
                             ", and the server ", server_version, "."),
                "Install the server's version there; jobs go on meanwhile."));
  }
  for (const v1::DatasetSplit& split : worker.datasets().splits()) {
    if (split.error().empty()) continue;
    findings.push_back(
        Warning(check,
                absl::StrCat("The worker ", name, " cannot use the data set ", split.dataset(),
                             split.path().empty() ? "" : absl::StrCat(":", split.path()), ": ",
                             split.error()),
                "Run `trainyard data verify --dataset-dir FOLDER` on its host."));
  }
  Append(findings, JudgeDevices(worker));
  if (findings.empty()) {
    findings.push_back(
        Ok(check, absl::StrCat("The worker ", name, " is active, with ", worker.devices_size(),
                               worker.devices_size() == 1 ? " device." : " devices.")));
  }
  return findings;
}

Findings JudgeFleet(const ServerFacts& server) {
  if (!server.workers_error.empty()) {
    return {Problem("workers", absl::StrCat("Workers cannot be listed: ", server.workers_error),
                    "`trainyard whoami` says what you may do.")};
  }
  if (server.workers.empty()) {
    return {Warning("workers", "The server has no workers, so no job runs.",
                    "Start one: `systemctl start trainyard-worker`, or `trainyard workers invite` "
                    "for another host.")};
  }
  Findings findings;
  for (const v1::Worker& worker : server.workers) {
    Append(findings, JudgeWorker(worker, server.who.server_version()));
  }
  return findings;
}

}  // namespace

Findings JudgeServer(const ServerFacts& server, const std::string& version) {
  if (!server.error.ok()) {
    if (server.is_named || !absl::IsUnavailable(server.error)) {
      return {Problem("server",
                      absl::StrCat(server.address.empty() ? "" : server.address,
                                   server.address.empty() ? "" : ": ", server.error.message()),
                      "`trainyard contexts show` says which server commands go to, and why.")};
    }
    return {Warning("server", "No server runs here, and none is named.",
                    "Start one with `trainyard up`, or name one: `trainyard contexts add NAME "
                    "ssh://HOST --use`.")};
  }
  Findings findings = {Ok("server", absl::StrCat("The server at ", server.address, " answers (",
                                                 server.reason, ").")),
                       JudgeRole(server)};
  if (server.who_error.empty()) findings.push_back(JudgeServerVersion(server, version));
  findings.push_back(JudgeServerClock(server));
  Append(findings, JudgeFleet(server));
  return findings;
}

}  // namespace trainyard::doctor

// down stops what `up` has started.
#include <unistd.h>

#include <ostream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/commands/machine.h"
#include "client/commands/user_service.h"
#include "client/commands/verbs.h"
#include "client/daemons/pid_file.h"
#include "client/output/text.h"
#include "common/base/errors.h"
#include "common/base/status_macros.h"

namespace trainyard::commands {
namespace {

struct DownOptions {
  std::string state_dir;
  bool cancel = false;
  bool force = false;
};

constexpr absl::Duration kSayInterval = absl::Seconds(5);
constexpr absl::Duration kDownGrace = absl::Seconds(10);
// A trainer that must stop finishes its step, writes a checkpoint, and has a grace period for that.
constexpr absl::Duration kCancelTimeout = absl::Seconds(90);

absl::StatusOr<std::vector<v1::Job>> LiveJobs(link::ServerLink& link,
                                              const std::vector<v1::JobState>& states) {
  v1::ListJobsRequest request;
  request.set_page_size(1000);
  for (const v1::JobState state : states) request.add_states(state);
  std::vector<v1::Job> jobs;
  while (true) {
    TY_ASSIGN_OR_RETURN(v1::ListJobsResponse page,
                        link.Call(&v1::JobService::Stub::ListJobs, request));
    jobs.insert(jobs.end(), page.jobs().begin(), page.jobs().end());
    if (page.next_page_token().empty()) return jobs;
    request.set_page_token(page.next_page_token());
  }
}

std::string Names(const std::vector<v1::Job>& jobs) {
  return absl::StrJoin(jobs, ", ",
                       [](std::string* out, const v1::Job& job) { *out += job.name(); });
}

// Cancels all jobs that wait or run, and waits until none of them runs any more.
absl::Status CancelAll(const Context& context, link::ServerLink& link) {
  const std::vector<v1::JobState> live = {v1::JOB_STATE_QUEUED, v1::JOB_STATE_STARTING,
                                          v1::JOB_STATE_RUNNING, v1::JOB_STATE_STOPPING};
  const absl::Duration start = context.clock.Uptime();
  absl::Duration last_said = start;
  bool is_first = true;
  while (true) {
    TY_ASSIGN_OR_RETURN(const std::vector<v1::Job> jobs, LiveJobs(link, live));
    if (jobs.empty()) return absl::OkStatus();
    if (is_first) context.Say(absl::StrCat("cancelling ", Names(jobs)));
    if (context.clock.Uptime() - last_said > kSayInterval) {
      last_said = context.clock.Uptime();
      context.Say(absl::StrCat("waiting for ", Names(jobs), " to end; Ctrl-C stops waiting"));
    }
    is_first = false;
    for (const v1::Job& job : jobs) {
      if (job.state() == v1::JOB_STATE_STOPPING) continue;
      v1::CancelJobRequest request;
      request.set_name(job.name());
      request.set_reason("trainyard down --cancel");
      const auto answer = link.Call(&v1::JobService::Stub::CancelJob, request);
      // A job that has ended in the meantime needs no cancelling.
      if (!answer.ok() && answer.status().code() != absl::StatusCode::kFailedPrecondition) {
        return answer.status();
      }
    }
    if (context.clock.Uptime() - start > kCancelTimeout) {
      return absl::DeadlineExceededError(
          absl::StrCat(Names(jobs), " did not end within ", kCancelTimeout / absl::Seconds(1),
                       " s; `trainyard down --force` stops the daemons anyway"));
    }
    if (context.interrupt.WaitFor(absl::Milliseconds(200))) {
      return absl::CancelledError("interrupted");
    }
  }
}

// Cancels all jobs if --cancel was given; otherwise returns an error if any job runs. `address` is
// the address of the server.
absl::Status SettleJobs(const Context& context, const DownOptions& options,
                        const std::string& address) {
  if (options.force && !options.cancel) return absl::OkStatus();
  const auto link = link::ServerLink::Connect(address, context.interrupt, absl::Seconds(5));
  if (!link.ok()) {
    return Annotate(link.status(),
                    "the server runs but does not answer, so it is unknown whether jobs run; "
                    "`trainyard down --force` stops it anyway");
  }
  if (options.cancel) return CancelAll(context, **link);
  TY_ASSIGN_OR_RETURN(
      const std::vector<v1::Job> running,
      LiveJobs(**link, {v1::JOB_STATE_STARTING, v1::JOB_STATE_RUNNING, v1::JOB_STATE_STOPPING}));
  if (running.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(Names(running), running.size() == 1 ? " runs" : " run",
                   "\n  trainyard down --cancel    cancels the jobs first"
                   "\n  trainyard down --force     stops the daemons; the ranks keep running until "
                   "on_disconnect.keep "
                   "is over, and `trainyard up` takes them over again"));
}

Result Down(const Context& context, const DownOptions& options) {
  const Machine machine = MachineOf(context, options.state_dir);
  const auto server = daemons::RunningProcess(machine.server_pid_file);
  const auto worker = daemons::RunningProcess(machine.worker_pid_file);
  const UserService service(context);
  const bool is_service = service.IsOf(machine);
  if (!server.has_value() && !worker.has_value() && !is_service) {
    context.Say(absl::StrCat("nothing of `trainyard up` runs with state in ", machine.state_dir));
    return link::kOk;
  }
  // No job is cancelled for daemons that cannot be stopped.
  if (is_service) TY_RETURN_IF_ERROR(service.Check(machine));
  if (server.has_value()) TY_RETURN_IF_ERROR(SettleJobs(context, options, server->note));
  // systemd would start them again.
  if (is_service) {
    TY_RETURN_IF_ERROR(service.Remove());
    context.Say("the service is removed");
  }
  // The worker is stopped first, while the server can still take its last report.
  if (worker.has_value()) {
    TY_RETURN_IF_ERROR(daemons::StopProcess(*worker, kDownGrace, context.clock));
    unlink(machine.worker_pid_file.c_str());
  }
  if (server.has_value()) {
    TY_RETURN_IF_ERROR(daemons::StopProcess(*server, kDownGrace, context.clock));
    unlink(machine.server_pid_file.c_str());
  }
  context.Say(absl::StrCat("down; the state stays in ", machine.state_dir));
  return link::kOk;
}

}  // namespace

void AddDown(VerbTable& verbs) {
  verbs.Add<DownOptions>(
      "down", "Stop what `trainyard up` started", "--cancel",
      [](client::Flags& flags, DownOptions& options) {
        flags.Value("--state-dir", options.state_dir,
                    "Folder for all state (~/.local/state/trainyard)");
        flags.Switch("--cancel", options.cancel, "Cancel the jobs first and wait for their end");
        flags.Switch(
            "--force", options.force,
            "Stop even while jobs run; their ranks keep running until on_disconnect.keep is over");
      },
      Down);
}

}  // namespace trainyard::commands

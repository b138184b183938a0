// Users submit and change their minds; operators set hosts and devices aside; all of them repeat
// calls.
#include "tests/sim/users.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace trainyard::sim {
namespace {

constexpr Time kCallTimeout = 10 * kSecond;
constexpr size_t kJobsMax = 60;  // of a seed: a pool's day is long

const char* const kUsers[] = {"anna", "ben", "chen"};
const char* const kProjects[] = {"", "vision", "speech"};

}  // namespace

Users::Users(World& world, const Options& options, Transport& transport, Server& server,
             Trainers& trainers, std::vector<std::unique_ptr<Host>>& hosts)
    : world_(world),
      options_(options),
      transport_(transport),
      server_(server),
      trainers_(trainers),
      hosts_(hosts),
      resources_random_(options.seed * 37 + 5),
      one_host_random_(options.seed * 41 + 7) {}

void Users::Begin() {
  if (options_.long_job > 0) {
    world_.After(kMinute, [this] { SubmitLongJob(); });
    return;
  }
  world_.After(world_.random().Around(options_.submit_every), [this] { Submit(); });
  world_.After(world_.random().Around(options_.verb_every), [this] { Verb(); });
  if (options_.operator_every > 0) {
    world_.After(world_.random().Around(options_.operator_every), [this] { Operate(); });
  }
  if (options_.delete_every > 0) {
    world_.After(world_.random().Around(options_.delete_every), [this] { Delete(); });
  }
  if (options_.quotas) SetQuota();
}

JobId Users::AnyJob() {
  if (known_.empty()) return {};
  // Users mostly choose one of the newest jobs, because the others have ended.
  const auto size = static_cast<int64_t>(known_.size());
  const int64_t back = world_.random().Below(std::min<int64_t>(size, 12));
  return known_[static_cast<size_t>(size - 1 - back)];
}

size_t Users::DrawScript() {
  Random& random = world_.random();
  Script script;
  script.step_time = random.Between(50 * kMillisecond, options_.step_time_max);
  const Time length = random.Between(10 * kSecond, random.Chance(300) ? 25 * kMinute : 5 * kMinute);
  script.total_steps = std::max<int64_t>(length / script.step_time, 2);
  if (random.Chance(700)) {
    const Time every = random.Between(10 * kSecond, 3 * kMinute);
    script.checkpoint_every = std::max<int64_t>(every / script.step_time, 1);
  }
  script.write_time = random.Chance(100) ? random.Between(5, 20) * kSecond
                                         : random.Between(20 * kMillisecond, 3 * kSecond);
  script.upload_time = random.Chance(100) ? random.Between(3, 15) * kSecond
                                          : random.Between(10 * kMillisecond, 2 * kSecond);
  script.load_time = random.Between(100 * kMillisecond, 10 * kSecond);
  if (random.Chance(options_.bad_trainers)) {
    using End = Script::End;
    const End ends[] = {End::kUserError, End::kTransient, End::kPoison, End::kSignal,
                        End::kHang,      End::kHidden,    End::kOdd};
    script.end = ends[random.Below(7)];
    script.fail_step = random.Between(1, script.total_steps - 1);
    script.fail_rank = random.Chance(500) ? 0 : static_cast<int>(random.Below(4));
  }
  return trainers_.AddScript(script);
}

core::Submission Users::DrawSubmission() {
  Random& random = world_.random();
  core::Submission submission;
  submission.user = kUsers[random.Below(3)];
  submission.project = kProjects[random.Below(3)];
  submission.spec = absl::StrCat(DrawScript());
  submission.name = absl::StrCat("job-", orders_.size());
  submission.auto_precision = options_.auto_precision && orders_.size() % 2 == 0;
  // Most of these users are sure that the devices will come. The others are refused what no known
  // worker could hold.
  submission.wait_for_devices = orders_.size() % 4 != 3;
  core::Demand& demand = submission.demand;
  const int most = options_.hosts * options_.devices_max;
  demand.count = static_cast<int32_t>(random.Chance(500) ? 1 : random.Between(1, most));
  if (options_.two_types) {
    if (random.Chance(500)) demand.type = random.Chance(500) ? "cpu" : "h200";
    demand.mixed = demand.type.empty() && random.Chance(500);
  }
  if (options_.elastic && demand.count > 1 && random.Chance(500)) {
    demand.min_count = static_cast<int32_t>(random.Between(1, demand.count));
  }
  if (options_.resources) DrawResources(submission);
  if (options_.one_host) demand.one_host = one_host_random_.Chance(400);
  submission.priority = random.Chance(700) ? 0 : static_cast<int32_t>(random.Between(-1, 2) * 10);
  submission.max_retries = static_cast<int32_t>(random.Between(0, 4));
  submission.disconnect_keep_us = random.Between(0, options_.keep_max);
  submission.checkpoints_kept = static_cast<int32_t>(random.Between(1, 3));
  submission.keeps_best = submission.checkpoints_kept > 1;
  submission.preemptible = random.Chance(900);
  if (random.Chance(200)) {
    submission.time_limit_us = random.Between(kMinute, 20 * kMinute);
    if (random.Chance(500)) submission.time_limit_warning_us = 30 * kSecond;
  }
  if (random.Chance(50)) {
    submission.not_before_us = HostClock{}.Wall(world_.now()) + random.Around(3 * kMinute);
  }
  if (options_.arrays && random.Chance(150)) {
    submission.array_size = static_cast<int32_t>(random.Between(2, 6));
    submission.array_parallel = static_cast<int32_t>(random.Below(4));
  }
  if (options_.dependencies && !known_.empty() && random.Chance(250)) {
    submission.dependencies.push_back({AnyJob(), /*ok=*/random.Chance(300)});
  }
  if (options_.delete_every > 0 && random.Chance(400)) submission.cloned_from = AnyJob();
  return submission;
}

// Half of the jobs ask for processors and memory, most of them without a device.
void Users::DrawResources(core::Submission& submission) {
  Random& random = resources_random_;
  core::Demand& demand = submission.demand;
  if (!random.Chance(500)) return;
  if (random.Chance(600)) {
    demand = {};
    demand.is_deviceless = true;
    demand.resources.cpus = static_cast<int32_t>(random.Below(4));
    submission.auto_precision = false;
  }
  if (random.Chance(500)) demand.resources.memory_bytes = random.Between(1, 3) * kSimGiB;
}

void Users::Submit() {
  if (is_calm_ || orders_.size() >= kJobsMax) return;
  Random& random = world_.random();
  const int64_t burst = random.Chance(100) ? 4 : 1;
  for (int64_t i = 0; i < burst; ++i) {
    auto order = std::make_shared<Order>();
    order->submission = std::make_shared<core::Submission>(DrawSubmission());
    if (random.Chance(800)) order->request_id = absl::StrCat("request-", ++requests_);
    orders_.push_back(order);
    Send(order, 0);
  }
  world_.After(random.Around(options_.submit_every), [this] { Submit(); });
}

// The training waits 0.2 s for a checkpoint of its own choice, which takes some seconds to be
// written and to arrive, and a new attempt loads for ten.
void Users::SubmitLongJob() {
  Script script;
  script.step_time = kSecond;
  script.total_steps = options_.long_job / script.step_time;
  script.automatic = true;
  script.wait_time = 200 * kMillisecond;
  script.write_time = 4 * kSecond;
  script.upload_time = 4 * kSecond;
  script.load_time = 10 * kSecond;
  core::Submission submission;
  submission.user = kUsers[0];
  submission.project = kProjects[0];
  submission.name = "long";
  submission.spec = absl::StrCat(trainers_.AddScript(script));
  submission.demand.count = 1;
  submission.max_retries = 3;
  submission.disconnect_keep_us = 10 * kMinute;
  submission.checkpoints_kept = 2;
  orders_.push_back(std::make_shared<Order>());
  orders_.back()->submission = std::make_shared<core::Submission>(std::move(submission));
  orders_.back()->request_id = "long";
  Send(orders_.back(), 0);
}

// A submission with a request id is sent until it is acknowledged or refused, and sometimes once
// more.
void Users::Send(const std::shared_ptr<Order>& order, int tries) {
  core::SubmitJob input{order->submission, order->request_id, "hash", "user:x"};
  transport_.Call<core::Reply>(
      kUsersLink, kCallTimeout,
      [this, input](Server::Answer<core::Reply> answer) { server_.Post(input, std::move(answer)); },
      [this, order, tries](absl::StatusOr<core::Reply> reply) {
        const bool again = absl::IsUnavailable(reply.status()) ||
                           absl::IsDeadlineExceeded(reply.status()) ||
                           absl::IsResourceExhausted(reply.status());
        if (reply.ok()) {
          const bool is_first = order->job == JobId{};
          if (!is_first && order->job != reply->job) {
            world_.Violate("a repeated request is the same job",
                           absl::StrCat(order->request_id, " is ", JobName(order->job), " and ",
                                        JobName(reply->job)));
          }
          order->job = reply->job;
          if (is_first) {
            world_.Say("users", order->submission->user, " submitted ", JobName(order->job), ", ",
                       order->submission->demand.count, " devices, priority ",
                       order->submission->priority);
            const int32_t jobs = std::max(order->submission->array_size, 1);
            for (int32_t i = 0; i < jobs; ++i) known_.push_back({order->job.value + i});
            on_acknowledged(*order);
          }
        }
        const bool repeat = reply.ok() && tries < 2 && world_.random().Chance(100);
        if (order->request_id.empty() || tries > 50 || !(again || repeat)) return;
        world_.After(world_.random().Around(3 * kSecond),
                     [this, order, tries] { Send(order, tries + 1); });
      });
}

void Users::Post(core::Input input) {
  transport_.Call<core::Reply>(
      kUsersLink, kCallTimeout,
      [this, input = std::move(input)](Server::Answer<core::Reply> answer) {
        server_.Post(input, std::move(answer));
      },
      [](const absl::StatusOr<core::Reply>&) {});
}

void Users::Verb() {
  if (is_calm_) return;
  const JobId job = AnyJob();
  if (job != JobId{}) {
    const int64_t dice = world_.random().Below(100);
    const char* verb = dice < 25 ? "cancels" : dice < 60 ? "suspends" : "resumes";
    world_.Say("users", "somebody ", verb, " ", JobName(job));
    if (dice < 25) {
      Post(core::CancelJob{job, "user:x", ""});
    } else if (dice < 60) {
      Post(core::SuspendJob{job, "user:x", ""});
      if (world_.random().Chance(800)) {
        world_.After(world_.random().Around(kMinute), [this, job] {
          Post(core::ResumeJob{job, "user:x"});
        });
      }
    } else {
      Post(core::ResumeJob{job, "user:x"});
    }
  }
  world_.After(world_.random().Around(options_.verb_every), [this] { Verb(); });
}

// Somebody tidies up and deletes a few jobs. The deletion of a job that has not ended is refused.
void Users::Delete() {
  if (is_calm_) return;
  for (int64_t i = world_.random().Between(1, 4); i > 0; --i) {
    const JobId job = AnyJob();
    if (job == JobId{}) break;
    world_.Say("users", "somebody deletes ", JobName(job));
    transport_.Call<core::Reply>(
        kUsersLink, kCallTimeout,
        [this, job](Server::Answer<core::Reply> answer) {
          server_.Post(core::DeleteJob{job, {}, "user:x"}, std::move(answer));
        },
        [this, job](const absl::StatusOr<core::Reply>& reply) {
          if (reply.ok()) on_deleted(job);
        });
  }
  world_.After(world_.random().Around(options_.delete_every), [this] { Delete(); });
}

void Users::Operate() {
  if (is_calm_) return;
  Random& random = world_.random();
  Host& host = *hosts_[static_cast<size_t>(random.Below(static_cast<int64_t>(hosts_.size())))];
  const MachineDevice& device =
      host.devices[static_cast<size_t>(random.Below(static_cast<int64_t>(host.devices.size())))];
  const Time back = random.Around((random.Chance(300) ? 20 : 4) * kMinute);
  const int64_t dice = random.Below(100);
  if (dice < 30) {
    world_.Say("operator", "cordons ", host.name);
    Post(core::CordonWorker{host.name, "user:op", ""});
    world_.After(back, [this, &host] { Post(core::UncordonWorker{host.name, "user:op"}); });
  } else if (dice < 65) {
    world_.Say("operator", "drains ", host.name);
    Post(core::DrainWorker{host.name, "user:op", "", random.Chance(500) ? 20 * kSecond : 0});
    world_.After(back, [this, &host] { Post(core::UncordonWorker{host.name, "user:op"}); });
  } else if (dice < 80) {
    world_.Say("operator", "quarantines ", device.name, " of ", host.name);
    Post(core::QuarantineDevice{host.name, device.name, "user:op", ""});
    world_.After(back, [this, name = host.name, device = device.name] {
      Post(core::ReleaseDevice{name, device, "user:op"});
    });
  } else if (options_.reservations) {
    Reserve();
  } else if (options_.quotas) {
    SetQuota();
  }
  on_capacity_change();
  world_.After(random.Around(options_.operator_every), [this] { Operate(); });
}

void Users::Reserve() {
  Random& random = world_.random();
  core::CreateReservation input;
  input.reservation.name = absl::StrCat("reservation-", ++reservations_);
  const int64_t wall = server_.clock().Wall(world_.now());
  input.reservation.start_us = wall + random.Below(5 * kMinute);
  input.reservation.end_us = input.reservation.start_us + random.Around(5 * kMinute);
  input.reservation.subjects = {absl::StrCat("user:", kUsers[random.Below(3)])};
  input.reservation.actor = "user:op";
  input.count = static_cast<int32_t>(random.Between(1, 2));
  world_.Say("operator", "makes ", input.reservation.name);
  Post(std::move(input));
}

void Users::SetQuota() {
  Random& random = world_.random();
  core::QuotaRecord quota;
  quota.subject = random.Chance(500) ? absl::StrCat("user:", kUsers[random.Below(3)]) : "user:*";
  quota.devices =
      static_cast<int32_t>(random.Between(1, int64_t{options_.hosts} * options_.devices_max));
  quota.queued_jobs = static_cast<int32_t>(random.Between(1, 6));
  if (random.Chance(300)) quota.submits_per_minute = static_cast<int32_t>(random.Between(2, 10));
  Post(core::SetQuota{quota, "user:op"});
}

// Checks that the job fits on the pool when nothing of it is broken.
bool Users::IsFeasible(const core::Demand& demand) const {
  const int64_t need = demand.resources.memory_bytes;
  if (demand.is_deviceless) {
    return std::any_of(hosts_.begin(), hosts_.end(), [&demand](const auto& host) {
      const core::HostAmount least{std::max(demand.resources.cpus, 1),
                                   demand.resources.memory_bytes};
      return least.Fits(host->resources);
    });
  }
  std::map<std::string, int32_t> devices;
  int32_t all = 0;
  const auto suffice = [&] {
    if (demand.mixed && demand.type.empty()) return all >= demand.least();
    return std::any_of(devices.begin(), devices.end(), [&demand](const auto& type) {
      return (demand.type.empty() || demand.type == type.first) && type.second >= demand.least();
    });
  };
  for (const auto& host : hosts_) {
    if (demand.one_host) {
      devices.clear();
      all = 0;
    }
    int64_t left = host->resources.memory_bytes;
    for (const MachineDevice& device : host->devices) {
      if (need > 0 && (left -= need) < 0) break;
      ++devices[device.type];
      ++all;
    }
    if (suffice()) return true;
  }
  return false;
}

void Users::BeCalm() {
  is_calm_ = true;
  Tidy();
}

// Works until all is well: gives back what was set aside, resumes what is held and cancels jobs
// that can never run.
void Users::Tidy() {
  const core::Yard* yard = server_.yard();
  if (yard != nullptr) {
    const core::Snapshot& state = yard->snapshot();
    for (const auto& [subject, quota] : state.quotas) Post(core::DeleteQuota{subject, "user:op"});
    for (const auto& [name, reservation] : state.reservations) {
      Post(core::DeleteReservation{name, "user:op"});
    }
    for (const auto& [name, worker] : state.workers) {
      if (worker.scheduling != core::Scheduling::kEligible) {
        Post(core::UncordonWorker{name, "user:op"});
      }
      for (const core::DeviceRecord& device : worker.devices) {
        if (!device.quarantine.empty()) Post(core::ReleaseDevice{name, device.name, "user:op"});
      }
    }
    for (const auto& [id, job] : state.jobs) {
      if (const auto* held = std::get_if<core::job_fsm::Suspended>(&job.state)) {
        if (held->failure.has_value()) {
          Post(core::CancelJob{id, "user:x", ""});
        } else {
          Post(core::ResumeJob{id, "user:x"});
        }
      } else if (yard->FindJob(id) != nullptr &&
                 std::holds_alternative<core::job_fsm::Queued>(job.state)) {
        if (!IsFeasible(job.submission->demand)) Post(core::CancelJob{id, "user:x", ""});
        // A job that waits for the success of one that failed waits forever.
        for (const core::Dependency& dependency : job.submission->dependencies) {
          const core::JobRecord* other = yard->FindJob(dependency.job);
          const bool never = dependency.ok && other != nullptr &&
                             core::job_fsm::IsFinal(other->state) &&
                             !std::holds_alternative<core::job_fsm::Succeeded>(other->state);
          if (never) Post(core::CancelJob{id, "user:x", ""});
        }
      }
    }
  }
  world_.After(30 * kSecond, [this] { Tidy(); });
}

}  // namespace trainyard::sim

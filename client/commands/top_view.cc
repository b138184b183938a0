// Draws the picture of `top` from the answers of the server. It is a pure function, so that tests
// can look at the picture.
#include "client/commands/top_view.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "client/commands/device_table.h"
#include "client/commands/share_table.h"
#include "client/output/table.h"
#include "client/output/text.h"
#include "common/base/strings.h"

namespace trainyard::commands {
namespace {

using output::Table;
using output::Terminal;

constexpr int kBarWidth = 12;

// Returns "jobs/12" for "jobs/12/attempts/1".
std::string JobOf(const std::string& attempt) {
  const std::vector<std::string> parts = absl::StrSplit(attempt, '/');
  return parts.size() < 2 ? "" : absl::StrCat(parts[0], "/", parts[1]);
}

// Draws a bar: "█████▌ 45%", or "##### 45%" if only ASCII can be shown.
std::string Bar(const v1::Progress& progress, const Terminal& terminal) {
  if (progress.total_steps() <= 0) return "";
  const double done = std::clamp(
      static_cast<double>(progress.step()) / static_cast<double>(progress.total_steps()), 0.0, 1.0);
  const int full = static_cast<int>(done * kBarWidth);
  std::string bar;
  for (int i = 0; i < kBarWidth; ++i) {
    bar += i < full ? (terminal.unicode ? "█" : "#") : (terminal.unicode ? "░" : ".");
  }
  return absl::StrCat(bar, " ", static_cast<int>(done * 100), "%");
}

bool IsSetAside(const v1::Worker& worker, const v1::Device& device) {
  return worker.state() != v1::WORKER_STATE_ACTIVE ||
         worker.scheduling() != v1::WORKER_SCHEDULING_ELIGIBLE || !device.quarantine().empty() ||
         device.health() != v1::DEVICE_HEALTH_OK;
}

// Returns "free" for a device without a job, or the reason why it is not offered.
std::string IdleText(const v1::Worker& worker, const v1::Device& device, const Terminal& terminal) {
  if (worker.state() != v1::WORKER_STATE_ACTIVE) {
    return terminal.Style("31", output::StateText(worker.state()));
  }
  if (!device.quarantine().empty() || device.health() != v1::DEVICE_HEALTH_OK) {
    return terminal.Style("31", DeviceHealth(device));
  }
  if (worker.scheduling() != v1::WORKER_SCHEDULING_ELIGIBLE) {
    return terminal.Style("33", output::SchedulingText(worker.scheduling()));
  }
  return terminal.Style("2", "free");
}

std::string Header(const TopData& data, const Terminal& terminal) {
  int all = 0;
  int busy = 0;
  int aside = 0;
  for (const v1::Worker& worker : data.workers.workers()) {
    if (worker.state() == v1::WORKER_STATE_GONE) continue;
    for (const v1::Device& device : worker.devices()) {
      ++all;
      if (!device.attempt().empty()) {
        ++busy;
      } else if (IsSetAside(worker, device)) {
        ++aside;
      }
    }
  }
  int64_t cpus = 0;
  int64_t cpus_held = 0;
  for (const v1::Worker& worker : data.workers.workers()) {
    if (worker.state() == v1::WORKER_STATE_GONE) continue;
    cpus += worker.host().cpus();
    cpus_held += worker.host().cpus_held();
  }
  std::vector<std::string> parts = {
      absl::StrCat(all, all == 1 ? " device: " : " devices: ", busy, " busy, ", all - busy - aside,
                   " free", aside == 0 ? "" : absl::StrCat(", ", aside, " set aside")),
      absl::StrCat(FormatCount(data.queue.queued_jobs()), " queued")};
  if (cpus > 0) {
    parts.insert(parts.begin() + 1, absl::StrCat(cpus_held, " of ", cpus, " cpus held"));
  }
  return absl::StrCat(terminal.Style("1", "trainyard"), "  ", absl::StrJoin(parts, "   "), "   ",
                      absl::FormatTime("%H:%M:%S %Z", data.now, absl::LocalTimeZone()));
}

std::string Devices(const TopData& data, const Terminal& terminal) {
  std::map<std::string, const v1::Job*> jobs;
  for (const v1::Job& job : data.running) jobs[job.name()] = &job;
  Table table({{"WORKER"},
               {"DEVICE"},
               {"TYPE"},
               {"JOB", Table::Align::kRight},
               {"NAME"},
               {"USER"},
               {"PROGRESS"},
               {"LEFT", Table::Align::kRight}});
  for (const v1::Worker& worker : data.workers.workers()) {
    if (worker.state() == v1::WORKER_STATE_GONE) continue;
    std::string shown = output::ShortName(worker.name());
    for (const v1::Device& device : worker.devices()) {
      const std::string name = JobOf(device.attempt());
      const auto found = jobs.find(name);
      const v1::Job* job = found == jobs.end() ? nullptr : found->second;
      std::string progress = IdleText(worker, device, terminal);
      std::string left;
      if (job != nullptr) {
        const bool runs = job->state() == v1::JOB_STATE_RUNNING;
        progress = runs ? Bar(job->progress(), terminal)
                        : terminal.Style(output::StateStyle(job->state()),
                                         output::StateText(job->state()));
        if (runs && job->progress().has_eta()) {
          left = output::AgeText(output::ToDuration(job->progress().eta()));
        }
      } else if (!name.empty()) {
        progress = "";
      }
      table.AddRow({shown.empty() ? " " : shown, device.name(), device.type(),
                    output::ShortName(name), job == nullptr ? "" : job->resolved_spec().name(),
                    job == nullptr ? "" : job->user(), progress, left});
      shown.clear();  // the worker is named in its first row only
    }
  }
  return table.Render();
}

std::string Reason(const v1::Job& job) {
  return job.queue_reasons().empty() ? "" : job.queue_reasons(0);
}

std::string Queue(const TopData& data) {
  Table table({{"QUEUE", Table::Align::kRight},
               {"JOB", Table::Align::kRight},
               {"NAME"},
               {"USER"},
               {"DEVICES", Table::Align::kRight},
               {"PRIORITY", Table::Align::kRight},
               {"WAITS", Table::Align::kRight},
               {"WHY"}});
  const auto& jobs = data.queue.jobs();
  for (int i = 0; i < jobs.size();) {
    const v1::Job& job = jobs[i];
    // Jobs of an array that follow each other in the queue and wait for the same reason share a
    // row.
    int end = i + 1;
    while (end < jobs.size() && !job.array().empty() && jobs[end].array() == job.array() &&
           Reason(jobs[end]) == Reason(job)) {
      ++end;
    }
    const auto range = [](const std::string& first, const std::string& last) {
      return first == last ? first : absl::StrCat(first, "..", last);
    };
    table.AddRow({range(absl::StrCat(i + 1), absl::StrCat(end)),
                  range(output::ShortName(job.name()), output::ShortName(jobs[end - 1].name())),
                  end == i + 1 ? job.resolved_spec().name() : job.spec().name(), job.user(),
                  output::DevicesText(job.resolved_spec()),
                  absl::StrCat(job.resolved_spec().priority()),
                  output::AgeText(data.now - output::ToTime(job.create_time())), Reason(job)});
    i = end;
  }
  return table.Render();
}

// Appends the lines of a table, at most `lines_max`, and says how many rows were left out.
void Append(const std::string& text, int lines_max, const Terminal& terminal, std::string& out) {
  const std::vector<std::string> lines = absl::StrSplit(text, '\n', absl::SkipEmpty());
  const int count = static_cast<int>(lines.size());
  const int shown = lines_max >= count ? count : std::max(lines_max - 1, 1);
  for (int i = 0; i < shown; ++i) {
    const std::string line = output::Fitted(lines[static_cast<size_t>(i)], terminal.width);
    absl::StrAppend(&out, i == 0 ? terminal.Style("1", line) : line, "\n");
  }
  if (shown < count) absl::StrAppend(&out, "  ... and ", count - shown, " more\n");
}

}  // namespace

std::string RenderTop(const TopData& data, const Terminal& terminal, int height) {
  // Half of the lines are for devices, and most of the rest are for the queue.
  const int room = height == 0 ? 1 << 20 : std::max(height - 4, 12);
  const int share_lines = static_cast<int>(data.shares.shares_size()) + 1;
  const int shares_max = std::min(share_lines, std::max(room / 5, 3));
  const int queue_lines = data.queue.jobs_size() + 1;
  const int queue_max = std::min(queue_lines, std::max((room - shares_max) / 2, 4));
  std::string out = absl::StrCat(output::Fitted(Header(data, terminal), terminal.width), "\n\n");
  if (data.workers.workers().empty()) {
    absl::StrAppend(&out, "no worker has registered; `trainyard up` starts one on this machine\n");
  } else {
    Append(Devices(data, terminal), room - shares_max - queue_max, terminal, out);
  }
  if (!data.queue.jobs().empty()) {
    absl::StrAppend(&out, "\n");
    Append(Queue(data), queue_max, terminal, out);
  }
  if (!data.shares.shares().empty()) {
    absl::StrAppend(&out, "\n");
    Append(ShareTable(data.shares), shares_max, terminal, out);
  }
  return out;
}

}  // namespace trainyard::commands

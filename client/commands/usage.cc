// usage shows what users or projects, and the largest jobs, take on the server's disk.
#include <algorithm>
#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/commands/verbs.h"
#include "client/output/table.h"
#include "client/output/text.h"
#include "common/base/status_macros.h"
#include "common/base/strings.h"

namespace trainyard::commands {
namespace {

using output::Table;

constexpr int kLargestMax = 1000;  // of the server
// From this share of its quota on, a subject is shown as one to look at.
constexpr double kHighShare = 0.8;

struct UsageOptions {
  std::string by = "user";
  int largest = 0;
};

// Returns the name without "user:" or "project:".
std::string NameOf(const v1::Usage& usage) {
  const std::string name = usage.subject().substr(usage.subject().find(':') + 1);
  return name.empty() ? "(none)" : name;
}

std::string QuotaText(const Context& context, const v1::Usage& usage) {
  if (usage.stored_bytes_max() == 0) return "";
  const double share = static_cast<double>(output::TotalBytes(usage.stored())) /
                       static_cast<double>(usage.stored_bytes_max());
  std::string text =
      absl::StrCat(output::PercentText(share), " of ", FormatBytes(usage.stored_bytes_max()));
  if (share >= 1) return context.terminal.Style("1;31", text);
  return share >= kHighShare ? context.terminal.Style("1;33", text) : text;
}

std::vector<std::string> BytesCells(const v1::StoredBytes& stored) {
  return {FormatBytes(stored.checkpoints()), FormatBytes(stored.logs()),
          FormatBytes(stored.metrics()), FormatBytes(output::TotalBytes(stored))};
}

std::string SubjectTable(const Context& context, const v1::ListUsageResponse& response,
                         const std::string& by) {
  Table table({{by == "project" ? "PROJECT" : "USER"},
               {"JOBS", Table::Align::kRight},
               {"DEVICE HOURS", Table::Align::kRight},
               {"CHECKPOINTS", Table::Align::kRight},
               {"LOGS", Table::Align::kRight},
               {"METRICS", Table::Align::kRight},
               {"TOTAL", Table::Align::kRight},
               {"QUOTA", Table::Align::kRight}});
  std::vector<const v1::Usage*> all;
  for (const v1::Usage& usage : response.usage()) all.push_back(&usage);
  std::stable_sort(all.begin(), all.end(), [](const auto* a, const auto* b) {
    return output::TotalBytes(a->stored()) > output::TotalBytes(b->stored());
  });
  for (const v1::Usage* usage : all) {
    const double hours = absl::ToDoubleHours(output::ToDuration(usage->device_time()));
    std::vector<std::string> row = {NameOf(*usage), FormatCount(usage->jobs()),
                                    absl::StrFormat("%.2f", hours)};
    for (std::string& cell : BytesCells(usage->stored())) row.push_back(std::move(cell));
    row.push_back(QuotaText(context, *usage));
    table.AddRow(std::move(row));
  }
  return table.Render();
}

std::string LargestTable(const Context& context, const v1::ListUsageResponse& response) {
  Table table({{"JOB", Table::Align::kRight},
               {"NAME"},
               {"USER"},
               {"STATE"},
               {"ENDED"},
               {"CHECKPOINTS", Table::Align::kRight},
               {"LOGS", Table::Align::kRight},
               {"METRICS", Table::Align::kRight},
               {"TOTAL", Table::Align::kRight}});
  for (const v1::JobUsage& job : response.largest_jobs()) {
    std::vector<std::string> row = {
        output::ShortName(job.job()), job.display_name(), job.user(),
        context.terminal.Style(output::StateStyle(job.state()), output::StateText(job.state())),
        job.has_end_time() ? output::TimeText(job.end_time()) : ""};
    for (std::string& cell : BytesCells(job.stored())) row.push_back(std::move(cell));
    table.AddRow(std::move(row));
  }
  return table.Render();
}

void PrintLargest(const Context& context, const v1::ListUsageResponse& response) {
  std::vector<std::string> names;
  for (const v1::JobUsage& job : response.largest_jobs()) names.push_back(job.job());
  if (PrintMessages(context, response.largest_jobs(), names)) return;
  if (names.empty()) return context.Say("no job takes any space");
  context.out << LargestTable(context, response);
  context.Say("`trainyard rm JOB --checkpoints` frees what one of them takes");
}

void PrintSubjects(const Context& context, const v1::ListUsageResponse& response,
                   const std::string& by) {
  std::vector<std::string> names;
  for (const v1::Usage& usage : response.usage()) names.push_back(usage.subject());
  if (PrintMessages(context, response.usage(), names)) return;
  if (names.empty()) return context.Say("there are no jobs yet");
  context.out << SubjectTable(context, response, by);
}

Result ShowUsage(const Context& context, const UsageOptions& options) {
  TY_ASSIGN_OR_RETURN(const auto link, Connect(context));
  v1::ListUsageRequest request;
  request.set_group(options.by == "project" ? v1::USAGE_GROUP_PROJECT : v1::USAGE_GROUP_USER);
  request.set_largest_jobs(options.largest);
  TY_ASSIGN_OR_RETURN(const v1::ListUsageResponse response,
                      link->Call(&v1::SharingService::Stub::ListUsage, request));
  if (options.largest > 0) {
    PrintLargest(context, response);
  } else {
    PrintSubjects(context, response, options.by);
  }
  return link::kOk;
}

}  // namespace

void AddUsage(VerbTable& verbs) {
  verbs.Add<UsageOptions>(
      "usage", "Show what users and projects take on the server's disk",
      "--by project\n  trainyard usage --largest 20",
      [](client::Flags& flags, UsageOptions& options) {
        flags.Value("--by", options.by, "Add up by 'user' or by 'project'")
            .OneOf({"user", "project"});
        flags.Value("--largest", options.largest, "List this many jobs that take the most instead")
            .Range(1, kLargestMax);
      },
      ShowUsage);
}

}  // namespace trainyard::commands

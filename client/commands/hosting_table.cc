// Draws the table of ranks with their replicas, shares of the batch and speeds.
#include "client/commands/hosting_table.h"

#include <map>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "client/output/table.h"
#include "client/output/text.h"

namespace trainyard::commands {
namespace {

// Returns a range of replicas with their number: "0-5 (6)".
std::string ReplicasText(const v1::RankHosting& host) {
  if (host.replicas() <= 0) return "none";
  const int last = host.first_replica() + host.replicas() - 1;
  if (host.replicas() == 1) return absl::StrCat(last, " (1)");
  return absl::StrCat(host.first_replica(), "-", last, " (", host.replicas(), ")");
}

}  // namespace

std::string HostingText(const v1::Job& job) {
  const v1::Progress& progress = job.progress();
  if (progress.hosting().empty()) return "";
  std::map<int, const v1::RankPlacement*> placement;
  for (const v1::RankPlacement& rank : job.placement()) placement[rank.rank()] = &rank;
  std::map<int, int64_t> replicas_of_stage;
  for (const v1::RankHosting& host : progress.hosting()) {
    replicas_of_stage[host.stage()] += host.replicas();
  }
  const bool has_stages = replicas_of_stage.size() > 1;

  using Align = output::Table::Align;
  std::vector<output::Table::Column> columns = {
      {"RANK", Align::kRight}, {"WORKER", Align::kLeft}, {"DEVICE", Align::kLeft}};
  if (has_stages) columns.push_back({"STAGE", Align::kRight});
  columns.insert(
      columns.end(),
      {{"REPLICAS", Align::kLeft}, {"SHARE", Align::kRight}, {"SAMPLES/S", Align::kRight}});
  output::Table table(std::move(columns));
  for (const v1::RankHosting& host : progress.hosting()) {
    const auto placed = placement.find(host.rank());
    const bool is_placed = placed != placement.end();
    std::vector<std::string> row = {absl::StrCat(host.rank()),
                                    is_placed ? output::ShortName(placed->second->worker()) : "",
                                    is_placed ? placed->second->device() : ""};
    if (has_stages) row.push_back(absl::StrCat(host.stage()));
    row.push_back(ReplicasText(host));
    const int64_t all = replicas_of_stage[host.stage()];
    row.push_back(all > 0 ? output::PercentText(static_cast<double>(host.replicas()) /
                                                static_cast<double>(all))
                          : "");
    row.push_back(host.samples_per_s() > 0 ? output::RateText(host.samples_per_s()) : "");
    table.AddRow(std::move(row));
  }
  const std::string rows = table.Render();
  return absl::StrCat(progress.hosting_reason(), progress.hosting_reason().empty() ? "" : "\n",
                      absl::StripTrailingAsciiWhitespace(rows));
}

}  // namespace trainyard::commands

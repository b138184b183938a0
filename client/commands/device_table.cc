// Draws the table of devices. Columns about GPUs appear only if some worker has a GPU.
#include "client/commands/device_table.h"

#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "client/output/table.h"
#include "client/output/text.h"
#include "common/base/strings.h"

namespace trainyard::commands {

using output::Table;

std::string DeviceHealth(const v1::Device& device) {
  if (!device.quarantine().empty()) return absl::StrCat("SET ASIDE (", device.quarantine(), ")");
  const std::string health = output::HealthText(device.health());
  return device.health_reason().empty() ? health
                                        : absl::StrCat(health, " (", device.health_reason(), ")");
}

namespace {

constexpr const char* kUsageTitles[] = {"USED", "UTIL", "POWER", "TEMP", "SLOWED BY"};

// Returns the cells of a device that stand under kUsageTitles.
std::vector<std::string> UsageCells(const v1::Device& device) {
  const v1::DeviceUsage& usage = device.usage();
  const auto whole = [](double value) { return absl::StrCat(std::llround(value)); };
  std::string power;
  if (usage.has_power_watts()) {
    power = whole(usage.power_watts());
    if (usage.has_power_limit_watts()) {
      absl::StrAppend(&power, "/", whole(usage.power_limit_watts()));
    }
    power += " W";
  }
  return {usage.has_memory_bytes() ? FormatBytes(usage.memory_bytes()) : "",
          usage.has_utilization() ? whole(usage.utilization() * 100) + "%" : "", power,
          usage.has_temperature_celsius() ? whole(usage.temperature_celsius()) + " C" : "",
          usage.slowed_by()};
}

bool ReportsUsage(const v1::ListWorkersResponse& response) {
  for (const v1::Worker& worker : response.workers()) {
    for (const v1::Device& device : worker.devices()) {
      if (device.has_usage()) return true;
    }
  }
  return false;
}

}  // namespace

std::string DeviceTable(const v1::ListWorkersResponse& response) {
  // CPU devices have no values for these columns.
  const bool with_usage = ReportsUsage(response);
  std::vector<Table::Column> columns = {{"WORKER"},
                                        {"DEVICE"},
                                        {"TYPE"},
                                        {"HEALTH"},
                                        {"THREADS", Table::Align::kRight},
                                        {"MEMORY", Table::Align::kRight}};
  if (with_usage) {
    for (const char* title : kUsageTitles) {
      const bool is_number = absl::string_view(title) != "SLOWED BY";
      columns.push_back({title, is_number ? Table::Align::kRight : Table::Align::kLeft});
    }
  }
  columns.insert(columns.end(), {{"HELD BY"}, {"PRODUCT"}});
  Table table(std::move(columns));
  for (const v1::Worker& worker : response.workers()) {
    for (const v1::Device& device : worker.devices()) {
      std::vector<std::string> cells = {
          output::ShortName(worker.name()),
          device.name(),
          device.type(),
          DeviceHealth(device),
          device.threads() > 0 ? absl::StrCat(device.threads()) : "",
          device.memory_bytes() > 0 ? FormatBytes(device.memory_bytes()) : ""};
      if (with_usage) {
        const std::vector<std::string> usage = UsageCells(device);
        cells.insert(cells.end(), usage.begin(), usage.end());
      }
      cells.insert(cells.end(), {device.attempt(), device.product()});
      table.AddRow(std::move(cells));
    }
  }
  return table.Render();
}

}  // namespace trainyard::commands

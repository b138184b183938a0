// quotas lists, sets and removes the limits of users and projects.
#include <algorithm>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "client/commands/verbs.h"
#include "client/output/table.h"
#include "common/base/status_macros.h"
#include "common/base/strings.h"
#include "common/spec/byte_size.h"

namespace trainyard::commands {
namespace {

using output::Table;

constexpr char kSubjectHelp[] = "user:NAME, project:NAME; user:* and project:* for all others";

constexpr char kUnlimited[] = "unlimited";

// -1 and an empty text leave a limit as it is. 0 is no limit, as kUnlimited is.
struct SetQuotaOptions {
  std::string subject;
  std::string devices;
  std::string queued_jobs;
  std::string submits_per_minute;
  int weight = -1;
  std::string storage;
  std::string cpus;
  std::string memory;
};

struct DeleteQuotasOptions {
  std::vector<std::string> subjects;
};

std::string CheckLimit(const std::string& text) {
  int32_t limit = 0;
  if (text == kUnlimited || (absl::SimpleAtoi(text, &limit) && limit >= 0)) return "";
  return absl::StrCat("'", text, "' is no limit; expected a number, or ", kUnlimited);
}

// Reads what CheckLimit accepts. Returns 0 for no limit.
int32_t LimitOf(const std::string& text) {
  int32_t limit = 0;
  return absl::SimpleAtoi(text, &limit) ? limit : 0;
}

// Returns the text of a limit, which is empty if there is no limit.
std::string LimitText(int64_t limit) {
  return limit == 0 ? "" : FormatCount(limit);
}

absl::StatusOr<v1::Quota> FindQuota(link::ServerLink& link, const std::string& subject) {
  TY_ASSIGN_OR_RETURN(const v1::ListQuotasResponse response,
                      link.Call(&v1::SharingService::Stub::ListQuotas, v1::ListQuotasRequest()));
  for (const v1::Quota& quota : response.quotas()) {
    if (quota.subject() == subject) return quota;
  }
  v1::Quota none;
  none.set_subject(subject);
  return none;
}

// Returns the bytes of a size, or 0 for no limit.
absl::StatusOr<int64_t> BytesOf(const std::string& size) {
  if (size == "0" || size == kUnlimited) return 0;
  TY_ASSIGN_OR_RETURN(const v1::ByteSize bytes, spec::ParseByteSize(size));
  return bytes.bytes();
}

Result ListQuotas(const Context& context) {
  TY_ASSIGN_OR_RETURN(const auto link, Connect(context));
  TY_ASSIGN_OR_RETURN(const v1::ListQuotasResponse response,
                      link->Call(&v1::SharingService::Stub::ListQuotas, v1::ListQuotasRequest()));
  std::vector<std::string> names;
  for (const v1::Quota& quota : response.quotas()) names.push_back(quota.subject());
  if (PrintMessages(context, response.quotas(), names)) return link::kOk;
  if (names.empty()) {
    context.Say("no quotas; `trainyard quotas set user:NAME --devices 4` sets one");
    return link::kOk;
  }
  const bool has_hosts = std::any_of(
      response.quotas().begin(), response.quotas().end(),
      [](const v1::Quota& quota) { return quota.cpus() > 0 || quota.memory_bytes() > 0; });
  std::vector<Table::Column> columns = {{"SUBJECT"},
                                        {"DEVICES", Table::Align::kRight},
                                        {"QUEUED", Table::Align::kRight},
                                        {"SUBMITS/MIN", Table::Align::kRight},
                                        {"STORAGE", Table::Align::kRight},
                                        {"WEIGHT", Table::Align::kRight}};
  if (has_hosts) {
    columns.push_back({"CPUS", Table::Align::kRight});
    columns.push_back({"MEMORY", Table::Align::kRight});
  }
  Table table(std::move(columns));
  for (const v1::Quota& quota : response.quotas()) {
    std::vector<std::string> row = {
        quota.subject(),
        LimitText(quota.devices()),
        LimitText(quota.queued_jobs()),
        LimitText(quota.submits_per_minute()),
        quota.stored_bytes() == 0 ? "" : FormatBytes(quota.stored_bytes()),
        absl::StrCat(std::max(quota.weight(), 1))};
    if (has_hosts) {
      row.push_back(LimitText(quota.cpus()));
      row.push_back(quota.memory_bytes() == 0 ? "" : FormatBytes(quota.memory_bytes()));
    }
    table.AddRow(std::move(row));
  }
  context.out << table.Render();
  return link::kOk;
}

Result SetQuota(const Context& context, const SetQuotaOptions& options) {
  const bool is_given = !options.devices.empty() || !options.queued_jobs.empty() ||
                        !options.submits_per_minute.empty() || options.weight >= 0 ||
                        !options.storage.empty() || !options.cpus.empty() ||
                        !options.memory.empty();
  if (!is_given) {
    return absl::InvalidArgumentError(
        "give at least one of --devices, --cpus, --memory, --queued, --submits, --storage and "
        "--weight");
  }
  TY_ASSIGN_OR_RETURN(const auto link, Connect(context));
  v1::SetQuotaRequest request;
  v1::Quota& quota = *request.mutable_quota();
  TY_ASSIGN_OR_RETURN(quota, FindQuota(*link, options.subject));
  if (!options.devices.empty()) quota.set_devices(LimitOf(options.devices));
  if (!options.cpus.empty()) quota.set_cpus(LimitOf(options.cpus));
  if (!options.memory.empty()) {
    TY_ASSIGN_OR_RETURN(const int64_t bytes, BytesOf(options.memory));
    quota.set_memory_bytes(bytes);
  }
  if (!options.queued_jobs.empty()) quota.set_queued_jobs(LimitOf(options.queued_jobs));
  if (!options.submits_per_minute.empty()) {
    quota.set_submits_per_minute(LimitOf(options.submits_per_minute));
  }
  if (options.weight >= 0) quota.set_weight(options.weight);
  if (!options.storage.empty()) {
    TY_ASSIGN_OR_RETURN(const int64_t bytes, BytesOf(options.storage));
    quota.set_stored_bytes(bytes);
  }
  TY_ASSIGN_OR_RETURN(const v1::Quota set,
                      link->Call(&v1::SharingService::Stub::SetQuota, request));
  context.Say(
      absl::StrCat("the quota of ", set.subject(), " is set; `trainyard quotas ls` shows it"));
  const bool has_zero = options.devices == "0" || options.queued_jobs == "0" ||
                        options.submits_per_minute == "0" || options.storage == "0" ||
                        options.cpus == "0" || options.memory == "0";
  if (has_zero) context.Say("0 is no limit, as 'unlimited' is, and shuts nobody out");
  PrintOne(context, set, set.subject());
  return link::kOk;
}

Result DeleteQuotas(const Context& context, const DeleteQuotasOptions& options) {
  TY_ASSIGN_OR_RETURN(const auto link, Connect(context));
  TY_ASSIGN_OR_RETURN(const v1::ListQuotasResponse known,
                      link->Call(&v1::SharingService::Stub::ListQuotas, v1::ListQuotasRequest()));
  std::vector<std::string> names;
  for (const v1::Quota& quota : known.quotas()) names.push_back(quota.subject());
  for (const std::string& subject : options.subjects) {
    if (std::find(names.begin(), names.end(), subject) == names.end()) {
      const std::string nearest = NearestWord(subject, names);
      return absl::NotFoundError(
          absl::StrCat("'", subject, "' has no quota of its own",
                       nearest.empty() ? std::string("; `trainyard quotas ls` lists all")
                                       : absl::StrCat("; did you mean '", nearest, "'?")));
    }
    v1::DeleteQuotaRequest request;
    request.set_subject(subject);
    TY_RETURN_IF_ERROR(link->Call(&v1::SharingService::Stub::DeleteQuota, request).status());
    context.Say(absl::StrCat(subject, " has no quota of its own any more"));
  }
  return link::kOk;
}

}  // namespace

void AddQuotas(VerbTable& verbs) {
  verbs.Group("quotas", "Limits of users and projects");
  verbs.Add("quotas ls", "List all quotas", "", ListQuotas);
  verbs.Add<SetQuotaOptions>(
      "quotas set", "Set limits of a user or a project; those that are not given stay",
      "user:anna --devices 4 --weight 2",
      [](client::Flags& flags, SetQuotaOptions& options) {
        flags.Word("SUBJECT", options.subject, kSubjectHelp).Required();
        const auto limit = [&flags](const char* name, std::string& value, const char* help) {
          flags.Value(name, value, help).Check(CheckLimit).ShownAs("LIMIT");
        };
        limit("--devices", options.devices, "Devices held at a time: a number, or unlimited");
        limit("--cpus", options.cpus, "Processors held at a time: a number, or unlimited");
        flags.Value("--memory", options.memory,
                    "Memory of hosts held at a time: '512 GiB', or unlimited");
        limit("--queued", options.queued_jobs, "Jobs that wait at a time: a number, or unlimited");
        limit("--submits", options.submits_per_minute, "Jobs a minute: a number, or unlimited");
        flags.Value("--weight", options.weight, "Share of the pool against others, 1 to 1000")
            .Range(0, INT32_MAX);
        flags.Value("--storage", options.storage,
                    "Checkpoints, logs and metrics: '500 GiB', or unlimited");
      },
      SetQuota);
  verbs.Add<DeleteQuotasOptions>(
      "quotas rm", "Remove quotas", "user:anna",
      [](client::Flags& flags, DeleteQuotasOptions& options) {
        flags.Words("SUBJECT", options.subjects, kSubjectHelp).Required();
      },
      DeleteQuotas);
}

}  // namespace trainyard::commands
